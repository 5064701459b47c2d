"""How serving stacks lay a chunk out on disk and read it back: one preset, one line of settings each."""

from dataclasses import dataclass, replace
from typing import Literal

from kvio.protocol import KVIOError

Order = Literal["role-major", "layer-major", "token-major"]
Partition = Literal["chunk", "layer", "role"]
ONE_FILE = 2**62  # bytes of a container that holds everything


@dataclass(frozen=True, slots=True)
class Preset:
    """One way to lay out and read chunks, as a stack does it.

    Windowed planes always lie behind the unlimited ones (`KVLayout.groups`); `order` is the order within.

    Args:
        name, stack, version: what it is called here, whose it is, and in which release it was read.
        source: the public file or page that says so.
        chunk_tokens: tokens in one chunk.
        order: "role-major" is [2, L, T, H*D], all K before all V; "layer-major" is [L, 2, T, H*D];
            "token-major" is [T, L, 2, H*D] of whatever planes an object holds.
        header_bytes: bytes before the payload of an object.
        align_bytes: an object is padded to a multiple of this; 1 pads nothing.
        direct: O_DIRECT is asked for.
        num_threads: threads that read.
        request_bytes: largest read handed to the kernel at once, and largest part of a chunk that one thread
            takes (never less than a plane); None reads an object with one read.
        open_per_read: each file is opened and closed around its read.
        front_reads: leaves out the end of a chunk that no window needs any more; stacks read whole objects.
        partition: a chunk is one object, or one for each layer, or one for each role (K apart from V).
        container_bytes: None gives each object a file of its own; else objects lie one behind another, at a
            fixed stride, in files of at most so many bytes.
        plane_reads: a read ends with each plane, whatever `request_bytes` allows.
        reads_header: the header is read too, with a read of its own.
        queue_depth: chunks that one thread keeps in flight, by backends that can.
    """

    name: str
    stack: str
    version: str
    source: str
    chunk_tokens: int
    order: Order
    num_threads: int
    direct: bool
    header_bytes: int = 0
    align_bytes: int = 1
    request_bytes: int | None = None
    open_per_read: bool = False
    front_reads: bool = False
    partition: Partition = "chunk"
    container_bytes: int | None = None
    plane_reads: bool = False
    reads_header: bool = False
    queue_depth: int = 1


LMCACHE = "github.com/LMCache/LMCache lmcache/v1/storage_backend/"
SGLANG = "github.com/sgl-project/sglang python/sglang/srt/mem_cache/"
VLLM = "github.com/vllm-project/vllm vllm/v1/kv_offload/"

