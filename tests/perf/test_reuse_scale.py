"""A long made-up trace through the command line: seconds, and memory for each block reference.

KVCROSS_REFERENCES is how many block references the trace has (100 million take some minutes and 2.5 GB of disk);
the default of 4 million is enough to tell memory that grows by Python objects from memory that grows by arrays.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.record.atomic_write import write_text_safely
from bench.reuse.jit import numba
from tests.perf.pairs import PERF_RESULTS

pytestmark = pytest.mark.skipif(numba is None, reason="numba is not installed: pip install 'kvcross[reuse]'")

ROOT = Path(__file__).parents[2]
NUM_REFERENCES = int(float(os.environ.get("KVCROSS_REFERENCES", 4e6)))
BLOCKS = 25  # of a request: 20 of its conversation, 5 of its own
TURNS = 8
BASE_BYTES = 600_000_000  # interpreter, numpy, pandas, matplotlib, numba with its compiled code, pieces
MAX_BYTES_PER_REFERENCE = 48.0


def write_trace(path: Path, num_references: int) -> None:
    """Conversations of TURNS requests in random order; ids spread over 63 bits, as hashes are."""
    chance = np.random.default_rng(0)
    num_requests = num_references // BLOCKS
    num_conversations = max(1, num_requests // TURNS)
    with path.open("w") as file:
        for first in range(0, num_requests, 100_000):
            count = min(100_000, num_requests - first)
            plain = np.empty((count, BLOCKS), dtype=np.uint64)
            talk = chance.integers(0, num_conversations, count, dtype=np.uint64)
            plain[:, :20] = talk[:, None] * 20 + np.arange(20, dtype=np.uint64)
            own = (np.arange(first, first + count, dtype=np.uint64) + num_conversations * 4) * 5
            plain[:, 20:] = own[:, None] + np.arange(5, dtype=np.uint64)
            hashed = (plain + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(1)
            for number, blocks in enumerate(hashed.tolist(), start=first):
                length = BLOCKS * 512
                fields = {"timestamp": number, "input_length": length, "output_length": 1, "hash_ids": blocks}
                file.write(json.dumps(fields) + "\n")


def run_verb(trace: Path, policy: str) -> tuple[float, float, int]:
    """Seconds, processor seconds and peak bytes of one process: file to table, at four capacities."""
    sizes = ",".join(str(NUM_REFERENCES * 512 * share // 100) for share in (1, 5, 20, 60))
    command = [sys.executable, "-m", "bench", "reuse", str(trace), "--policy", policy, "--capacity", sizes]
    began_s = time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        table = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    print(f"\n{table}")
    assert process.returncode == 0
    return time.monotonic() - began_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scale") / "trace.jsonl"
    write_trace(path, NUM_REFERENCES)
    return path


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo", "optimal"])
def test_memory_grows_by_bytes_and_not_by_objects(
    benchmark: BenchmarkFixture, trace: Path, policy: str
) -> None:
    seconds, cpu_s, peak_bytes = benchmark.pedantic(run_verb, args=(trace, policy), rounds=1)
    per_reference = max(0, peak_bytes - BASE_BYTES) / NUM_REFERENCES
    facts = {
        "policy": policy,
        "num_references": NUM_REFERENCES,
        "trace_bytes": trace.stat().st_size,
        "num_capacities": 4,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "peak_bytes": peak_bytes,
    }
    benchmark.extra_info.update(facts)
    write_text_safely(PERF_RESULTS / f"reuse-scale-{policy}.json", json.dumps(facts, indent=1) + "\n")
    assert per_reference < MAX_BYTES_PER_REFERENCE
