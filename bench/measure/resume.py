"""Resume a sweep: rounds of both parts are pooled, so everything that decides times must be the same."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine.facts import comparable
from bench.machine.software import compare_revisions, compare_software, describe_software
from bench.measure.conditions.fingerprint import compare_models
from bench.measure.conditions.header import describe_machine_of, describe_storage_of, failed_series
from bench.measure.setup import ResolvedPlan, drop_unavailable_backends
from bench.record.notices import SERIES_CHECK_FAILED, SERIES_FAILED, Notice
from bench.record.plan import Plan, PlanError
from bench.record.progress import End, Policy, Progress
from bench.record.run import RunRecord, read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples

# notices of what a resumed sweep tries again
TRIED_AGAIN = frozenset({"answer_unchecked", "scaling_unchecked", SERIES_FAILED, SERIES_CHECK_FAILED})


@dataclass(frozen=True, slots=True)
class NewLimits:
    """New limits of a resumed sweep; None keeps the old one."""

    budget_s: float | None = None  # seconds that it is to have in all
    precision: float | None = None  # of C*, relative

    def change(self, plan: Plan) -> Plan:
        """The plan of a sweep, with that end."""
        given = {"budget_s": self.budget_s, "precision": self.precision}
        changed = {name: value for name, value in given.items() if value is not None}
        return Plan.model_validate({**plan.model_dump(), **changed})


AS_BEFORE = NewLimits()


def read_unfinished(folder: Path, policy: Policy, until: NewLimits) -> tuple[RunRecord, list[Sample]]:
    """The header with the new limits, and the samples, of a sweep that can be resumed."""
    run = read_run(folder)
    begun = (folder / "samples.csv").exists()
    samples, notices = read_samples(folder, may_be_empty=True) if begun else ([], ())
    require_unfinished(folder, run, samples, policy=policy, until=until)
    plan = until.change(run.plan)
    return run.model_copy(update={"plan": plan, "notices": (*run.notices, *notices)}), samples


def require_unfinished(
    folder: Path, run: RunRecord, samples: Sequence[Sample], *, policy: Policy, until: NewLimits
) -> None:
    """Stop on a complete sweep that resuming would add neither samples nor a missing check to.

    Args:
        run, samples: as the folder holds them.
        policy: what would decide of the next round.
        until: what is to end it.

    Raises:
        PlanError: all is measured that was asked for, or neither budget nor precision ask for more than they did.
    """
    if run.state != "complete":
        return
    again = f"show its answer with: make report RESULTS={folder}"
    plan = until.change(run.plan)
    chosen = policy(_unlimited(run.model_copy(update={"plan": plan}), samples))
    open_yet = any(notice.kind in TRIED_AGAIN for notice in run.notices)
    if isinstance(chosen, End) and not chosen.wanted and not open_yet:
        raise PlanError(
            f"{folder}: this sweep is complete: {chosen.reason}; a longer --budget adds nothing; {again}"
        )
    if plan.budget_s <= run.plan.budget_s and plan.precision >= run.plan.precision:
        raise PlanError(
            f"{folder}: this sweep is complete, with a budget of {run.plan.budget_s:g} s; resume it with a longer "
            f"--budget; {again}"
        )


def _unlimited(run: RunRecord, samples: Sequence[Sample]) -> Progress:
    """How far a sweep has come, were time no matter; what broke counts, for it is tried again."""
    measured = sorted({sample.case.prefix_tokens for sample in samples if sample.case.arm != "gemm"})
    again = failed_series(run)
    return Progress(
        run=run,
        samples=samples,
        loads=tuple(
            name
            for name, info in run.series.items()
            if info.arm == "load" and (info.skipped is None or name in again)
        ),
        allowed=run.plan.tokens or tuple(measured) or (run.chunk_tokens,),
        cost_s={},
        rounds_done=1 + max((sample.round for sample in samples), default=-1),
        budget_left_s=math.inf,
        startup_s=0.0,
    )


def require_same(folder: Path, run: RunRecord, setup: ResolvedPlan, data_dir: Path) -> tuple[Notice, ...]:
    """Notices of the rounds that are measured from now on with those of `run`.

    Raises:
        PlanError: a backend is gone, or model, machine, storage or software are others.
    """
    others = compare_models(run, setup)
    if others:
        raise PlanError(
            f"cannot resume {folder}: model {run.plan.model} changed since the sweep started (was, is): "
            f"{'; '.join(others)}; restore the original files or start a new sweep"
        )
    _, missing = drop_unavailable_backends(run.plan, data_dir)
    if missing:
        raise PlanError(f"cannot resume {folder}: {missing[0].text}")
    _, machine = describe_machine_of(setup)
    storage = describe_storage_of(setup, data_dir)
    different = comparable(run.machine, machine)
    if run.storage.get("name") != storage.get("name"):
        different.append(f"storage: {run.storage.get('name')}, {storage.get('name')}")
    if different:
        raise PlanError(
            f"cannot resume {folder}: it is of another machine or storage: {'; '.join(different)}; start a new sweep"
        )
    software = describe_software().model_dump(mode="json")
    if run.plan.simulation is None:
        _require_software(folder, _with_kernel(run.software, run.machine), _with_kernel(software, machine))
    changed = compare_revisions(run.software, software)
    if changed is None:
        return ()
    message = f"rounds of two revisions of kvcross are pooled: {changed}; sweep again to have one"
    return (Notice(kind="other_revision", detail=message),)


def _require_software(folder: Path, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    different = compare_software(one, other)
    if different:
        raise PlanError(
            f"{folder} was measured with other software (then, now): {'; '.join(different)}; "
            "resume with the original software, or start a new sweep"
        )


def _with_kernel(software: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Software facts with what the machine's facts know of it: kernel and GPU drivers."""
    drivers = [[gpu.get("driver"), gpu.get("cuda_driver")] for gpu in machine.get("gpus") or ()]
    return {**software, "kernel": machine.get("kernel_release"), "GPU drivers": drivers}
