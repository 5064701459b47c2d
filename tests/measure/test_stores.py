"""What is placed to find out what that takes is taken back at once."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.arms.file_cursor import CursorPosition
from bench.arms.load import LoadArm
from bench.measure.clock import VirtualClock
from bench.measure.conditions.header import notice_repeats
from bench.measure.processes.messages import JobDone, JobFailed, SampleTaken, SettingFound
from bench.measure.rounds import MeasureError, plan_round
from bench.measure.setup import ResolvedPlan, resolve_plan
from bench.measure.stores import ChunkPlacement, chunks_at_once, create_stores, most_tokens, plan_stores
from bench.measure.tuning.tuning_search import _carry_out as carry_out
from bench.measure.worker.model_session import files_taken, make_arms, open_model_session
from bench.record.plan import LoadSpec, Plan, PlanError
from bench.record.read_setting import SettingSearch
from bench.record.sample import Case, Outcome, Sample
from kvio.backends.mooncake.mooncake_client import read_mooncake, shared_client
from kvio.backends.mooncake.mooncake_placement import Keys
from kvio.errors import KVIOError
from kvio.layout.planes import KVLayout, Plane
from kvio.store.chunk_store import ChunkStore
from kvio.store.scratch import open_scratch
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.scripted_rounds import ScriptedSource, SilentObserver, make_rounds, measure_rounds
from tests.helpers.servers import shared_mooncake
from tests.helpers.tiny_configs import TINY_CONFIGS


def test_what_was_placed_for_now_is_gone_afterwards_and_the_rest_stays(tmp_path: Path) -> None:
    options = {**shared_mooncake().options, "prefix": f"test/{tmp_path.name}"}
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    loads = (LoadSpec(backend="mooncake", chunk_tokens=32, options=options),)
    setup = resolve_plan(Plan(model=str(tmp_path / "tiny.json"), dtype="float32", loads=loads, num_samples=1))
    client = shared_client(read_mooncake(options), options["master"])
    with open_scratch(tmp_path) as scratch:
        placement = ChunkPlacement(setup.loads, scratch)
        placement.begin()
        stores = create_stores(setup, plan_stores(setup, scratch, longest=32))
        (path,) = stores["mooncake/best"].glob("chunk-000000*")
        key = Keys(options["prefix"], None).find(path, 0, size_bytes=path.stat().st_size).key
        with placement.placed_for_now(stores, SilentObserver(), before_each=lambda: None) as failed:
            assert failed == {}
            assert client.size_bytes(key) == path.stat().st_size
        assert client.size_bytes(key) is None
        assert placement.place(stores, SilentObserver(), before_each=lambda: None) == {}
        assert client.size_bytes(key) == path.stat().st_size
        assert placement.withdraw() == ()
        assert client.size_bytes(key) is None


def test_placing_ends_with_what_is_raised_before_a_file(tmp_path: Path) -> None:
    options = {**shared_mooncake().options, "prefix": f"test/{tmp_path.name}"}
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    loads = (LoadSpec(backend="mooncake", chunk_tokens=32, options=options),)
    setup = resolve_plan(Plan(model=str(tmp_path / "tiny.json"), dtype="float32", loads=loads, num_samples=1))
    asked: list[int] = []

    def before_each() -> None:
        asked.append(len(asked))
        if len(asked) == 3:
            raise KVIOError("no time is left")

    with open_scratch(tmp_path) as scratch:
        placement = ChunkPlacement(setup.loads, scratch)
        placement.begin()
        stores = create_stores(setup, plan_stores(setup, scratch, longest=128))
        failed = placement.place(stores, SilentObserver(), before_each=before_each)
        assert [str(error) for error in failed.values()] == ["no time is left"]
        assert asked == [0, 1, 2]
        assert placement.withdraw() == ()


def set_up(tmp_path: Path, config: dict[str, object] = TINY, **more: object) -> ResolvedPlan:
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    loads = (LoadSpec(chunk_tokens=32),)
    plan = {"model": str(tmp_path / "tiny.json"), "dtype": "float32", "loads": loads, **more}
    return resolve_plan(Plan.model_validate(plan))


def test_the_bytes_of_a_suffix_have_the_states_at_its_end(tmp_path: Path) -> None:
    setup = set_up(tmp_path, TINY_CONFIGS["qwen3_next"] | {"model_type": "qwen3_next"}, suffix_tokens=64)
    layout = setup.layout
    assert layout.state_bytes > 0
    assert setup.load_bytes(32, 64) == 64 * layout.bytes_per_token + layout.state_bytes
    assert setup.load_bytes(32, 0) == 32 * layout.bytes_per_token + layout.state_bytes


def test_a_window_that_is_full_moves_on_by_the_tokens_of_the_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed = KVLayout((Plane(0, "k", 8, window_tokens=16), Plane(1, "k", 8)))
    monkeypatch.setattr("bench.catalog.models.geometry.Geometry.layout", lambda *_: windowed)
    assert set_up(tmp_path).load_bytes(320, 64) == 16 * 8 + 64 * 8


def test_a_sample_reads_the_chunks_of_the_suffix_alone(tmp_path: Path) -> None:
    setup = set_up(tmp_path, suffix_tokens=64)
    geometry = setup.loads[0].geometry
    assert [chunks_at_once(setup, geometry, tokens) for tokens in (32, 1024, 1030)] == [2, 2, 3]
    assert chunks_at_once(set_up(tmp_path), geometry, 1024) == 32


def test_files_are_those_of_the_suffix_for_every_length_of_a_round_however_long_the_prefix(
    tmp_path: Path,
) -> None:
    asked = {"suffix_tokens": 64, "tokens": (64, 512, 1024), "num_samples": 3, "num_rounds": 1}
    (plan,) = plan_stores(set_up(tmp_path, **asked), tmp_path, longest=1024)
    assert (plan.least_chunks, plan.num_chunks) == (3, 3 * 2 * 3)  # least: where it begins in mid-chunk
    chosen = set_up(tmp_path, suffix_tokens=64, num_samples=3, num_rounds=1)
    assert plan_stores(chosen, tmp_path, longest=1024)[0].num_chunks == 6 * 2 * 3  # 32, 64 ... 1024


def test_a_prefix_is_as_long_as_the_model_allows_where_only_a_suffix_is_read(tmp_path: Path) -> None:
    chunk_bytes = set_up(tmp_path).loads[0].geometry.padded_bytes
    room = {"suffix_tokens": 64, "working_set_bytes": 3 * chunk_bytes}
    setup = set_up(tmp_path, **room)
    assert most_tokens(setup, tmp_path / "scratch") == setup.most_tokens - 64
    assert plan_stores(setup, tmp_path, longest=setup.most_tokens - 64)[0].num_chunks == 3
    with pytest.raises(
        PlanError, match="does not hold the 3 chunks of 32 tokens that a suffix of 64 may take"
    ):
        most_tokens(set_up(tmp_path, **{**room, "working_set_bytes": 2 * chunk_bytes}), tmp_path / "scratch")


BOTH = ("posix", "hostmem")


def set_up_of_shared_files(
    tmp_path: Path, config: dict[str, object] = TINY, backends: tuple[str, ...] = BOTH
) -> ResolvedPlan:
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    loads = tuple(LoadSpec(backend=backend, chunk_tokens=32, num_threads=4) for backend in backends)
    return resolve_plan(
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
    (alone,) = plan_stores(set_up_of_shared_files(tmp_path, backends=("posix",)), tmp_path, longest=64)
    (plan,) = plan_stores(set_up_of_shared_files(tmp_path), tmp_path, longest=64)
    assert (alone.num_chunks, plan.num_chunks) == (2 * 2 * 3, 2 * 2 * 3 * 2)
    setup = set_up_of_shared_files(tmp_path, linear)
    stores = create_stores(setup, plan_stores(setup, tmp_path, longest=64))
    assert ChunkStore.open(stores["posix/best"]).num_states == 2 * 3


def test_neighbours_never_read_the_same_file_and_go_on_where_the_run_has_come_to(tmp_path: Path) -> None:
    setup = set_up_of_shared_files(tmp_path)
    stores = create_stores(setup, plan_stores(setup, tmp_path, longest=64))
    (directory,) = set(stores.values())
    bench = open_model_session(setup, layers=(0,), longest=64, now_s=time.monotonic, seed=0)
    arms = make_arms(
        bench,
        capacity_tokens=64,
        store_dirs=stores,
        taken={directory: CursorPosition(7)},
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
        assert files_taken(arms, stores) == {directory: CursorPosition(11)}
    finally:
        for arm in arms.values():
            arm.close()


def test_a_file_read_a_second_time_is_said_whatever_read_it_and_never_before(tmp_path: Path) -> None:
    setup = set_up_of_shared_files(tmp_path, TINY_CONFIGS["qwen3_next"] | {"model_type": "qwen3_next"})
    create_stores(setup, plan_stores(setup, tmp_path, longest=64))
    directory, session = tmp_path / "store-0", SimpleNamespace(scratch=tmp_path)
    store = ChunkStore.open(directory)

    def notices(taken: CursorPosition) -> list[str]:
        return [notice.text for notice in notice_repeats(setup, session, {directory: taken})]  # type: ignore[arg-type]

    assert notices(CursorPosition(store.num_chunks, store.num_states)) == []
    assert len(notices(CursorPosition(store.num_chunks, store.num_states + 1))) == 2
    one, other = notices(CursorPosition(store.num_chunks + 1))
    assert one.startswith("posix/best: 0.00 GB") and other.startswith("hostmem/best: 0.00 GB")


def test_the_next_round_goes_on_where_a_search_and_an_interrupted_round_have_come_to(tmp_path: Path) -> None:
    found = SettingFound("posix/best", SettingSearch(reason="none"), taken={tmp_path: CursorPosition(9)})
    sample = Sample(0, 0, 0, 0.0, Case("load", "posix/best", 100), Outcome(1.0))
    taken = SampleTaken(sample, 1.0, {tmp_path: CursorPosition(13, 1)})
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)
    rounds.store_dirs = {"posix/best": tmp_path}
    session: Any = SimpleNamespace(clock=clock, source=ScriptedSource(found, JobDone()))
    carry_out(["posix/best"], rounds, session, limit_s=1.0)
    assert rounds.taken == {tmp_path: CursorPosition(9)}
    with pytest.raises(MeasureError):
        measure_rounds(rounds, ScriptedSource(taken, JobFailed("it broke")), tmp_path, clock=clock)
    job = plan_round(rounds, (100,), left_s=1e6)
    assert job is not None
    assert job.taken == {tmp_path: CursorPosition(13, 1)}
