"""Says in one line that no more threads can be started, which Python calls a RuntimeError."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from kvio.errors import KVIOError

T = TypeVar("T")
SAID = "can't start new thread"  # Modules/_threadmodule.c of CPython


class ThreadsError(KVIOError):
    """No more threads can be started here."""


@contextmanager
def thread_limit_errors(wanted: str) -> Iterator[None]:
    """Say what the threads are for, when one of them cannot be started.

    Args:
        wanted: "64 reading threads".

    Raises:
        ThreadsError: the limit of processes and threads is reached (ulimit -u, or pids.max of a cgroup).
    """
    try:
        yield
    except RuntimeError as error:
        if SAID not in str(error):
            raise
        raise ThreadsError(
            f"{wanted} cannot all be started here; try fewer --threads, or a higher limit of "
            f"processes (ulimit -u, pids.max of the container)"
        ) from error


def by_threads(act: Callable[[int], T], count: int, *, num_threads: int) -> Iterator[T]:
    """`act` of each number below `count`, by several threads; after a failure no more are begun.

    Raises:
        ThreadsError: the threads cannot be started.
    """
    with thread_limit_errors(f"{num_threads} threads"), ThreadPoolExecutor(num_threads) as pool:
        try:
            yield from pool.map(act, range(count))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
