"""Our loader with O_DIRECT against fio: same files, same request size, same number of threads, in pairs."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from kvio.backends import find_backend
from kvio.backends.setting import BackendSetting
from kvio.blocks import KVBlocks
from kvio.chunks import ChunkGeometry
from kvio.jobs import plan_jobs
from kvio.layout import uniform_layout
from kvio.loader import ChunkLoader
from kvio.pagecache import evict
from kvio.presets import adapt_preset, find_preset
from kvio.scratch import open_scratch
from kvio.store import ChunkStore
from tests.perf.pairs import measure_ratios, write_ratio

LAYOUT = uniform_layout(32, 2048)  # Llama-3.1-8B: 131,072 bytes per token
CHUNK_TOKENS = 256
NUM_CHUNKS = 24  # 805 MB
NUM_PAIRS = 12
SCRATCH = Path(__file__).parents[2] / "results" / "scratch"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with open_scratch(SCRATCH) as scratch:
        yield scratch


@pytest.fixture(scope="module")
def store(folder: Path) -> ChunkStore:
    geometry = ChunkGeometry(LAYOUT, adapt_preset(find_preset("best"), chunk_tokens=CHUNK_TOKENS))
    return ChunkStore.create(folder, geometry, num_chunks=NUM_CHUNKS, seed=0)


def _fio_seconds(store: ChunkStore, folder: Path, *, request_bytes: int, num_threads: int) -> float:
    """Seconds that fio's psync engine takes to read every chunk file once."""
    paths = [store.chunk_path(number) for number in range(store.num_chunks)]
    lines = [
        "[global]",
        "rw=read",
        "ioengine=psync",
        "direct=1",
        "thread",
        f"bs={request_bytes}",
        "group_reporting",
    ]
    for number in range(num_threads):
        own = paths[number::num_threads]
        size = sum(path.stat().st_size for path in own)
        lines += [
            f"[reader{number}]",
            f"filename={':'.join(map(str, own))}",
            f"size={size}",
            "file_service_type=sequential",
        ]
    job = folder / "job.fio"
    job.write_text("\n".join(lines) + "\n")
    found = subprocess.run(
        ["fio", "--output-format=json", str(job)], capture_output=True, text=True, check=True, timeout=300
    )
    reads = json.loads(found.stdout)["jobs"][0]["read"]
    assert reads["io_bytes"] == sum(path.stat().st_size for path in paths)
    return float(reads["io_bytes"]) / float(reads["bw_bytes"])


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed: apt-get install fio")
@pytest.mark.parametrize("request_mib", [1, 4, 32])
def test_posix_direct_against_fio(
    benchmark: BenchmarkFixture, store: ChunkStore, folder: Path, request_mib: int
) -> None:
    request_bytes = request_mib << 20
    preset = adapt_preset(find_preset("best"), chunk_tokens=CHUNK_TOKENS, request_bytes=request_bytes)
    geometry = ChunkGeometry(LAYOUT, preset)
    tokens = NUM_CHUNKS * CHUNK_TOKENS
    jobs = plan_jobs(
        store,
        range(NUM_CHUNKS),
        first_token=0,
        prefix_tokens=tokens,
    )
    blocks = KVBlocks(LAYOUT, tokens, torch.device("cpu"))
    kind = find_backend("posix")
    loader = ChunkLoader(
        geometry, lambda: kind.make(BackendSetting(direct=True)), device=blocks.device, now_s=time.monotonic
    )

    def ours_s() -> float:
        for number in range(NUM_CHUNKS):
            evict(store.chunk_path(number))
        began_s = time.monotonic()
        loader.load(blocks, jobs)
        return time.monotonic() - began_s

    def theirs_s() -> float:
        return _fio_seconds(store, folder, request_bytes=request_bytes, num_threads=preset.num_threads)

    try:
        ours_s()  # threads, handles and destination pages
        ratio, pairs = benchmark.pedantic(
            lambda: measure_ratios(ours_s, theirs_s, num_pairs=NUM_PAIRS), rounds=1, iterations=1
        )
    finally:
        loader.close()
    benchmark.extra_info.update(ratio=ratio.value, low=ratio.low, high=ratio.high)
    write_ratio(
        f"posix-direct-{request_mib}MiB-against-fio-psync",
        ratio,
        pairs,
        request_bytes=request_bytes,
        num_threads=preset.num_threads,
        num_bytes=tokens * LAYOUT.bytes_per_token,
        fio=subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip(),
    )
