"""A sweep is gone on with only where its rounds and the new ones may be pooled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.estimate.next_lengths import choose_lengths
from bench.machine.software import compare_revisions, describe_software
from bench.measure.conditions.header import describe_machine_of, describe_storage_of
from bench.measure.resume import require_same
from bench.measure.setup import Setup, work_out
from bench.measure.sweep import Hands, resume_sweep, run_sweep
from bench.measure.tuning.tuning_rule import search_settings
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from bench.record.run import RunRecord, read_run, write_run
from tests.test_runner import Silent


@pytest.fixture(scope="module")
def setup() -> Setup:
    return work_out(Plan(model="qwen3-8b", device="cpu", tokens=(512,)))


@pytest.fixture
def run(setup: Setup, tmp_path: Path) -> RunRecord:
    """The header of a sweep that was begun here a moment ago, by a clean checkout."""
    software = {**describe_software().model_dump(mode="json"), "git": {"commit": "a" * 40, "dirty": False}}
    return RunRecord(
        run_id="r",
        started_utc="2026-01-01T00:00:00Z",
        plan=setup.plan,
        model_name="M",
        kv_bytes_per_token=setup.bytes_per_token,
        chunk_tokens=setup.chunk_tokens,
        machine=describe_machine_of(setup)[1],
        storage=describe_storage_of(setup, tmp_path),
        software=software,
    )


Change = Callable[[RunRecord], dict[str, Any]]


def _package(name: str, version: str) -> Change:
    return lambda run: {"software": {**run.software, "packages": {**run.software["packages"], name: version}}}


CHANGES: dict[str, tuple[Change, str]] = {
    "torch": (_package("torch", "1.0.0"), r"torch: 1\.0\.0, 2\."),
    "transformers": (_package("transformers", "4.0"), r"transformers: 4\.0, 5\."),
    "a reader that is gone": (_package("kvikio-cu12", "26.2"), r"kvikio-cu12: 26\.2, none"),
    "python": (lambda run: {"software": {**run.software, "python": "3.9.1"}}, r"python: 3\.9\.1, 3\."),
    "threads": (
        lambda run: {"software": {**run.software, "environment": {"OMP_NUM_THREADS": "77"}}},
        r"OMP_NUM_THREADS: 77, ",
    ),
    "kernel": (lambda run: {"machine": {**run.machine, "kernel_release": "2.4.1"}}, r"kernel: 2\.4\.1, "),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rounds_of_other_software_are_not_pooled(
    name: str, run: RunRecord, setup: Setup, tmp_path: Path
) -> None:
    change, says = CHANGES[name]
    with pytest.raises(PlanError, match=f"other software .then, now.: .*{says}") as caught:
        require_same(tmp_path, run.model_copy(update=change(run)), setup, tmp_path)
    assert "\n" not in str(caught.value)


def test_another_revision_of_the_code_goes_on_and_makes_the_answer_suspect(
    run: RunRecord, setup: Setup, tmp_path: Path
) -> None:
    (notice,) = require_same(tmp_path, run, setup, tmp_path)
    assert (notice.code, notice.suspect) == ("other_revision", True)
    assert "at aaaaaaaaaaaa, " in notice.message


def test_the_same_commit_is_the_same_code_unless_something_was_not_committed() -> None:
    def facts(commit: str, *, dirty: bool) -> dict[str, Any]:
        return {"packages": {"kvcross": "0.1"}, "git": {"commit": commit * 40, "dirty": dirty}}

    assert compare_revisions(facts("a", dirty=False), facts("a", dirty=False)) is None
    assert compare_revisions(facts("a", dirty=True), facts("a", dirty=True)) == (
        "0.1 at aaaaaaaaaaaa with uncommitted changes, 0.1 at aaaaaaaaaaaa with uncommitted changes"
    )
    assert compare_revisions(facts("a", dirty=False), facts("b", dirty=False)) == (
        "0.1 at aaaaaaaaaaaa, 0.1 at bbbbbbbbbbbb"
    )


def test_the_header_of_a_resumed_sweep_keeps_that_its_code_changed(tmp_path: Path) -> None:
    plan = Plan(
        model="qwen3-8b",
        tokens=(512, 2048),
        num_rounds=1,
        loads=(LoadSpec(backend="simulated"),),
        simulation=SimulationSpec(),
    )
    hands = Hands(policy=choose_lengths, search=search_settings, observer=Silent())
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hands=hands)
    begun = read_run(folder)
    changed = {**begun.software, "git": {"commit": "b" * 40, "dirty": False}}
    write_run(folder, begun.model_copy(update={"state": "interrupted", "software": changed}))
    resume_sweep(folder, data_dir=tmp_path, hands=hands)
    assert "other_revision" in {notice.code for notice in read_run(folder).notices}
