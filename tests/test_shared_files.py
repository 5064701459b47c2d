"""Series of equal geometry read the same files: together they walk through them once, over the whole run."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.arms.file_cursor import Taken
from bench.arms.load import LoadArm
from bench.measure.clock import VirtualClock
from bench.measure.conditions.header import notice_repeats
from bench.measure.processes.messages import JobDone, JobFailed, SampleTaken, SettingFound
from bench.measure.rounds import MeasureError, plan_round
from bench.measure.setup import Setup, work_out
from bench.measure.stores import create_stores, plan_stores
from bench.measure.tuning.tuning_search import _carry_out as carry_out
from bench.measure.worker.model_session import files_taken, make_arms, open_workbench
from bench.record.plan import LoadSpec, Plan
from bench.record.read_setting import SettingSearch
from bench.record.sample import Case, Outcome, Sample
from kvio.store.chunk_store import ChunkStore
from tests.test_cli import TINY
from tests.test_runner import Scripted, _rounds, _run
from tests.tiny_configs import TINY_CONFIGS

BOTH = ("posix", "hostmem")


def set_up(tmp_path: Path, config: dict[str, object] = TINY, backends: tuple[str, ...] = BOTH) -> Setup:
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    loads = tuple(LoadSpec(backend=backend, chunk_tokens=32, num_threads=4) for backend in backends)
    return work_out(
        Plan(
            model=str(tmp_path / "tiny.json"),
            dtype="float32",
            loads=loads,
            num_samples=3,
            device="cpu",
            num_rounds=1,
        )
    )


def test_there_are_files_for_each_series_that_reads_them(tmp_path: Path) -> None:
    linear = TINY_CONFIGS["qwen3_next"] | {"model_type": "qwen3_next"}
    (alone,) = plan_stores(set_up(tmp_path, backends=("posix",)), tmp_path, longest=64)
    (plan,) = plan_stores(set_up(tmp_path), tmp_path, longest=64)
    assert (alone.num_chunks, plan.num_chunks) == (2 * 2 * 3, 2 * 2 * 3 * 2)
    setup = set_up(tmp_path, linear)
    stores = create_stores(setup, plan_stores(setup, tmp_path, longest=64))
    assert ChunkStore.open(stores["posix/best"]).num_states == 2 * 3


def test_neighbours_never_read_the_same_file_and_go_on_where_the_run_has_come_to(tmp_path: Path) -> None:
    setup = set_up(tmp_path)
    stores = create_stores(setup, plan_stores(setup, tmp_path, longest=64))
    (directory,) = set(stores.values())
    bench = open_workbench(setup, layers=(0,), longest=64, now_s=time.monotonic, seed=0)
    arms = make_arms(
        bench,
        capacity_tokens=64,
        store_dirs=stores,
        taken={directory: Taken(7)},
        seed=0,
        series=set(stores),
    )
    try:
        read = []
        for name in stores:
            arm = arms[name]
            assert isinstance(arm, LoadArm)
            read.append(arm.reading.prepare(Case("load", name, 64)).chunk_ids)
        assert read == [(7, 8), (9, 10)]
        assert files_taken(arms, stores) == {directory: Taken(11)}
    finally:
        for arm in arms.values():
            arm.close()


def test_a_file_read_a_second_time_is_said_whatever_read_it_and_never_before(tmp_path: Path) -> None:
    setup = set_up(tmp_path, TINY_CONFIGS["qwen3_next"] | {"model_type": "qwen3_next"})
    create_stores(setup, plan_stores(setup, tmp_path, longest=64))
    directory, site = tmp_path / "store-0", SimpleNamespace(scratch=tmp_path)
    store = ChunkStore.open(directory)

    def notices(taken: Taken) -> list[str]:
        return [notice.message for notice in notice_repeats(setup, site, {directory: taken})]  # type: ignore[arg-type]

    assert notices(Taken(store.num_chunks, store.num_states)) == []
    assert len(notices(Taken(store.num_chunks, store.num_states + 1))) == 1
    (message,) = notices(Taken(store.num_chunks + 1))
    assert message.startswith("posix/best, hostmem/best: 0.00 GB were read from 0.00 GB of files; ")


def test_the_next_round_goes_on_where_a_search_and_an_interrupted_round_have_come_to(tmp_path: Path) -> None:
    found = SettingFound("posix/best", SettingSearch(reason="none"), taken={tmp_path: Taken(9)})
    sample = Sample(0, 0, 0, 0.0, Case("load", "posix/best", 100), Outcome(1.0))
    taken = SampleTaken(sample, 1.0, {tmp_path: Taken(13, 1)})
    clock = VirtualClock()
    rounds = _rounds(clock, budget_s=60.0)
    rounds.store_dirs = {"posix/best": tmp_path}
    site: Any = SimpleNamespace(clock=clock, source=Scripted(found, JobDone()))
    carry_out(["posix/best"], rounds, site, limit_s=1.0, decide=None)  # type: ignore[arg-type]
    assert rounds.taken == {tmp_path: Taken(9)}
    with pytest.raises(MeasureError):
        _run(rounds, Scripted(taken, JobFailed("it broke")), tmp_path, clock)
    job = plan_round(rounds, (100,), left_s=1e6)
    assert job is not None
    assert job.taken == {tmp_path: Taken(13, 1)}
