"""Our reads against those of fio, NIXL, vLLM and LMCache: same files, same run, O_DIRECT, paired by repetition.

`make peers` installs vLLM and LMCache; without them, as without fio or NIXL, the others are compared.  A run that
leaves something out (`-k`, a contender, KVCROSS_READ_REPETITIONS) writes to results/scratch.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.record.atomic_write import write_text_safely
from kvio.store.scratch import open_scratch
from tests.perf.contender_fio import fio_version
from tests.perf.contender_packages import close_children
from tests.perf.contenders import CONTENDERS, Contender
from tests.perf.fileset import write_files
from tests.perf.pairs import PERF_RESULTS
from tests.perf.read_comparison import Comparison, Reading, as_csv, as_text, compare, measure

NUM_REPETITIONS = int(os.environ.get("KVCROSS_READ_REPETITIONS", "8"))
SIZES = {"128KiB": 128 << 10, "512KiB": 512 << 10, "1MiB": 1 << 20, "4MiB": 4 << 20, "32MiB": 32 << 20}
DEPTHS = (1, 4, 16, 32)
MIN_REQUEST_BYTES = 1 << 20  # from here on we must keep up
MIN_AGAINST_FIO, MIN_AGAINST_PEERS = 0.97, 1.0
OUR_TEAMS = ("kvcross", "kvcross-blocks")
TEAMS = {contender.name: contender.team for contender in CONTENDERS}


def bytes_of_reading(request_bytes: int) -> int:
    """Bytes of one reading: a quarter of a second on a drive of 1 GB/s, less for small reads."""
    return 256 << 20 if request_bytes >= MIN_REQUEST_BYTES else 128 << 20


@dataclass
class Collected:
    """What this session has measured so far."""

    readings: list[Reading] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        sizes = {reading.request_bytes for reading in self.readings}
        return sizes == set(SIZES.values()) and not self.missing and NUM_REPETITIONS >= 8

    def write(self, folder: Path, versions: dict[str, object]) -> None:
        columns = [column.name for column in fields(Reading)]
        rows = ",\n  ".join(json.dumps(astuple(reading)) for reading in self.readings)
        facts = {
            "name": "read-comparison",
            "versions": versions,
            "missing": self.missing,
            "includes": {contender.name: contender.includes for contender in CONTENDERS},
            "columns": columns,
        }
        text = json.dumps(facts, indent=1).removesuffix("\n}") + f',\n "readings": [\n  {rows}\n ]\n}}\n'
        folder.mkdir(parents=True, exist_ok=True)
        write_text_safely(folder / "read-comparison.json", text)
        write_text_safely(folder / "read-comparison.csv", as_csv(self.comparisons))
        print(f"\n{as_text(self.comparisons)}\n{folder}/read-comparison.csv", file=sys.__stdout__, flush=True)


@pytest.fixture(scope="module")
def collected() -> Iterator[Collected]:
    found = Collected()
    try:
        yield found
    finally:
        versions = close_children()
    if found.readings:
        versions["fio"] = None if "fio-psync" in found.missing else fio_version()
        found.write(PERF_RESULTS if found.complete else PERF_RESULTS.parent / "scratch", versions)


@pytest.fixture(scope="module")
def contenders(collected: Collected) -> list[Contender]:
    """Those that can be used here."""
    here = []
    for contender in CONTENDERS:
        why = contender.missing()
        if why is None:
            here.append(contender)
        else:
            collected.missing[contender.name] = why
            print(f"{contender.name} is left out: {why}", file=sys.__stdout__, flush=True)
    return here


@pytest.mark.parametrize("request_bytes", SIZES.values(), ids=SIZES)
def test_our_best_reads_keep_up_with_the_best_of_each_peer(
    benchmark: BenchmarkFixture, collected: Collected, contenders: list[Contender], request_bytes: int
) -> None:
    scratch = PERF_RESULTS.parent / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    num_files_at = {depth: max(depth, bytes_of_reading(request_bytes) // request_bytes) for depth in DEPTHS}
    with open_scratch(scratch) as folder:
        files = write_files(folder, request_bytes, num_files=max(num_files_at.values()))
        readings = benchmark.pedantic(
            lambda: measure(
                files,
                contenders,
                num_files_at=num_files_at,
                num_repetitions=NUM_REPETITIONS,
                seed=request_bytes,
            ),
            rounds=1,
            iterations=1,
        )
    here = {contender.name: contender.team for contender in contenders}
    comparisons = compare(readings, here, our_teams=OUR_TEAMS)
    collected.readings += readings
    collected.comparisons += comparisons
    best = [one for one in comparisons if one.kind == "best"]
    benchmark.extra_info.update({f"{one.ours} / {one.theirs}": one.ratio for one in best})
    print(f"\n{as_text(best)}", file=sys.__stdout__, flush=True)
    if request_bytes >= MIN_REQUEST_BYTES:
        behind = [one for one in best if one.ours == "kvcross" and _is_behind(one)]
        assert not behind, f"slower beyond doubt:\n{as_text(behind)}"


def _is_behind(one: Comparison) -> bool:
    """True where even the upper end of the interval is too low."""
    least = MIN_AGAINST_FIO if one.theirs == "fio" else MIN_AGAINST_PEERS
    return (one.ratio if one.ratio_high is None else one.ratio_high) < least
