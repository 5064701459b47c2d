"""What breaks in mid-sweep: the other ways to load go on, and what was measured stays."""

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.measure.clock import VirtualClock
from bench.measure.conditions.header import open_record
from bench.measure.processes.messages import JobDone, SeriesFailed
from bench.measure.setup import resolve_plan
from bench.measure.sweep import SweepHooks, resume_sweep, run_sweep
from bench.record.atomic_write import WriteError
from bench.record.plan import LoadSpec, Plan
from bench.record.progress import End, Progress
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from kvio.backends.mooncake.mooncake_client import MooncakeAddress, StoreClient
from kvio.backends.s3.bucket import ObjectError
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.places import avoid_memory
from tests.helpers.scripted_rounds import ScriptedSource, SilentObserver, make_rounds, measure_rounds
from tests.helpers.servers import require_mooncake

MIB = 1 << 20


class Breaking(SilentObserver):
    """An observer that breaks something when the second round begins."""

    def __init__(self, damage: Callable[[], None]) -> None:
        super().__init__()
        self._damage = damage

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None:
        super().on_round(number, lengths)
        if number == 1:
            self._damage()


def three_rounds(progress: object) -> tuple[int, ...] | End:
    done: int = progress.rounds_done  # type: ignore[attr-defined]
    return (64,) if done < 3 else End("enough")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = avoid_memory(tmp_path) / "tiny.json"
    path.write_text(json.dumps(TINY))
    loads = tuple(
        LoadSpec(backend="posix", preset=preset, chunk_tokens=32) for preset in ("best", "mooncake")
    )
    return Plan(
        model=str(path),
        dtype="float32",
        tokens=(64,),
        loads=loads,
        num_samples=1,
        budget_s=300,
        working_set_bytes=32 * MIB,
    )


@pytest.mark.slow
def test_a_way_to_load_that_cannot_be_opened_any_more_is_left_out_and_the_others_go_on(
    plan: Plan, tmp_path: Path
) -> None:
    def lose_a_store() -> None:
        (store,) = tmp_path.glob("kvcross-*/store-1")
        store.rename(tmp_path / "lost")

    hooks = SweepHooks(policy=three_rounds, observer=Breaking(lose_a_store))
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=hooks)
    run, (samples, _) = read_run(folder), read_samples(folder)
    (said,) = (notice.text for notice in run.notices if notice.kind == "series_failed")
    lost = said.partition(":")[0]
    assert run.state == "complete"
    assert "was left out from then on: round 2: " in said
    assert {s.round for s in samples if s.case.series == lost} == {0}
    kept = {s.case.series for s in samples if s.round == 2 and s.case.arm == "load"}
    assert len(kept) == 1 and lost not in kept


def test_a_runs_own_store_that_is_gone_is_not_to_be_started_by_hand() -> None:
    require_mooncake()
    with pytest.raises(ObjectError) as caught:
        StoreClient(MooncakeAddress(), "127.0.0.1:1")
    assert str(caught.value) == (
        "Mooncake store of this run: Connection refused: the mooncake_master that it was started with is gone, "
        "and all that it held"
    )


@pytest.fixture
def limit_files() -> Iterator[Callable[[int], None]]:
    """Lets no file grow beyond so many bytes, as a full disk does: a row may get onto it in part."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda num_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_whole_rows_no_files_and_can_be_gone_on_with(
    plan: Plan, tmp_path: Path, limit_files: Callable[[int], None]
) -> None:
    results = tmp_path / "results"

    def fill_up() -> None:
        (path,) = results.glob("*/*/*/samples.csv")
        limit_files(path.stat().st_size + 300)  # one row, and a part of another

    hooks = SweepHooks(policy=three_rounds, observer=Breaking(fill_up))
    with pytest.raises(WriteError, match=r"cannot write results: .*: File too large") as caught:
        run_sweep(plan, root=results, data_dir=tmp_path, hooks=hooks)
    assert "\n" not in str(caught.value)
    (folder,) = results.glob("*/*/*")
    limit_files(resource.RLIM_INFINITY)
    before, notices = read_samples(folder)
    assert ({sample.round for sample in before}, notices) == ({0, 1}, ())
    assert {path.name for path in folder.iterdir()} == {"run.json", "samples.csv"}
    assert list(tmp_path.glob("kvcross-*")) == []
    hooks = SweepHooks(policy=three_rounds, observer=SilentObserver())
    resume_sweep(folder, data_dir=tmp_path, hooks=hooks)
    assert read_run(folder).state == "complete"
    assert read_samples(folder)[0][: len(before)] == before


def test_a_disk_that_is_full_from_the_beginning_leaves_no_folder(
    plan: Plan, tmp_path: Path, limit_files: Callable[[int], None]
) -> None:
    limit_files(100)
    opening = open_record(resolve_plan(plan), tmp_path / "results", tmp_path, other_runs=0)
    with pytest.raises(WriteError, match=r"cannot write results: .*: File too large"), opening:
        pass
    assert list(tmp_path.glob("results/**/*")) == []  # not even those for its model and machine


def test_a_folder_whose_disk_did_not_even_take_the_columns_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text("")
    assert read_samples(tmp_path, may_be_empty=True) == ([], ())
    (tmp_path / "samples.csv").write_text("round,ord")
    samples, notices = read_samples(tmp_path, may_be_empty=True)
    assert (samples, [notice.kind for notice in notices]) == ([], ["half_line"])


def test_the_policy_is_told_which_ways_to_load_are_left(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)
    rounds.series = (("recompute", "recompute"), ("load", "posix/best"), ("load", "s3/best"))
    told: list[tuple[str, ...]] = []

    def twice(progress: Progress) -> tuple[int, ...] | End:
        told.append(progress.loads)
        return progress.allowed if len(told) < 2 else End("enough")

    source = ScriptedSource(SeriesFailed("s3/best", "no answer"), JobDone())
    measure_rounds(rounds, source, tmp_path, clock=clock, policy=twice)
    assert told == [("posix/best", "s3/best"), ("posix/best",)]
