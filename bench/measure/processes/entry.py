"""Where a measuring process begins.  Kept free of torch, so that the command line need not load it."""

from multiprocessing.connection import Connection

from bench.measure.processes.messages import RankSlot

PRELOAD = [
    "bench.measure.worker.worker_main",
    "transformers.models.auto.modeling_auto",
]  # by the fork server, once


def serve(pipe: Connection, slot: RankSlot | None = None) -> None:
    """Take one job from the pipe and carry it out, alone or as one of several ranks."""
    from bench.measure.worker.worker_main import (
        serve_job,  # the fork server has it loaded; the parent never needs it
    )

    serve_job(pipe, slot)
