"""Writing and placing KV chunks takes its share of the budget, and no more."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from bench.measure.budget import ROUNDS_PLANNED, BudgetTooSmallError, CostBook
from bench.measure.chunk_files import FillPrice, cut_spare_to, write_chunk_files
from bench.measure.clock import VirtualClock
from bench.measure.processes.source import SimulatedSource
from bench.measure.rounds import Rounds
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan, resolve_plan
from bench.measure.stores import plan_stores
from bench.record.plan import LoadSpec, Plan
from kvio.errors import KVIOError
from kvio.store.chunk_store import ChunkStore
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.scripted_rounds import SilentObserver
from tests.helpers.sweeps import make_run

MIB = 2**20
S3 = LoadSpec(backend="s3", chunk_tokens=32, options={"endpoint": "http://192.0.2.1", "bucket": "kv"})


class SlowServer:
    """Takes two seconds for each chunk and some for each store, or fails.

    Args:
        fixed_s: of each store.
        later_s: of each chunk, once it was tried out.
        tried_s: of each chunk while it is tried out.
        at_once: chunks that it takes side by side.
        reads: the series that reads from it.
    """

    def __init__(
        self,
        clock: VirtualClock,
        *,
        fails: str | None = None,
        fixed_s: float = 0.0,
        later_s: float = 2.0,
        tried_s: float = 2.0,
        at_once: int = 1,
        reads: str = "s3/best",
    ) -> None:
        self._clock = clock
        self._fails = fails
        self._fixed_s = fixed_s
        self._later_s, self._tried_s = later_s, tried_s
        self._at_once = at_once
        self._reads = reads
        self.placed: list[int] = []
        self.held = 0

    def place(
        self,
        store_dirs: Mapping[str, Path],
        observer: object,
        *,
        before_each: Callable[[], None],
        chunk_s: float | None = None,
    ) -> dict[str, KVIOError]:
        if self._reads not in store_dirs:
            return {}
        if self._fails:
            return {self._reads: KVIOError(self._fails)}
        self._clock.advance(self._fixed_s)
        self.placed.append(0)
        for _ in store_dirs[self._reads].glob("chunk-*.kv"):
            try:
                before_each()
            except KVIOError as error:
                return {self._reads: error}
            if self.placed[-1] % self._at_once == 0:
                self._clock.advance(self._later_s if chunk_s is None else chunk_s)
            self.placed[-1] += 1
            self.held += 1
        return {}

    @contextmanager
    def placed_for_now(
        self, store_dirs: Mapping[str, Path], observer: object, *, before_each: Callable[[], None]
    ) -> Iterator[dict[str, KVIOError]]:
        before = self.held
        yield self.place(store_dirs, observer, before_each=before_each, chunk_s=self._tried_s)
        self.held = before


def prepare(
    tmp_path: Path,
    *,
    left_s: float,
    loads: tuple[LoadSpec, ...],
    server: Mapping[str, object] = MappingProxyType({}),
    **more: object,
) -> tuple[Rounds, SlowServer, dict[str, Path]]:
    model = tmp_path / "tiny.json"
    model.write_text(json.dumps(TINY))
    plan = Plan.model_validate(
        {"model": str(model), "dtype": "float32", "loads": loads, "budget_s": 60, **more}
    )
    setup = resolve_plan(plan)
    clock = VirtualClock()
    slow = SlowServer(clock, **server)  # type: ignore[arg-type]
    source = SimulatedSource(None, clock=clock, num_bytes=setup.load_bytes)  # type: ignore[arg-type]
    (scratch := tmp_path / "kvcross-test").mkdir()
    session = MeasurementSession(clock, source, scratch, 0.0, placement=slow)  # type: ignore[arg-type]
    rounds = _rounds_of(setup)
    return rounds, slow, write_chunk_files(rounds, setup, session, left_s=left_s, observer=SilentObserver())


def _rounds_of(setup: ResolvedPlan) -> Rounds:
    return Rounds(
        run=make_run(plan=setup.plan, series=setup.series),
        series=(("recompute", "recompute"), *(("load", load.name) for load in setup.loads)),
        allowed=setup.lengths or tuple(range(32, 2049, 32)),
        start_s=0.0,
        deadline_s=setup.plan.budget_s,
        costs=CostBook(lambda case: 1.0),
    )


def test_lengths_and_files_are_as_many_as_can_be_placed_in_three_tenths_of_what_is_left(
    tmp_path: Path,
) -> None:
    rounds, server, directories = prepare(tmp_path, left_s=100.0, loads=(S3,))
    # 30 s at 2 s for a chunk: 15 chunks, of 32 tokens each; one and two more found out what a chunk takes
    assert (rounds.allowed[0], rounds.allowed[-1]) == (32, 480)
    assert server.placed == [1, 2, 15]
    assert server.held == 15  # what was tried out is not left there
    assert ChunkStore.open(directories["s3/best"]).num_chunks == 15
    (notice,) = rounds.notices
    assert (notice.kind, notice.suspect) == ("files_cut", False)
    assert notice.text == (
        "0.00 of 0.01 GB of KV files were written, for that alone takes about 30 s here; prefixes end at 480 tokens for "
        "it, and they are read again sooner; "
        "a longer --budget makes room for more"
    )


def test_lengths_that_were_asked_for_are_written_though_they_take_longer_than_that(tmp_path: Path) -> None:
    rounds, server, _ = prepare(tmp_path, left_s=100.0, loads=(S3,), tokens=(64, 1024))
    assert rounds.allowed == (64, 1024)
    assert server.placed == [1, 2, 32]


def test_what_cannot_be_placed_within_the_budget_is_refused_with_the_budget_that_it_needs(
    tmp_path: Path,
) -> None:
    with pytest.raises(BudgetTooSmallError, match="about 32 s, 22 s are left") as caught:
        prepare(tmp_path, left_s=30.0, loads=(S3,), tokens=(64, 512))
    assert caught.value.needed_s == 107


def test_files_that_take_no_time_are_written_for_all_rounds(tmp_path: Path) -> None:
    rounds, _, directories = prepare(
        tmp_path, left_s=100.0, loads=(LoadSpec(chunk_tokens=32),), tokens=(64, 128), num_samples=3
    )
    assert ChunkStore.open(directories["posix/best"]).num_chunks == 4 * 2 * 3 * ROUNDS_PLANNED
    assert rounds.notices == []
    assert [path.name for path in (tmp_path / "kvcross-test").iterdir()] == ["store-0"]


def test_a_server_is_given_no_more_than_one_round_reads(tmp_path: Path) -> None:
    _, server, _ = prepare(tmp_path, left_s=10_000.0, loads=(S3,), tokens=(64,), num_samples=3)
    assert server.placed[-1] == 2 * 2 * 3


def test_memory_beside_a_drive_costs_neither_its_files_for_later_rounds(tmp_path: Path) -> None:
    loads = (LoadSpec(chunk_tokens=32), LoadSpec(backend="hostmem", chunk_tokens=32))
    rounds, _, _ = prepare(tmp_path, left_s=100.0, loads=loads, tokens=(64, 128), num_samples=3)
    (plan,) = plan_stores(resolve_plan(rounds.run.plan), tmp_path, longest=128)
    assert (plan.round_chunks, plan.num_chunks) == (48, 48 * ROUNDS_PLANNED)


def test_files_for_later_rounds_take_a_twentieth_of_what_is_left_and_are_not_missed_aloud(
    tmp_path: Path,
) -> None:
    rounds, _, _ = prepare(
        tmp_path, left_s=100.0, loads=(LoadSpec(chunk_tokens=32),), tokens=(64, 128), num_samples=3
    )
    (whole,) = plan_stores(resolve_plan(rounds.run.plan), tmp_path, longest=128)
    assert rounds.notices == []
    assert (whole.round_chunks, whole.num_chunks) == (24, 24 * ROUNDS_PLANNED)
    prices = {whole.geometry: FillPrice(7.0, 0.1)}
    (cut,) = cut_spare_to((whole,), prices, limit_s=3.0)
    assert cut.num_chunks == 24 + 30
    assert cut_spare_to((whole,), prices, limit_s=0.1 * (whole.num_chunks - 24)) == (whole,)
    assert cut_spare_to((cut,), prices, limit_s=0.0)[0].num_chunks == 24


def test_a_server_that_takes_nothing_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    loads = (LoadSpec(chunk_tokens=32), S3)
    rounds, _, directories = prepare(
        tmp_path, left_s=100.0, loads=loads, tokens=(64,), server={"fails": "no answer"}
    )
    assert rounds.series == (("recompute", "recompute"), ("load", "posix/best"))
    assert "posix/best" in directories
    assert [(notice.kind, notice.suspect, notice.text) for notice in rounds.notices] == [
        (
            "series_failed",
            True,
            "s3/best: its KV chunks could not be placed, so it was left out: no answer",
        )
    ]


def test_when_it_is_the_only_one_its_error_is_the_end(tmp_path: Path) -> None:
    with pytest.raises(KVIOError, match=r"^no answer$"):
        prepare(tmp_path, left_s=100.0, loads=(S3,), tokens=(64,), server={"fails": "no answer"})


def test_what_every_store_takes_is_charged_once_and_not_to_each_chunk(tmp_path: Path) -> None:
    rounds, server, _ = prepare(tmp_path, left_s=200.0, loads=(S3,), server={"fixed_s": 6.0})
    assert server.placed == [1, 2, 4, 27]  # 60 s, less 6 s, at 2 s for a chunk; two are too few to tell
    assert rounds.allowed[-1] == 864
    assert "takes about 60 s here" in rounds.notices[0].detail


def test_chunks_that_go_side_by_side_are_priced_by_twice_as_many_as_do(tmp_path: Path) -> None:
    slow = {"at_once": 4, "tried_s": 1.5, "later_s": 1.5}
    rounds, server, _ = prepare(tmp_path, left_s=60.0, loads=(S3,), server=slow)
    assert server.placed == [1, 2, 4, 8, 48]  # 18 s at 1.5 s for four
    assert rounds.allowed[-1] == 48 * 32


def test_what_outweighs_the_chunks_is_not_told_from_them_where_there_is_no_time_to(tmp_path: Path) -> None:
    _, server, _ = prepare(tmp_path, left_s=200.0, loads=(S3,), server={"fixed_s": 20.0})
    assert server.placed == [1, 2, 5]  # 12 s for each of two, as if it were theirs


def test_without_time_to_try_a_server_that_is_said_and_not_that_it_became_slower(tmp_path: Path) -> None:
    with pytest.raises(KVIOError, match="60 s leaves no time to measure the upload"):
        prepare(tmp_path, left_s=1.0, loads=(S3,))


def test_a_server_that_becomes_slower_than_it_was_when_tried_ends_with_the_time_for_the_files(
    tmp_path: Path,
) -> None:
    with pytest.raises(KVIOError) as caught:
        prepare(tmp_path, left_s=100.0, loads=(S3,), tokens=(64, 512), server={"later_s": 40.0})
    assert "server became slower" in str(caught.value)


def test_a_mooncake_store_of_the_users_is_tried_out_and_one_of_the_runs_own_is_not(tmp_path: Path) -> None:
    for name, options, tried in (("own", {}, []), ("user", {"master": "192.0.2.1:50051"}, [1, 2])):
        (tmp_path / name).mkdir()
        loads = (LoadSpec(backend="mooncake", chunk_tokens=32, options=options),)
        _, server, _ = prepare(
            tmp_path / name,
            left_s=1000.0,
            loads=loads,
            server={"reads": "mooncake/best"},
            tokens=(64,),
            num_samples=1,
        )
        assert server.placed == [*tried, 4]