_TABLE = (
    Preset(
        name="best",
        stack="kvcross",
        version="1",
        source="kvio/layout/presets.py",
        chunk_tokens=64,
        order="layer-major",
        num_threads=4,
        direct=True,
        align_bytes=4096,
        # even a prefix of one chunk keeps several threads busy; a sweep searches from here
        request_bytes=4 << 20,
        front_reads=True,
    ),
    Preset(
        name="lmcache",
        stack="LMCache",
        version="0.5.6",
        source=f"{LMCACHE}local_disk_backend.py",
        chunk_tokens=256,
        order="role-major",
        num_threads=4,
        direct=False,
        open_per_read=True,
    ),
    Preset(
        name="lmcache-gds",  # its files are safetensors, whose header is padded to a page
        stack="LMCache",
        version="0.5.6",
        source=f"{LMCACHE}gds_backend.py",
        chunk_tokens=256,
        order="role-major",
        num_threads=4,
        direct=True,
        header_bytes=4096,
        open_per_read=True,
    ),
    Preset(
        name="lmcache-layerwise",
        stack="LMCache",
        version="0.5.6",
        source=f"{LMCACHE}local_disk_backend.py",
        chunk_tokens=256,
        order="token-major",
        num_threads=4,
        direct=False,
        open_per_read=True,
        partition="layer",
    ),
    Preset(
        name="lmcache-raw",  # slots of a device or of one file, each with a header that is read first
        stack="LMCache",
        version="0.5.6",
        source=f"{LMCACHE} (raw block)",
        chunk_tokens=256,
        order="role-major",
        num_threads=4,
        direct=True,
        header_bytes=4096,
        align_bytes=4096,
        container_bytes=ONE_FILE,
        reads_header=True,
    ),
    Preset(
        name="vllm-fs",
        stack="vLLM",
        version="0.33.0",
        source=f"{VLLM}tiering/fs/",
        chunk_tokens=16,
        order="layer-major",
        num_threads=16,
        direct=True,
        open_per_read=True,
    ),
    Preset(
        name="vllm-offload",
        stack="vLLM",
        version="0.33.0",
        source=VLLM,
        chunk_tokens=16,
        order="layer-major",
        num_threads=1,
        direct=True,
        container_bytes=ONE_FILE,
    ),
    Preset(
        name="sglang-page",
        stack="SGLang",
        version="0.5.23",
        source=f"{SGLANG}hicache_storage.py",
        chunk_tokens=64,
        order="role-major",
        num_threads=1,
        direct=False,
        open_per_read=True,
    ),
    Preset(
        name="sglang-page1",  # what an unset page size gives
        stack="SGLang",
        version="0.5.23",
        source=f"{SGLANG}hicache_storage.py",
        chunk_tokens=1,
        order="role-major",
        num_threads=1,
        direct=False,
        open_per_read=True,
    ),
    Preset(
        name="sglang-zero-copy",
        stack="SGLang",
        version="0.5.23",
        source=f"{SGLANG}storage/",
        chunk_tokens=64,
        order="token-major",
        num_threads=1,
        direct=True,
        align_bytes=4096,
        open_per_read=True,
        partition="role",
        queue_depth=128,  # pages of one batch
    ),
    Preset(
        name="sglang-layer-first",
        stack="SGLang",
        version="0.5.23",
        source=f"{SGLANG}memory_pool_host.py",
        chunk_tokens=64,
        order="role-major",
        num_threads=1,
        direct=False,
        open_per_read=True,
        plane_reads=True,
    ),
    Preset(
        name="kvbm",
        stack="Dynamo KVBM",
        version="1.6.1",
        source="github.com/ai-dynamo/dynamo lib/llm/src/block_manager/storage/",
        chunk_tokens=16,
        order="layer-major",
        num_threads=4,
        direct=True,
        align_bytes=4096,
        container_bytes=ONE_FILE,
    ),
    Preset(
        name="mooncake",
        stack="Mooncake Store",
        version="0.3.13",
        source="github.com/kvcache-ai/Mooncake mooncake-store/src/ (bucket storage)",
        chunk_tokens=512,
        order="layer-major",
        num_threads=1,
        direct=True,
        align_bytes=4096,
        container_bytes=256_000_000,
        queue_depth=32,
    ),
    Preset(
        name="mlperf-npy",  # one file for a whole context: give --chunk-tokens the prefix length
        stack="MLPerf Storage",
        version="kv_cache benchmark",
        source="github.com/mlcommons/storage kv_cache_benchmark/",
        chunk_tokens=8192,
        order="layer-major",
        num_threads=1,
        direct=False,
        header_bytes=128,
        open_per_read=True,
        reads_header=True,
    ),
)
PRESETS: dict[str, Preset] = {preset.name: preset for preset in _TABLE}


def find_preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        KVIOError: there is none; lists those there are.
    """
    if name not in PRESETS:
        raise KVIOError(f"unknown preset {name!r}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]


def same_files(first: Preset, second: Preset) -> bool:
    """True when the two differ at most in how their files are read: threads, request size, depth."""
    return (
        replace(
            first,
            num_threads=second.num_threads,
            request_bytes=second.request_bytes,
            queue_depth=second.queue_depth,
        )
        == second
    )


def adapt_preset(
    preset: Preset,
    *,
    chunk_tokens: int | None = None,
    direct: bool | None = None,
    num_threads: int | None = None,
    request_bytes: int | None = None,
    queue_depth: int | None = None,
) -> Preset:
    """`preset` with the values that are given; None keeps the preset's own.

    Raises:
        KVIOError: a value is not positive.
    """
    numbers = {
        "chunk_tokens": chunk_tokens,
        "num_threads": num_threads,
        "request_bytes": request_bytes,
        "queue_depth": queue_depth,
    }
    for name, value in numbers.items():
        if value is not None and value <= 0:
            raise KVIOError(f"{name} is {value}; it must be positive")
    return replace(
        preset,
        chunk_tokens=preset.chunk_tokens if chunk_tokens is None else chunk_tokens,
        direct=preset.direct if direct is None else direct,
        num_threads=preset.num_threads if num_threads is None else num_threads,
        request_bytes=preset.request_bytes if request_bytes is None else request_bytes,
        queue_depth=preset.queue_depth if queue_depth is None else queue_depth,
    )
