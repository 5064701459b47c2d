"""Where a measuring process begins.  Kept free of torch, so that the command line need not load it."""

from multiprocessing.connection import Connection


def serve(pipe: Connection) -> None:
    """Take one job from the pipe and carry it out."""
    from bench.measure.worker import serve_job  # the fork server has it loaded; the parent never needs it

    serve_job(pipe)
