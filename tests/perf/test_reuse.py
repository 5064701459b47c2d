"""The reuse simulator against kvcache-simulator (PyPI, Apache-2.0): same trace, capacities and results.

Both read the trace and give hit tokens over its second half, because kvcache-simulator measures no other
part; its replay is a C++ program that it compiles once.  FIFO is left out: a request's blocks come in last
to first here and first to last there, so the two are different policies.  KVCROSS_TRACES names a folder with
the whole Mooncake traces; without it the committed slices are used.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from timeit import repeat
from typing import Any

import pytest

from bench.reuse.eviction import Policy, simulate
from bench.reuse.jit import numba
from bench.reuse.trace import read_trace

WHY = "kvcache-simulator is not installed: pip install kvcache-simulator"
cpp_backend = pytest.importorskip("kvcache_sim.cpp_backend", reason=WHY)
their_trace = pytest.importorskip("kvcache_sim.trace", reason=WHY)
pytestmark = [
    pytest.mark.skipif(shutil.which("c++") is None, reason="kvcache-simulator needs a C++ compiler"),
    pytest.mark.skipif(numba is None, reason="numba is not installed: pip install 'kvcross[reuse]'"),
]

SLICES = Path(__file__).parent.parent / "traces"
POLICIES: tuple[Policy, ...] = ("lru", "optimal")
CAPACITIES_BLOCKS = {"whole": [500, 2000, 4000, 8000, 16000], "slice": [100, 500, 1000, 2000]}
BLOCK_TOKENS = 512
Hits = dict[tuple[str, int], int]


def trace_of(name: str) -> tuple[Path, list[int]]:
    folder = os.environ.get("KVCROSS_TRACES")
    if folder is None:
        return SLICES / f"mooncake_{name}_400.jsonl", CAPACITIES_BLOCKS["slice"]
    return Path(folder) / f"{name}_trace.jsonl", CAPACITIES_BLOCKS["whole"]


def our_hits(path: Path, capacities: list[int]) -> Hits:
    trace = read_trace(path)
    half = trace.num_requests // 2
    sizes = [blocks * BLOCK_TOKENS for blocks in capacities]
    return {
        (policy, blocks): int(hits[half:].sum())
        for policy in POLICIES
        for blocks, hits in zip(
            capacities, simulate(trace, policy, capacities_tokens=sizes, unit="blocks"), strict=True
        )
    }


def their_hits(path: Path, capacities: list[int]) -> Hits:
    trace = their_trace.parse_trace_file(path, block_size=BLOCK_TOKENS)
    sweep = cpp_backend.run_cpp_sweep(
        trace,
        capacities=capacities,
        policies=list(POLICIES),
        warmup_requests=trace.request_count // 2,
    )
    assert {result.measurementMode for result in sweep.results.values()} == {"fixed_window"}
    return {key: result.hitTokens for key, result in sweep.results.items()}


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_results_equal_those_of_kvcache_simulator(name: str) -> None:
    path, capacities = trace_of(name)
    assert our_hits(path, capacities) == their_hits(path, capacities)


@pytest.mark.parametrize("find_hits", [our_hits, their_hits], ids=["kvcross", "kvcache-simulator"])
@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_seconds_from_file_to_hits(
    benchmark: Any,  # noqa: ANN401
    name: str,
    find_hits: Callable[[Path, list[int]], Hits],
) -> None:
    path, capacities = trace_of(name)
    benchmark.group = f"{name}: {len(capacities)} capacities, lru and optimal"
    benchmark.extra_info["trace"] = path.name
    hits = benchmark.pedantic(find_hits, args=(path, capacities), rounds=5, warmup_rounds=1)
    assert hits == our_hits(path, capacities)


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_it_is_at_least_as_fast_as_kvcache_simulator(name: str) -> None:
    path, capacities = trace_of(name)
    ours_s, theirs_s = (
        min(repeat(partial(find_hits, path, capacities), number=1, repeat=4))
        for find_hits in (our_hits, their_hits)
    )
    assert ours_s <= theirs_s
