"""The ranks of one model: rank, size, and reductions between them.

Every rank runs the same code; where they must not differ (when a timed part begins and ends, what there is
memory for, whether there is time for another case) they ask each other.  Without a group there is one rank,
and nothing is asked.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

TIMEOUT_S = 60.0  # a rank that the others wait for longer than this hangs: none has more to do than they
LOOPBACK = "lo"  # all ranks are processes of one machine
LOST_SIGNS = ("gloo", "NCCL", "TCPStore")  # in the messages of torch's plain RuntimeErrors

T = TypeVar("T")


def join(own_rank: int, num_ranks: int, *, port: int, listener: int | None, device_type: str) -> None:
    """Join the group of ranks that the functions of this module use.

    Gloo carries messages between ranks, and activations on a CPU; NCCL activations on GPUs.

    Args:
        own_rank, num_ranks: of this process, and of the group.
        port: on this machine, where the ranks meet.
        listener: rank 0's descriptor of a socket that listens there; None for the others.
        device_type: `cpu` or `cuda`.
    """
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, LOOPBACK)
    os.environ.update(RANK=str(own_rank), LOCAL_RANK=str(own_rank), WORLD_SIZE=str(num_ranks))
    timeout = timedelta(seconds=TIMEOUT_S)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1",
        port,
        num_ranks,
        is_master=own_rank == 0,
        timeout=timeout,
        master_listen_fd=listener,
    )
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo",
        store=store,
        rank=own_rank,
        world_size=num_ranks,
        timeout=timeout,
    )


def leave() -> None:
    """Leave the group when all ranks have come here."""
    if size() > 1:
        wait()
        dist.destroy_process_group()


def describe_loss(error: RuntimeError) -> str | None:
    """Message that another rank is gone or does not answer; None for any other error."""
    if not isinstance(error, dist.DistError) and not any(sign in str(error) for sign in LOST_SIGNS):
        return None
    silent = "timed out" in str(error).lower() or "timeout" in str(error).lower()
    return f"another rank did not answer for {TIMEOUT_S:g} s" if silent else "another rank is gone"


def size() -> int:
    """Number of ranks; 1 without a group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """This process's rank; 0 without a group."""
    return dist.get_rank() if dist.is_initialized() else 0


def wait() -> None:
    """Return when all ranks have come here."""
    sum_over_ranks(0)


def min_over_ranks(value: int) -> int:
    """The smallest of the ranks' values."""
    return _reduce(value, dist.ReduceOp.MIN)


def sum_over_ranks(value: int) -> int:
    """The sum of the ranks' values."""
    return _reduce(value, dist.ReduceOp.SUM)


def _reduce(value: int, operation: dist.ReduceOp.RedOpType) -> int:
    if size() == 1:
        return value
    cell = torch.tensor([value], dtype=torch.int64)
    dist.all_reduce(cell, op=operation)
    return int(cell.item())


def broadcast(make: Callable[[], T]) -> T:
    """The value that rank 0 makes; the others make none."""
    if size() == 1:
        return make()
    cell = [make() if rank() == 0 else None]
    dist.broadcast_object_list(cell, src=0, device=torch.device("cpu"))
    return cell[0]  # type: ignore[return-value]


def gather(value: T) -> list[T]:
    """The values of all ranks, by rank."""
    if size() == 1:
        return [value]
    found: list[T | None] = [None] * size()
    dist.all_gather_object(found, value)
    return found  # type: ignore[return-value]
