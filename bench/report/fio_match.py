"""Whether fio read as a series of a sweep did: only then is one's rate a share of the other's."""

from collections.abc import Iterable
from dataclasses import dataclass

from bench.estimate.valid_samples import samples_that_count
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.units import printable
from kvio.layout.fio_job import plain_name, reads_by_plane

MIB = 2**20
NEAR = 0.01  # sizes this near are the same: a header or a shorter last read moves the mean


@dataclass(frozen=True, slots=True)
class FioReading:
    """How something read."""

    model: str | None  # whose chunks; None where it does not say
    layout: str | None
    chunk_bytes: int | None
    request_bytes: float | None  # as the layout has it
    read_bytes: float | None  # of one read.  None where it is not known
    direct: bool | None  # past the page cache; None where it is not known
    in_flight: int | None  # reads over all threads; None where it is not known
    # of one load; None where it is not known, or there are more than can be in flight
    num_reads: int | None = None

    @property
    def too_few_reads(self) -> bool:
        """Whether a load makes fewer reads than may be in flight."""
        return self.in_flight is not None and self.num_reads is not None and self.num_reads < self.in_flight

    @property
    def cache(self) -> str:
        """Through the page cache, or past it."""
        return {True: "direct", False: "buffered", None: "page cache not recorded"}[self.direct]


def most_reads_by_length(run: RunRecord, samples: Iterable[Sample], series: str) -> dict[int, int]:
    """By prefix length, the most reads of one rank that a load sample which counts made."""
    most: dict[int, int] = {}
    for sample in samples_that_count(run, samples, series):
        case, num_reads = sample.case, sample.outcome.num_requests
        if case.arm == "load" and case.suffix_tokens == run.plan.suffix_tokens and num_reads is not None:
            of_rank = -(-num_reads // run.plan.tensor_parallel)
            most[case.prefix_tokens] = max(most.get(case.prefix_tokens, 0), of_rank)
    return most


def reading_of(run: RunRecord, series: str, num_reads: int | None = None) -> FioReading:
    """How a load series of a sweep read, in loads of at most so many reads."""
    settings = run.series[series].settings if series in run.series else {}
    request = settings.get("request_bytes")
    sizes = [size for size in (request, settings.get("chunk_bytes")) if size is not None]
    by_plane = reads_by_plane(
        str(settings.get("preset"))
    )  # a read then ends with each plane, whatever the request
    cache = settings.get("cache_state")
    return FioReading(
        model=run.model_name,
        layout=settings.get("preset"),
        chunk_bytes=settings.get("chunk_bytes"),
        request_bytes=request,
        read_bytes=None if by_plane or request is None else min(sizes),
        direct=None if cache is None else cache == "direct",
        in_flight=settings.get("queue_depth"),
        num_reads=num_reads,
    )


def differences(fio: FioReading, sweep: FioReading) -> tuple[str, ...]:
    """What fio did otherwise, each as "fio's, sweep's"; empty where both read alike.

    A job that says whose chunks it reads must read the same ones; any other, reads of the same size.
    """
    found = []
    if fio.model is not None and fio.model != plain_name(sweep.model or ""):
        found.append(f"model: {printable(fio.model)}, here {printable(sweep.model or 'not recorded')}")
    if fio.layout is not None and fio.layout != sweep.layout:
        found.append(f"layout: {printable(fio.layout)}, here {printable(sweep.layout or 'not recorded')}")
    same_chunks = fio.chunk_bytes is not None and not found
    if same_chunks and fio.chunk_bytes != sweep.chunk_bytes:
        found.append(f"chunk: {format_sizes(fio.chunk_bytes)}, here {format_sizes(sweep.chunk_bytes)}")
    mine, theirs = (
        (fio.request_bytes, sweep.request_bytes) if same_chunks else (fio.read_bytes, sweep.read_bytes)
    )
    if mine is None or theirs is None or abs(mine / theirs - 1) > NEAR:
        found.append(f"read: {format_sizes(mine)}, here {format_sizes(theirs)}")
    if fio.direct != sweep.direct:
        found.append(f"{fio.cache}, here {sweep.cache}")
    here = sweep.num_reads if sweep.too_few_reads else sweep.in_flight
    if fio.in_flight != here:
        few = ", all reads of a load" if sweep.too_few_reads else ""
        found.append(f"in flight: {fio.in_flight}, here {'not recorded' if here is None else here}{few}")
    return tuple(found)


def format_sizes(num_bytes: float | None) -> str:
    """A size in MiB."""
    return "not recorded" if num_bytes is None else f"{num_bytes / MIB:.3g} MiB"
