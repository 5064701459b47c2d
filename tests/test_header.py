"""What the header of a sweep notices of its own files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.arms.file_cursor import Taken
from bench.measure.budget import CostBook
from bench.measure.conditions.header import note_findings, notice_repeats
from bench.measure.preflight import Findings
from bench.measure.setup import work_out
from bench.measure.stores import create_stores, plan_stores
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan
from kvio.store.chunk_store import ChunkStore
from tests.sweeps import make_run


@pytest.mark.parametrize(("backend", "noticed"), [("posix", True), ("uring", True), ("hostmem", False)])
def test_only_bytes_read_from_files_may_have_come_from_a_cache_below(
    tmp_path: Path, backend: str, *, noticed: bool
) -> None:
    load = LoadSpec(backend=backend, chunk_tokens=1)
    setup = work_out(Plan(model="qwen3-0.6b", dtype="float32", num_samples=1, loads=(load,)))
    create_stores(setup, plan_stores(setup, tmp_path, longest=1))
    site: Any = SimpleNamespace(scratch=tmp_path)
    store = ChunkStore.open(tmp_path / "store-0")
    assert notice_repeats(setup, site, {tmp_path / "store-0": Taken(store.num_chunks)}) == ()
    again = {tmp_path / "store-0": Taken(store.num_chunks + 1)}
    assert bool(notice_repeats(setup, site, again)) == noticed


def test_a_series_whose_answer_there_was_no_time_to_check_is_named() -> None:
    setup = work_out(
        Plan(
            model="qwen3-0.6b",
            dtype="float32",
            layers="all",
            hybrid=True,
            loads=(LoadSpec(), LoadSpec(backend="uring"), LoadSpec(backend="null")),
        )
    )
    run = make_run(plan=setup.plan, series=setup.series, checks={})
    passed = {name: {"passed": True} for name in ("answer:posix/best", "answer:hybrid/posix/best")}
    noted = note_findings(run, Findings(CostBook(lambda case: 1.0), checks=passed))
    unchecked = [n for n in noted.notices if n.code == "answer_unchecked"]
    assert [(n.message.partition(":")[0], n.suspect) for n in unchecked] == [
        ("uring/best", True),
        ("hybrid/uring/best", True),
    ]
    again = note_findings(
        noted, Findings(CostBook(lambda case: 1.0))
    )  # a sweep gone on with has the checks of its beginning
    assert again.notices == noted.notices


def test_a_check_made_when_gone_on_with_takes_its_notice_back_and_leaves_those_of_other_checks() -> None:
    setup = work_out(Plan(model="qwen3-0.6b", dtype="float32", loads=(LoadSpec(), LoadSpec(backend="uring"))))
    wrong = Notice(code="wrong_answer", message="posix/best: the right-answer check fails: by 3")
    failed = {"answer:posix/best": {"passed": False}}
    begun = note_findings(
        make_run(plan=setup.plan, series=setup.series, checks={}),
        Findings(CostBook(lambda case: 1.0), checks=failed, notices=[wrong], refused={4096: "no memory"}),
    )
    codes = [notice.code for notice in begun.notices]
    assert codes == ["length_refused", "wrong_answer", "answer_unchecked"]
    passed = {"answer:uring/best": {"passed": True}}
    gone_on = note_findings(begun, Findings(CostBook(lambda case: 1.0), checks=passed))
    assert gone_on.notices == (wrong,)
    assert gone_on.checks == {**failed, **passed}
