"""The parameters of a kvikio case.  None is inherited: what is not given has the value below, not kvikio's."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from kvio.errors import KVIOError

# kvikio 26.10 has AUTO, 1 thread, 4 MiB, 16 KiB (below which reads bypass cuFile) and 16 MiB
DEFAULTS = {
    "compat": "off",
    "io_threads": "8",
    "task_bytes": str(4 * 2**20),
    "threshold_bytes": "0",
    "bounce_bytes": str(16 * 2**20),
    "register": "on",
}
OPTIONS = {
    "compat": "off: cuFile; on: kvikio's own POSIX reads.  There is no auto, which falls back in silence",
    "io_threads": "threads of kvikio's pool, which all reading threads share",
    "task_bytes": "kvikio splits a read into tasks of so many bytes",
    "threshold_bytes": "device reads of fewer bytes bypass cuFile",
    "bounce_bytes": "of each of kvikio's host buffers",
    "register": "on: pin staging memory for the drive once, before reading; off: cuFile copies through its own",
}
SWITCH = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class GdsOptions:
    """`OPTIONS`, worked out."""

    compat: bool
    io_threads: int
    task_bytes: int
    threshold_bytes: int
    bounce_bytes: int
    register: bool


def parse_gds_options(given: Mapping[str, str]) -> GdsOptions:
    """The options, with `DEFAULTS` for what is not given.

    Raises:
        KVIOError: one is unknown, no switch or no number that makes sense.
    """
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise KVIOError(f"gds has no option {unknown[0]!r}; it has: {', '.join(OPTIONS)}")
    chosen = {**DEFAULTS, **given}
    return GdsOptions(
        compat=_switch("compat", chosen["compat"]),
        io_threads=_count("io_threads", chosen["io_threads"], least=1),
        task_bytes=_count("task_bytes", chosen["task_bytes"], least=4096),
        threshold_bytes=_count("threshold_bytes", chosen["threshold_bytes"], least=0),
        bounce_bytes=_count("bounce_bytes", chosen["bounce_bytes"], least=4096),
        register=_switch("register", chosen["register"]),
    )


def _switch(name: str, text: str) -> bool:
    if text not in SWITCH:
        raise KVIOError(f"gds: {name}={text} is neither on nor off")
    return SWITCH[text]


def _count(name: str, text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise KVIOError(f"gds: {name}={text} is not a whole number from {least} on")
    return int(text)


def require_plain_allocator(environment: Mapping[str, str] = os.environ) -> None:
    """Stop where torch grows its memory segments: cuFile registers those 600 times slower, or not at all.

    Raises:
        KVIOError: PYTORCH_ALLOC_CONF (or its older name) asks for it.
    """
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        settings = environment.get(name, "").replace(" ", "").lower().split(",")
        if "expandable_segments:true" in settings:
            raise KVIOError(f"{name} asks for expandable_segments, which cuFile cannot register; unset it")
