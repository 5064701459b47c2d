"""A made sweep with a known truth, and its analysis by hand: what the show room is tested on."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.estimate.results import Analysis, Crossing, Estimate, Fit, Point, SweetSpot
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan
from bench.record.run import RunRecord, SeriesInfo, read_run
from bench.record.sample import Case, Outcome, Sample
from tests.helpers.commands import ROOT

TOKENS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
RECOMPUTE = (0.02, 2e-5, 4e-9)
LOAD = (0.30, 1e-5)
BYTES_PER_TOKEN = 147_456


def make_run(**changes: object) -> RunRecord:
    """The header of a sweep of an 8B model, complete and without suspicion."""
    record = RunRecord(
        run_id="20250102T030405-ab12",
        started_utc="2025-01-02T03:04:05Z",
        finished_utc="2025-01-02T03:07:05Z",
        state="complete",
        plan=Plan(model="qwen3-8b", loads=(LoadSpec(backend="posix", direct=True),)),
        model_name="Qwen3-8B",
        kv_bytes_per_token=BYTES_PER_TOKEN,
        chunk_tokens=256,
        series={
            "recompute": SeriesInfo(
                arm="recompute", label="recompute (bfloat16)", settings={"attention": "auto"}
            ),
            "load-1": SeriesInfo(
                arm="load",
                label="posix, best layout",
                settings={"backend": "posix", "preset": "best", "num_threads": 8},
            ),
        },
        machine={"device_name": "NVIDIA H200", "cpu_model": "AMD EPYC 9654", "memory_bytes": 137438953472},
        software={"torch": "2.13.0", "python": "3.11.2", "kernel": "6.8.0"},
        storage={"name": "Samsung PM1743", "filesystem": "xfs"},
        harness={"startup_s": 1.25},
        checks={
            "answer:posix/best": {"passed": True, "max_difference": 0.0078, "control_difference": 1.4},
            "scaling": {"relative_error": 0.021, "tokens": 512},
            "null": {"tokens": 512, "seconds": 0.00021},
        },
    )
    return record.model_copy(update=changes)


def make_samples(
    *, tokens: Sequence[int] = TOKENS, num_rounds: int = 6, num_samples: int = 3, load: str = "load-1"
) -> list[Sample]:
    """Every case in every round, with 3 % noise between rounds and 1 % within."""
    noise = np.random.default_rng(7)
    samples: list[Sample] = []
    for number in range(num_rounds):
        drift = {arm: 1 + 0.03 * noise.standard_normal() for arm in ("recompute", load)}
        for length in tokens:
            for repeat in range(num_samples):
                for series in ("recompute", load):
                    factor = drift[series] * (1 + 0.01 * noise.standard_normal())
                    outcome = _recompute(length, factor) if series == "recompute" else _load(length, factor)
                    samples.append(
                        Sample(
                            round=number,
                            order=len(samples),
                            sample=repeat,
                            started_s=float(len(samples)),
                            case=Case("recompute" if series == "recompute" else "load", series, length),
                            outcome=outcome,
                        )
                    )
    return samples


def _recompute(length: int, factor: float) -> Outcome:
    seconds = (RECOMPUTE[0] + RECOMPUTE[1] * length + RECOMPUTE[2] * length**2) * factor
    return Outcome(seconds=seconds, attention_kernel="sdpa", measured_layers=36, total_layers=36)


def _load(length: int, factor: float) -> Outcome:
    return Outcome(
        seconds=(LOAD[0] + LOAD[1] * length) * factor,
        first_token_s=0.02,
        num_bytes=length * BYTES_PER_TOKEN,
        cache_state="cold",
        data_path="posix-direct",
        verified=True,
    )


def make_point(samples: Sequence[Sample], length: int, series: str = "load-1") -> Point:
    """The point at one length with plain normal intervals."""
    recompute, load = (
        np.array(
            [s.outcome.seconds for s in samples if s.case.series == name and s.case.prefix_tokens == length]
        )
        for name in ("recompute", series)
    )
    ratio = recompute / load
    size = float(length * BYTES_PER_TOKEN)
    return Point(
        series=series,
        prefix_tokens=length,
        num_rounds=6,
        num_samples=18,
        recompute_s=_estimate(recompute),
        load_s=_estimate(load),
        ratio=_estimate(ratio),
        load_p95_s=float(np.quantile(load, 0.95)),
        load_p99_s=None,
        first_token_s=0.02,
        num_bytes=int(size),
        bytes_per_s=_estimate(size / (load - 0.02)),
        break_even_bytes_per_s=size / float(np.median(recompute)),
        mfu=0.41,
        recompute_scaled=False,
    )


def _estimate(values: np.ndarray) -> Estimate:
    if len(values) == 1:
        return Estimate(float(values[0]))
    width = 2.57 * float(values.std(ddof=1)) / 6**0.5
    middle = float(np.median(values))
    return Estimate(middle, middle - width, middle + width)


def make_spot(**changes: object) -> SweetSpot:
    """C* of the median, near the truth of the made sweep (7,208 tokens)."""
    spot = SweetSpot(
        series="load-1",
        kind="whole",
        statistic="p50",
        verdict="crossover",
        measured_range=(512, 32768),
        crossings=(Crossing(Estimate(7208.4, 6890.2, 7544.9), (4096, 8192), load_wins_beyond=True),),
        export_tokens=7424,
        sensitivity={
            "0.5x": Estimate(8650.0, 8100.0, 9200.0),
            "0.8x": Estimate(7612.0),
            "1.25x": Estimate(6920.0),
            "2x": None,
        },
    )
    return replace(spot, **changes)  # type: ignore[arg-type]


def make_analysis(samples: Sequence[Sample], **changes: object) -> Analysis:
    """Points, both fits, C* and P* of the made sweep."""
    lengths = sorted({sample.case.prefix_tokens for sample in samples})
    analysis = Analysis(
        points=tuple(make_point(samples, length) for length in lengths),
        spots=(
            make_spot(),
            make_spot(
                statistic="p95",
                crossings=(Crossing(Estimate(7391.0, 7010.0, 7802.0), (4096, 8192), load_wins_beyond=True),),
            ),
            make_spot(
                kind="marginal",
                crossings=(Crossing(Estimate(3604.0), (2048, 4096), load_wins_beyond=True),),
                export_tokens=3840,
                sensitivity={},
            ),
        ),
        fits=(
            Fit("recompute", "recompute", RECOMPUTE, {length: 0.004 for length in lengths}),
            Fit("load", "load-1", LOAD, {length: -0.002 for length in lengths}),
        ),
    )
    return replace(analysis, **changes)


def make_notice(code: str = "drift_load", message: str = "load got 9 % slower over the sweep") -> Notice:
    """A notice that makes the run suspect."""
    return Notice(kind=code, detail=message)


RESULTS = ROOT / "results"
MODEL = "qwen3-0.6b"


@dataclass(frozen=True, slots=True)
class Crossover:
    """C* of the median load time, as crossover.csv has it."""

    tokens: float
    low_tokens: float
    high_tokens: float


def _whole_row(folder: Path) -> dict[str, str]:
    """The row of crossover.csv that says whether and where whole prefixes cross."""
    with (folder / "crossover.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return next(row for row in rows if (row["kind"], row["statistic"]) == ("whole", "p50"))


def _sweeps() -> list[tuple[Path, RunRecord]]:
    """Committed sweeps of whole prefixes of MODEL, the newest first."""
    folders = [path.parent for path in RESULTS.glob("*/*/*/run.json") if "scratch" not in path.parts]
    runs = [(folder, read_run(folder)) for folder in folders]
    chosen = [one for one in runs if one[1].plan.model == MODEL and not one[1].plan.suffix_tokens]
    return sorted(chosen, key=lambda one: one[1].started_utc, reverse=True)


def _find_limited() -> tuple[Path, RunRecord]:
    """The newest sweep whose storage was limited and whose verdict is a crossover."""
    return next(
        (folder, run)
        for folder, run in _sweeps()
        if run.plan.limit_bytes_per_s is not None and _whole_row(folder)["verdict"] == "crossover"
    )


def find_limited() -> Path:
    """The folder of that sweep."""
    return _find_limited()[0]


def find_plain() -> Path:
    """The newest sweep of the same machine and dtype as `find_limited`, with the drive as it is."""
    beside, limited = _find_limited()
    return next(
        folder
        for folder, run in _sweeps()
        if run.plan.limit_bytes_per_s is None
        and (folder.parent, run.plan.dtype) == (beside.parent, limited.plan.dtype)
    )


def read_crossover(folder: Path) -> Crossover:
    """C* of a sweep with the verdict `crossover`."""
    row = _whole_row(folder)
    names = ("crossover_tokens", "crossover_low_tokens", "crossover_high_tokens")
    return Crossover(*(float(row[name]) for name in names))
