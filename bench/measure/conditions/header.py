"""The header of a sweep: what was asked, where it ran, and what was noticed on the way."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.machine.facts import MachineFacts, describe_machine, machine_slug
from bench.machine.software import describe_software
from bench.measure.conditions.fingerprint import digest_config, digest_weights
from bench.measure.conditions.header_notices import notice_company
from bench.measure.conditions.object_server import find_server, server_notices
from bench.measure.preflight import walk_lengths
from bench.measure.processes.device import see_device
from bench.measure.processes.messages import DeviceSeen
from bench.measure.setup import Setup
from bench.record.folder import create_folder, hold_folder, remove_folder
from bench.record.plan import Plan, PlanError
from bench.record.run import Notice, RunRecord, write_run
from kvio.evidence.storage_device import describe_storage


def describe_storage_of(setup: Setup, data_dir: Path) -> dict[str, Any]:
    """Facts of the drive under `data_dir`, and the limit that is set on it."""
    plan = setup.plan
    if plan.simulation is not None:
        return {"name": "a simulated drive"}
    limit = {} if plan.limit_bytes_per_s is None else {"limit_bytes_per_s": plan.limit_bytes_per_s}
    facts = describe_storage(data_dir).facts()
    servers = dict.fromkeys(server.name for load in setup.loads if (server := find_server(load)) is not None)
    if servers and all(find_server(load) for load in setup.loads):
        facts = {"name": "; ".join(servers), "placed_from": facts}
    elif servers:
        facts |= {"servers": list(servers)}
    return {**facts, **limit}


def describe_machine_of(setup: Setup) -> tuple[str, dict[str, Any]]:
    """Name for the folder, and facts; a simulated sweep says nothing of the machine it happens to run on.

    Raises:
        PlanError, MeasureError: the device that was asked for is not there.
    """
    plan = setup.plan
    if plan.simulation is not None:
        return "simulated", {"device_name": "a simulated device"}
    facts = describe_machine()
    seen = None if plan.device == "cpu" else see_device(plan)
    if seen is None or seen.gpu_name is None:
        _require_meant(plan, facts, seen)
        name = f"{facts.cpu_model} ({facts.usable_cores:g} cores)"
        facts = facts.model_copy(update={"gpus": ()})
        return machine_slug(facts), {"device_name": name, "devices": ["cpu"], **facts.model_dump(mode="json")}
    computing = {"device_name": seen.gpu_name, "devices": list(seen.devices)}
    return machine_slug(facts, seen.gpu_name), {**computing, **facts.model_dump(mode="json")}


def _require_meant(plan: Plan, facts: MachineFacts, seen: DeviceSeen | None) -> None:
    """Measure the CPU of a machine with a GPU only where that was asked for.

    Raises:
        PlanError: `auto` would take the CPU because this torch cannot use the GPU.
    """
    if seen is not None and facts.gpus:
        raise PlanError(
            f"device {plan.device}: {facts.gpus[0].name} is here, but torch {seen.torch_version} sees no GPU; "
            "try --device cpu to measure the CPU, or install a CUDA build of torch"
        )


@contextmanager
def open_record(
    setup: Setup, root: Path, data_dir: Path, *, other_runs: int, known: Sequence[Notice] = ()
) -> Iterator[tuple[RunRecord, Path]]:
    """A fresh result folder with its header, ours alone until the block ends.

    Args:
        other_runs: sweeps seen at work on the same drive.
        known: what was found before: of what cannot be measured, or not be proved.

    Raises:
        PlanError: `root` is not writable, or the device is not there.
        WriteError: it is full.
    """
    started = datetime.now(UTC)
    machine_name, machine = describe_machine_of(setup)
    try:
        run_id, folder = create_folder(
            root, model_name=setup.model.key, machine=machine_name, started=started
        )
    except OSError as error:
        raise PlanError(
            f"{root}: cannot write results here: {error.strerror}; name another folder with --results"
        ) from None
    with hold_folder(folder):
        try:
            run = _first_record(setup, data_dir, run_id=run_id, started=started, machine=machine)
            noticed = (*known, *run.notices, *notice_company(_busy_share(machine), other_runs))
            run = run.model_copy(update={"notices": noticed})
            write_run(folder, run)
        except BaseException:  # an interrupt too: without a header it is no result
            remove_folder(folder)
            raise
        yield run, folder


def _first_record(
    setup: Setup, data_dir: Path, *, run_id: str, started: datetime, machine: dict[str, Any]
) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        started_utc=started.isoformat(timespec="seconds"),
        plan=setup.plan,
        model_name=setup.model.name,
        model_digest=digest_config(setup.model),
        weights_digest=digest_weights(setup.plan.weights),
        kv_bytes_per_token=setup.bytes_per_token,
        kv_bytes_at={n: setup.bytes_at(n) for n in walk_lengths(setup.chunk_tokens, setup.most_tokens)},
        chunk_tokens=setup.chunk_tokens,
        series=setup.series,
        machine=machine,
        software=describe_software().model_dump(mode="json"),
        storage=describe_storage_of(setup, data_dir),
        notices=_first_notices(setup, machine),
        checks=_simulated_truth(setup),
    )


def _busy_share(machine: Mapping[str, Any]) -> float:
    share: float = machine.get("noise", {}).get("busy_share", 0.0)
    return share


def _simulated_truth(setup: Setup) -> dict[str, Any]:
    """C* without noise where the truth is known, or P* where the next tokens were asked for."""
    spec, suffix = setup.plan.simulation, setup.plan.suffix_tokens
    if spec is None:
        return {}
    (a, b, c), (load_a, load_b) = spec.recompute_s, spec.load_s
    # seconds of the next s tokens after n: b s + c (2 n s + s^2) against load_b s
    marginal, whole = [2 * c, b + c * suffix - load_b], [c, b - load_b, a - load_a]
    roots = np.roots(marginal if suffix else whole)
    crossings = sorted(float(root.real) for root in roots if abs(root.imag) < 1e-9 and root.real > 0)
    name = "marginal_crossover_tokens" if suffix else "crossover_tokens"
    return {"truth": {name: [round(root, 1) for root in crossings]}}


def _first_notices(setup: Setup, machine: Mapping[str, Any]) -> tuple[Notice, ...]:
    found = [
        Notice(code=code, message=f"{load.name}: {message}")
        for load in setup.loads
        for code, message in load.geometry.notices.items()
    ]
    found += [notice for load in setup.loads for notice in server_notices(load)]
    ranks, cores = setup.plan.tensor_parallel, machine.get("usable_cores")
    if cores is not None and machine.get("devices") == ["cpu"] and ranks > cores:
        message = f"{ranks} ranks share {cores:g} cores: they take turns where they should work at once"
        found.append(Notice(code="ranks_share_cores", message=message))
    return tuple(found)
