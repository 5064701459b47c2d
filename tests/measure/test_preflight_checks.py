"""Which checks a preflight makes."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from bench.arms.file_cursor import CursorPosition
from bench.measure.budget import CostBook
from bench.measure.clock import MonotonicClock, VirtualClock
from bench.measure.conditions.header import note_findings
from bench.measure.preflight import Findings
from bench.measure.processes.messages import (
    CheckDone,
    JobFailed,
    Message,
    PreflightJob,
    SearchJob,
    SeriesFailed,
    SettingFound,
)
from bench.measure.rounds import Rounds
from bench.measure.session import MeasurementSession
from bench.measure.setup import LoadSeries, resolve_plan
from bench.measure.stores import create_stores, plan_stores
from bench.measure.tuning.tuning_search import find_settings, plan_search
from bench.measure.worker import preflight_checks
from bench.measure.worker.model_session import ModelSession, open_model_session
from bench.measure.worker.preflight_checks import NUM_PROBES, compare_rates, run_preflight_checks
from bench.measure.worker.tuning_reads import search_all
from bench.record.plan import LoadSpec, Plan
from bench.record.sample import Case, Outcome
from kvio.errors import KVIOError
from kvio.loading.blocks import POISON, KVBlocks
from kvio.store.chunk_store import ChunkStore
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.scripted_rounds import SilentObserver
from tests.helpers.sweeps import make_run
from tests.measure.test_tuning_search import MIB, WIDE

ALL = frozenset({"dtype", "answer:posix/best", "answer:uring/best", "answer:hybrid/posix/best", "null"})


@pytest.mark.parametrize(
    "checked",
    [
        frozenset(),
        frozenset({"dtype"}),
        frozenset({"dtype", "answer:posix/best", "answer:hybrid/posix/best"}),
        ALL | {"answer:hybrid/uring/best"},
    ],
    ids=["begun", "no time for any", "no time for the last", "all made"],
)
def test_only_checks_that_no_earlier_part_has_made_are_made(tmp_path: Path, checked: frozenset[str]) -> None:
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(TINY))
    loads = (LoadSpec(chunk_tokens=32), LoadSpec(backend="uring", chunk_tokens=32))
    plan = Plan(
        model=str(config), dtype="float32", device="cpu", layers="all", tokens=(64,), loads=loads, hybrid=True
    )
    job = PreflightJob(plan, (64,), 1.0, 1e12, tmp_path, checked=checked)
    made = {done.name for done in run_preflight_checks(job, MonotonicClock()) if isinstance(done, CheckDone)}
    assert made == (ALL | {"answer:hybrid/uring/best"}) - checked | {"dtype"}  # rates are of this process


class Disturbed:
    """Products of 100 FLOP/s in float32 and 20 in bfloat16, a tenth of it in four turns of five."""

    turn = 0

    def __init__(self, shapes: object, *, dtype: torch.dtype, **_: object) -> None:
        self._rate = 100.0 if dtype == torch.float32 else 20.0

    def warm_up(self, case: Case) -> None: ...

    def close(self) -> None: ...

    def run(self, case: Case) -> Outcome:
        Disturbed.turn += 1
        rate = self._rate if Disturbed.turn // 2 % 5 == 0 else self._rate / 10
        return Outcome(seconds=1.0, flops_per_s=rate)


def test_other_work_on_the_machine_changes_neither_the_rates_of_dtypes_nor_their_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(TINY))
    setup = resolve_plan(Plan(model=str(config), dtype="bfloat16", device="cpu", layers="all"))
    bench = open_model_session(setup, layers=(0, 1), longest=64, now_s=lambda: 0.0, seed=0)
    monkeypatch.setattr("bench.measure.worker.preflight_checks.GemmArm", Disturbed)
    assert compare_rates(bench) == {"bfloat16": 20.0, "float32": 100.0}
    assert Disturbed.turn == 2 * NUM_PROBES


LOADS = (LoadSpec(chunk_tokens=32), LoadSpec(backend="hostmem", chunk_tokens=32))


def plan_of(tmp_path: Path, config: dict[str, object], **more: object) -> Plan:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(config))
    asked = {"model": str(path), "dtype": "float32", "loads": LOADS, "layers": "all", **more}
    return Plan.model_validate(asked)


@pytest.fixture
def check_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Message]]:
    """Carries the preflight out while the checks of some series break; its messages about series."""

    def check(*broken: str, loads: tuple[LoadSpec, ...] = LOADS) -> list[Message]:
        def check_answer(bench: object, load: LoadSeries, tokens: int, scratch: Path) -> CheckDone:
            if load.name in broken:
                raise KVIOError(f"{load.name} is gone")
            return CheckDone(f"answer:{load.name}", {"passed": True})

        monkeypatch.setattr("bench.measure.worker.logits_checks._check_answer", check_answer)
        plan = plan_of(tmp_path, TINY, loads=loads)
        job = PreflightJob(plan, (32,), case_limit_s=60, deadline_s=1e9, scratch_dir=tmp_path)
        messages = preflight_checks.run_preflight_checks(job, MonotonicClock())
        return [m for m in messages if isinstance(m, SeriesFailed) or getattr(m, "name", "")[:6] == "answer"]

    return check


def test_a_series_that_breaks_in_its_check_is_left_out_and_the_others_are_checked(
    check_with: Callable[..., list[Message]],
) -> None:
    assert check_with("posix/best") == [
        SeriesFailed("posix/best", "posix/best is gone"),
        CheckDone("answer:hostmem/best", {"passed": True}),
    ]


def test_when_all_break_in_their_checks_the_last_error_is_the_end(
    check_with: Callable[..., list[Message]],
) -> None:
    with pytest.raises(KVIOError, match=r"^hostmem/best is gone$"):
        check_with("posix/best", "hostmem/best")
    with pytest.raises(KVIOError, match=r"^posix/best is gone$"):
        check_with("posix/best", loads=LOADS[:1])


def test_what_broke_in_the_preflight_is_suspect_and_neither_searched_nor_called_unchecked(
    tmp_path: Path,
) -> None:
    setup = resolve_plan(plan_of(tmp_path, TINY, hybrid=True))
    run = make_run(plan=setup.plan, series=setup.series, checks={})
    passed = {name: {"passed": True} for name in ("answer:posix/best", "answer:hybrid/posix/best")}
    findings = Findings(CostBook(lambda case: 1.0), checks=passed, failed={"hostmem/best": "no memory"})
    noted = note_findings(run, findings)
    assert [(notice.kind, notice.suspect, notice.series) for notice in noted.notices] == [
        ("series_check_failed", True, "hostmem/best"),
        ("series_check_failed", True, "hybrid/hostmem/best"),
    ]
    assert [name for name, info in noted.series.items() if info.skipped] == [
        "hostmem/best",
        "hybrid/hostmem/best",
    ]
    again = note_findings(
        noted, Findings(CostBook(lambda case: 1.0), checks=passed)
    )  # gone on with: tried again
    assert not any(info.skipped for info in again.series.values())
    assert [(notice.kind, notice.series) for notice in again.notices] == [
        ("answer_unchecked", "hostmem/best"),
        ("answer_unchecked", "hybrid/hostmem/best"),
    ]
    assert plan_search(noted, setup, []).series == ("posix/best",)


def test_a_search_over_damaged_files_keeps_the_layouts_own_values_and_the_next_is_searched(
    tmp_path: Path,
) -> None:
    loads = (LoadSpec(chunk_tokens=256), LoadSpec(chunk_tokens=512))
    plan = plan_of(tmp_path, WIDE, loads=loads[:1], working_set_bytes=64 * MIB, num_rounds=1)
    setup = resolve_plan(plan)
    stores = create_stores(setup, plan_stores(setup, tmp_path, longest=512))
    for path in stores["posix/best"].glob("chunk-*.kv"):
        with path.open("r+b") as stream:
            stream.write(b"damaged!")
    clock = MonotonicClock()
    (found,) = search_all(SearchJob(plan, stores, 512, clock.now_s() + 60), clock)
    assert isinstance(found, SettingFound)
    assert (found.broke, found.search.chosen) == (True, None)
    assert found.search.reason.startswith("the search failed: ")
    assert found.search.reason.endswith("wrong chunk, wrong place, or damaged")


class Failing:
    """A source whose process dies."""

    def run(self, job: object) -> Iterator[Message]:
        yield JobFailed("the measuring process was killed (out of memory?)")

    def close(self) -> None: ...


def test_a_search_that_dies_is_suspect_and_does_not_end_the_sweep(tmp_path: Path) -> None:
    setup = resolve_plan(plan_of(tmp_path, WIDE))
    stores = create_stores(setup, plan_stores(setup, tmp_path, longest=512))
    (directory,) = set(stores.values())
    rounds = Rounds(
        run=make_run(plan=setup.plan, series=setup.series, kv_bytes_per_token=32 * 1024),
        series=(
            ("recompute", "recompute"),
            ("load", "posix/best"),
        ),  # the other was left out while it was placed
        allowed=(1024,),
        start_s=0.0,
        deadline_s=60.0,
        costs=CostBook(lambda case: 1.0),
        store_dirs=stores,
        taken={directory: CursorPosition(chunks=3, states=1000)},
    )
    session = MeasurementSession(VirtualClock(), Failing(), tmp_path, 0.0)
    search = plan_search(rounds.run, setup, [])
    assert search.series == ("posix/best", "hostmem/best")
    run = find_settings(search, rounds, session, observer=SilentObserver())
    reason = "the search failed: the measuring process was killed (out of memory?)"
    assert {name: (one.chosen, one.reason) for name, one in run.searches.items()} == {
        "posix/best": (None, reason)
    }
    assert [(notice.kind, notice.suspect, notice.text) for notice in run.notices] == [
        ("search_failed", True, f"posix/best: {reason}")
    ]
    # it may have read every file before it died
    assert rounds.taken == {directory: CursorPosition(ChunkStore.open(directory).num_chunks, 1000)}


@pytest.fixture
def bench(tmp_path: Path) -> ModelSession:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    setup = resolve_plan(Plan(model=str(path), dtype="float32", device="cpu", layers="all"))
    return open_model_session(setup, layers=(0, 1), longest=64, now_s=time.monotonic, seed=0)


def test_blocks_that_recompute_and_first_token_step_use_were_written_before(
    bench: ModelSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[KVBlocks] = []

    def make_empty(layout: object, tokens: int, device: torch.device) -> KVBlocks:
        blocks = KVBlocks(bench.layout, tokens, device)
        for tensor in (*blocks.groups, blocks.state):
            tensor.zero_()  # what pages read as that nobody has written
        made.append(blocks)
        return blocks

    monkeypatch.setattr("bench.measure.worker.model_session.KVBlocks", make_empty)
    prefill = bench.prefill(64)
    assert prefill.blocks is made[0]
    assert all(bool((group == POISON).all()) for group in prefill.blocks.groups)
    assert all(group.shape[1] == 64 for group in prefill.blocks.groups)
