"""How serving stacks lay a chunk out on disk and read it back: one preset, one line of settings each."""

from dataclasses import dataclass, replace
from typing import Literal

from kvio.backends.protocol import KVIOError

Order = Literal["role-major", "layer-major"]


@dataclass(frozen=True, slots=True)
class Preset:
    """One way to lay out and read chunks, as a stack does it.

    Windowed planes always lie behind the unlimited ones (`KVLayout.groups`); `order` is the order within.

    Args:
        name, stack, version: what it is called here, whose it is, and in which release it was read.
        source: the public file or page that says so.
        chunk_tokens: tokens in one chunk.
        order: "role-major" is [2, L, T, H*D], all K before all V; "layer-major" is [L, 2, T, H*D].
        header_bytes: bytes of a file before its payload.
        align_bytes: a file is padded to a multiple of this; 1 pads nothing.
        direct: O_DIRECT is asked for.
        num_threads: threads that read.
        request_bytes: largest read handed to the kernel at once, and largest part of a chunk that one thread
            takes (never less than a plane); None reads a chunk with one read.
        open_per_read: each chunk's file is opened and closed around its read.
        front_reads: leaves out the end of a chunk that no window needs any more; stacks read whole files.
    """

    name: str
    stack: str
    version: str
    source: str
    chunk_tokens: int
    order: Order
    header_bytes: int
    align_bytes: int
    direct: bool
    num_threads: int
    request_bytes: int | None
    open_per_read: bool
    front_reads: bool = False


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="best",
            stack="kvcross",
            version="1",
            source="kvio/presets.py",
            chunk_tokens=64,
            order="layer-major",
            header_bytes=0,
            align_bytes=4096,
            direct=True,
            num_threads=4,
            request_bytes=4 << 20,  # even a prefix of one chunk keeps several threads busy
            open_per_read=False,
            front_reads=True,
        ),
        Preset(
            name="lmcache",
            stack="LMCache",
            version="0.5.6",
            source="github.com/LMCache/LMCache lmcache/v1/storage_backend/local_disk_backend.py",
            chunk_tokens=256,
            order="role-major",
            header_bytes=0,
            align_bytes=1,
            direct=False,
            num_threads=4,
            request_bytes=None,
            open_per_read=True,
        ),
        Preset(
            name="vllm-fs",
            stack="vLLM",
            version="0.33.0",
            source="github.com/vllm-project/vllm vllm/v1/kv_offload/tiering/fs/",
            chunk_tokens=16,
            order="layer-major",
            header_bytes=0,
            align_bytes=1,
            direct=True,
            num_threads=16,
            request_bytes=None,
            open_per_read=True,
        ),
        Preset(
            name="sglang-page",
            stack="SGLang",
            version="0.5.23",
            source="github.com/sgl-project/sglang python/sglang/srt/mem_cache/hicache_storage.py",
            chunk_tokens=64,
            order="role-major",
            header_bytes=0,
            align_bytes=1,
            direct=False,
            num_threads=1,
            request_bytes=None,
            open_per_read=True,
        ),
    )
}


def find_preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        KVIOError: there is none; lists those there are.
    """
    if name not in PRESETS:
        raise KVIOError(f"unknown preset {name!r}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]


def adapt_preset(
    preset: Preset,
    *,
    chunk_tokens: int | None = None,
    direct: bool | None = None,
    num_threads: int | None = None,
    request_bytes: int | None = None,
) -> Preset:
    """`preset` with the values that are given; None keeps the preset's own.

    Raises:
        KVIOError: a value is not positive.
    """
    numbers = {"chunk_tokens": chunk_tokens, "num_threads": num_threads, "request_bytes": request_bytes}
    for name, value in numbers.items():
        if value is not None and value <= 0:
            raise KVIOError(f"{name} is {value}; it must be positive")
    return replace(
        preset,
        chunk_tokens=preset.chunk_tokens if chunk_tokens is None else chunk_tokens,
        direct=preset.direct if direct is None else direct,
        num_threads=preset.num_threads if num_threads is None else num_threads,
        request_bytes=preset.request_bytes if request_bytes is None else request_bytes,
    )
