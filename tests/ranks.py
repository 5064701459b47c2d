"""What the ranks of the tests do: each in a fresh process, joined over gloo on this machine."""

import multiprocessing
import socket
from collections.abc import Callable
from typing import Any

import torch

from bench.arms import ranks as group


def run_ranks(
    num_ranks: int, work: Callable[..., Any], *arguments: object, device_type: str = "cpu"
) -> list[Any]:
    """What `work(*arguments)` gives on every rank; all of them run it at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.tensor_parallel"])
    results = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for rank in range(num_ranks):
            ours, theirs = context.Pipe()
            seat = (rank, num_ranks, listener.getsockname()[1], listener if rank == 0 else None, device_type)
            process = context.Process(target=_sit, args=(theirs, seat, work, arguments), daemon=True)
            process.start()
            theirs.close()
            results.append((ours, process))
        found = [pipe.recv() for pipe, _ in results]
    for _, process in results:
        process.join()
    return found


def _sit(pipe: Any, seat: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
    rank, size, port, listener, device_type = seat
    torch.set_num_threads(1)
    if device_type == "cuda":
        torch.cuda.set_device(rank)
    group.join(
        rank,
        size,
        port=port,
        listener=None if listener is None else listener.detach(),
        device_type=device_type,
    )
    pipe.send(work(*arguments))
    group.leave()
