"""What the header of a sweep notices of its own files."""

from pathlib import Path

import pytest

from bench.arms.case import Case, Outcome
from bench.measure.clock import VirtualClock
from bench.measure.costs import CostBook
from bench.measure.notices import note_findings, notice_repeats
from bench.measure.plan import LoadSpec, Plan, SimulationSpec
from bench.measure.preflight import Findings
from bench.measure.record import Notice, Sample
from bench.measure.setup import work_out
from bench.measure.site import Site
from bench.measure.source import SimulatedSource
from bench.measure.stores import create_stores, plan_stores
from tests.sweeps import make_run


@pytest.mark.parametrize(("backend", "noticed"), [("posix", True), ("uring", True), ("hostmem", False)])
def test_only_bytes_read_from_files_may_have_come_from_a_cache_below(
    tmp_path: Path, backend: str, *, noticed: bool
) -> None:
    load = LoadSpec(backend=backend, chunk_tokens=1)
    setup = work_out(Plan(model="qwen3-0.6b", dtype="float32", num_samples=1, loads=(load,)))
    create_stores(setup, plan_stores(setup, tmp_path, longest=1))
    clock = VirtualClock()
    source = SimulatedSource(SimulationSpec(), clock=clock, num_bytes=setup.load_bytes)
    site = Site(clock, source, tmp_path, 0.0)
    read = Outcome(seconds=1.0, num_bytes=10**9)
    samples = [Sample(0, 0, 0, 0.0, Case("load", setup.loads[0].name, 1), read)]
    assert bool(notice_repeats(setup, site, samples)) == noticed


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
    wrong = Notice(code="wrong_answer", message="the right-answer check of posix/best fails: by 3")
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
