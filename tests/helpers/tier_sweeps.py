"""Made sweeps of several ways to load without noise, so that every figure can be worked out by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.record.plan import LoadSpec, Plan
from bench.record.run import RunRecord, SeriesInfo, write_run
from bench.record.sample import Case, Outcome, Sample
from bench.record.samples_csv import SampleWriter
from tests.helpers.sweeps import make_run

LENGTHS = (1000, 2000, 4000, 8000)
BYTES_PER_TOKEN = 100_000
RECOMPUTE_S = (0.0, 1e-4, 0.0)  # 0.1 ms per token


@dataclass(frozen=True)
class Way:
    """One way to load: `fixed_s` and so many bytes per second; rounds are `spread` apart, as a share."""

    backend: str
    layout: str = "best"
    bytes_per_s: float = 2e9
    fixed_s: float = 0.0
    spread: float = 0.0
    cache_state: str | None = "direct"
    server: str | None = None

    @property
    def series(self) -> str:
        return f"{self.backend}/{self.layout}"

    def seconds(self, tokens: int) -> float:
        return self.fixed_s + tokens * BYTES_PER_TOKEN / self.bytes_per_s


MEMORY = Way("hostmem", bytes_per_s=10e9, cache_state=None)  # 0.01 ms per token: always wins
DISK = Way("posix", bytes_per_s=4e9, fixed_s=0.1875)  # 0.025 ms per token: ties at 2,500
SLOW_DISK = Way("posix", "lmcache", bytes_per_s=2e9, fixed_s=0.25, cache_state="cold")  # ties at 5,000
OBJECTS = Way("s3", bytes_per_s=2.5e9, fixed_s=0.3, cache_state="unverified", server="bucket kv at http://s3")
NEVER = Way("nixl", bytes_per_s=0.5e9)  # 0.2 ms per token
WILD = Way("s3", fixed_s=0.05, spread=0.9, cache_state="unverified", server="bucket kv at http://s3")


def make_tier_run(ways: Sequence[Way], **plan: object) -> RunRecord:
    """The header of a sweep over these ways."""
    series = {"recompute": make_run().series["recompute"]}
    for way in ways:
        settings = {"backend": way.backend, "preset": way.layout, "chunk_tokens": 256}
        settings |= {"server": way.server} if way.server else {}
        series[way.series] = SeriesInfo(
            arm="load", label=f"{way.backend}, {way.layout} layout", settings=settings
        )
    loads = tuple(LoadSpec(backend=way.backend, preset=way.layout) for way in ways)
    return make_run(series=series, plan=Plan(model="qwen3-8b", loads=loads, **plan))  # type: ignore[arg-type]


def make_tier_samples(
    ways: Sequence[Way], *, lengths: Sequence[int] = LENGTHS, num_rounds: int = 6, suffix_tokens: int = 0
) -> list[Sample]:
    """Every arm at every length in every round, each exactly as its formula says."""
    samples: list[Sample] = []
    for number in range(num_rounds):
        for tokens in lengths:
            recompute = Outcome(seconds=tokens * RECOMPUTE_S[1])
            outcomes = {("recompute", "recompute"): recompute}
            for way in ways:
                outcomes["load", way.series] = _load(way, tokens, number)
            for (arm, series), outcome in outcomes.items():
                case = Case(arm, series, tokens, suffix_tokens)  # type: ignore[arg-type]
                samples.append(Sample(number, len(samples), 0, float(len(samples)), case, outcome))
    return samples


def _load(way: Way, tokens: int, number: int) -> Outcome:
    factor = 1 + way.spread * (1 if number % 2 else -1)
    return Outcome(
        seconds=way.seconds(tokens) * factor,
        first_token_s=way.fixed_s * factor,
        num_bytes=tokens * BYTES_PER_TOKEN,
        cache_state=way.cache_state,  # type: ignore[arg-type]
        data_path=f"{way.backend}-direct",
        verified=True,
    )


def write_sweep(folder: Path, run: RunRecord, samples: Iterable[Sample]) -> Path:
    """The folder, with what a sweep leaves behind."""
    folder.mkdir(parents=True, exist_ok=True)
    write_run(folder, run)
    writer = SampleWriter(folder)
    for sample in samples:
        writer.append(sample)
    writer.close()
    return folder
