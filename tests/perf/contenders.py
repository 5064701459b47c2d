"""Who reads in a read comparison: one table, one line each."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.perf.contender_fio import explain_no_fio, read_by_fio
from tests.perf.contender_nixl import explain_no_nixl, read_by_nixl
from tests.perf.contender_ours import read_into_blocks, read_into_buffers
from tests.perf.contender_packages import explain_no_package, read_by_package
from tests.perf.fileset import FileSet

Read = Callable[[FileSet, int], float]


@dataclass(frozen=True)
class Contender:
    """One way to read all files of a set.

    Args:
        name: of its rows.
        team: the best of a team's members is compared too.
        includes: what its seconds are, and what they leave out.
        read: seconds that it takes at a queue depth; raises where not all bytes arrive.
        missing: why it cannot be used here, and the command that changes that; None where it can.
    """

    name: str
    team: str
    includes: str
    read: Read
    missing: Callable[[], str | None] = lambda: None


BUFFERS = "open, read into bounce buffers; nothing is copied on"
BLOCKS = "open, read into bounce buffers, scatter into the KV blocks of 64 planes"
FIO = "fio's own runtime, in whole ms: open, read into one buffer per read in flight; no start of the process"
NIXL = "descriptors, transfer and polling with its own queue at every depth; files and memory are registered before"
LMCACHE = "its own opening and reading into its pinned memory"


def _ours(backend: str) -> list[Contender]:
    return [
        Contender(backend, "kvcross", BUFFERS, lambda files, depth: read_into_buffers(backend, files, depth)),
        Contender(
            f"{backend}-blocks",
            "kvcross-blocks",
            BLOCKS,
            lambda files, depth: read_into_blocks(backend, files, depth),
        ),
    ]


def _fio(engine: str) -> Contender:
    return Contender(
        f"fio-{engine}",
        "fio",
        FIO,
        lambda files, depth: read_by_fio(engine, files, depth),
        lambda: explain_no_fio(engine),
    )


def _nixl(queue: str, *, huge: bool = False) -> Contender:
    return Contender(
        f"nixl-{queue}{'-huge' if huge else ''}",
        "nixl-huge" if huge else "nixl",
        f"{NIXL}, in our huge pages" if huge else NIXL,
        lambda files, depth: read_by_nixl(queue, files, huge=huge),
        explain_no_nixl,
    )


def _package(package: str, reader: str, includes: str) -> Contender:
    name = f"{package}-{reader}"
    return Contender(
        name,
        package,
        includes,
        lambda files, depth: read_by_package(package, reader, files, depth),
        lambda: explain_no_package(package),
    )


CONTENDERS: tuple[Contender, ...] = (
    *_ours("posix"),
    *_ours("uring"),
    _fio("psync"),
    _fio("libaio"),
    _fio("io_uring"),
    _nixl("aio"),
    _nixl("uring"),
    _nixl("aio", huge=True),
    _package(
        "vllm", "fs", "submit_load of as many jobs as the depth, each read by one thread; open and read"
    ),
    _package("lmcache", "disk", f"batched_get_blocking with as many threads as the depth; {LMCACHE}"),
    _package("lmcache", "fs", f"as many load tasks as the depth, each serial; {LMCACHE}"),
    _package("lmcache", "fs_native", f"one load task, as many C++ workers as the depth; {LMCACHE}"),
)
