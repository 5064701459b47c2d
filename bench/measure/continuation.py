"""Whether a sweep can be gone on with here and now: rounds are pooled, so what decides times must be the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.measure.available import leave_out_unavailable
from bench.measure.header import describe_machine_of, describe_storage_of
from bench.measure.identity import compare_models
from bench.measure.machine import comparable
from bench.measure.plan import PlanError
from bench.measure.record import Notice, RunRecord
from bench.measure.setup import Setup
from bench.measure.software import compare_revisions, compare_software, describe_software


def require_same(folder: Path, run: RunRecord, setup: Setup, data_dir: Path) -> tuple[Notice, ...]:
    """What must be said of rounds measured from now on beside those of `run`.

    Raises:
        PlanError: a backend is gone, or model, machine, storage or software are others.
    """
    others = compare_models(run, setup)
    if others:
        raise PlanError(
            f"{folder} cannot be gone on with: {run.plan.model} is not what it was (then, now): {'; '.join(others)}; "
            "put back the files it was begun with, or sweep again"
        )
    _, missing = leave_out_unavailable(run.plan, data_dir)
    if missing:
        raise PlanError(f"{folder} cannot be gone on with: {missing[0].message}")
    _, machine = describe_machine_of(setup)
    storage = describe_storage_of(setup, data_dir)
    different = comparable(run.machine, machine)
    if run.storage.get("name") != storage.get("name"):
        different.append(f"storage: {run.storage.get('name')}, {storage.get('name')}")
    if different:
        raise PlanError(f"{folder} is of another machine or storage: {'; '.join(different)}")
    software = describe_software().model_dump(mode="json")
    if run.plan.simulation is None:
        _require_software(folder, _with_kernel(run.software, run.machine), _with_kernel(software, machine))
    changed = compare_revisions(run.software, software)
    if changed is None:
        return ()
    message = f"rounds of two revisions of kvcross are pooled: {changed}; sweep again to have one"
    return (Notice(code="other_revision", message=message),)


def _require_software(folder: Path, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    different = compare_software(one, other)
    if different:
        raise PlanError(
            f"{folder} was measured with other software (then, now): {'; '.join(different)}; "
            "go on with what it was begun with, or sweep again"
        )


def _with_kernel(software: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Software facts with what the machine's facts know of it: kernel and GPU drivers."""
    drivers = [[gpu.get("driver"), gpu.get("cuda_driver")] for gpu in machine.get("gpus") or ()]
    return {**software, "kernel": machine.get("kernel_release"), "GPU drivers": drivers}
