"""The header of a sweep: what was asked, where it ran, and what was noticed on the way.

What a sweep says beside its numbers: of the machine it shares, of what its preflight found, of what was read again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms.file_cursor import CursorPosition
from bench.machine.facts import MachineFacts, describe_machine, machine_slug
from bench.machine.software import describe_software
from bench.measure.budget import walk_lengths
from bench.measure.conditions.fingerprint import digest_config, digest_weights
from bench.measure.conditions.object_server import find_server, server_notices
from bench.measure.preflight import Findings
from bench.measure.processes.device import ask_device
from bench.measure.processes.messages import DeviceSeen
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan, name_hybrid
from bench.measure.stores import count_reads
from bench.record.folder import create_folder, hold_folder, remove_folder
from bench.record.notices import SERIES_CHECK_FAILED, SERIES_FAILED, Notice, kind_of
from bench.record.plan import Plan, PlanError
from bench.record.run import RunRecord, SeriesInfo, write_run
from kvio.backends import find_backend
from kvio.evidence.storage_device import describe_storage

BUSY_SHARE = 0.25  # of all cores, above which timings are noise


def notice_other_work(busy_share: float, other_runs: int, *, when: str = "began") -> tuple[Notice, ...]:
    """Say so when others are at work on the machine: whatever is measured then is disturbed.

    Args:
        busy_share: of all cores, 0 to 1, taken by other work.
        other_runs: sweeps seen at work on the same drive.
        when: what the sweep did when they were seen.
    """
    found = []
    if busy_share > BUSY_SHARE:
        message = (
            f"other work took {busy_share:.0%} of the processor when the sweep {when}: expect wide intervals"
        )
        found.append(Notice(kind="busy_machine", detail=message))
    if other_runs:
        others = f"{other_runs} other sweep{'s' if other_runs > 1 else ''}"
        message = f"{others} used the same folder when this one {when}: each disturbs the other"
        found.append(Notice(kind="another_run", detail=message))
    return tuple(found)


def note_findings(run: RunRecord, findings: Findings) -> RunRecord:
    """The header with what the preflight found; each notice once, however often a sweep is resumed.

    What an earlier part said of things that this one finds out anew goes: it is said again if it is still true.
    """
    harness = {"startup_s": findings.startup_s, **run.harness}
    broken = {name: reason for load, reason in findings.failed.items() for name in (load, name_hybrid(load))}
    reasons = {**findings.skipped, **broken}
    series = {
        name: _skip(info, reasons.get(name)) if name in failed_series(run) | reasons.keys() else info
        for name, info in run.series.items()
    }
    refused = "; ".join(f"{length} tokens: {reason}" for length, reason in findings.refused.items())
    notices = [Notice(kind="length_refused", detail=refused)] if refused else []
    notices += _notice_broken(series, broken)
    checks = {**run.checks, **findings.checks}
    layers = findings.layers or run.built_layers
    unsaid = {name: info for name, info in series.items() if name not in broken}
    notices += [*findings.notices, *_notice_skipped(unsaid), *_notice_unchecked(run, series, checks)]
    if layers is not None and layers.scaled and "scaling" not in checks:
        message = "the error of scaling a few layers was not measured: the preflight had no time for it"
        notices.append(Notice(kind="scaling_unchecked", detail=f"{message}; a longer --budget gives it some"))
    kept = [notice for notice in run.notices if kind_of(notice.kind).lifetime == "run"]
    return run.model_copy(
        update={
            "series": series,
            "checks": checks,
            "built_layers": layers,
            "harness": harness,
            "notices": tuple(dict.fromkeys((*kept, *notices))),
        }
    )


def found_in_rounds(run: RunRecord) -> tuple[Notice, ...]:
    """Notices that rounds gave, which stand until a later part has measured again."""
    return tuple(n for n in run.notices if kind_of(n.kind).lifetime == "round")


def failed_series(run: RunRecord) -> set[str]:
    """Names of what broke in an earlier part: the next part tries it again."""
    kinds = {SERIES_FAILED, SERIES_CHECK_FAILED}
    return {notice.series for notice in run.notices if notice.kind in kinds and notice.series is not None}


def _skip(info: SeriesInfo, reason: str | None) -> SeriesInfo:
    """The series as skipped for `reason`; None: as one that is measured."""
    settings = {name: value for name, value in info.settings.items() if name != "skipped"}
    return info.model_copy(
        update={"settings": settings if reason is None else {**settings, "skipped": reason}}
    )


def _notice_broken(series: Mapping[str, SeriesInfo], reasons: Mapping[str, str]) -> list[Notice]:
    return [
        Notice(kind=SERIES_CHECK_FAILED, series=name, detail=f"its check failed: {reason}")
        for name, reason in reasons.items()
        if name in series
    ]


def _notice_skipped(series: Mapping[str, SeriesInfo]) -> list[Notice]:
    return [
        Notice(kind="series_skipped", series=name, detail=f"skipped: {info.skipped}")
        for name, info in series.items()
        if info.skipped is not None
    ]


def _notice_unchecked(
    run: RunRecord, series: Mapping[str, SeriesInfo], checks: Mapping[str, Any]
) -> list[Notice]:
    """One for each series that brings bytes in and whose logits check the preflight had no time for."""
    if run.plan.simulation is not None:
        return []
    loading = [
        name
        for name, info in series.items()
        if info.arm in {"load", "hybrid"} and info.skipped is None and _moves_bytes(info)
    ]
    message = "the preflight had no time for its logits check; increase --budget"
    return [
        Notice(kind="answer_unchecked", series=name, detail=message)
        for name in loading
        if f"answer:{name}" not in checks
    ]


def _moves_bytes(info: SeriesInfo) -> bool:
    backend = info.settings.get("backend")
    return backend is not None and find_backend(str(backend)).moves_bytes


def notice_repeats(
    setup: ResolvedPlan, session: MeasurementSession, taken: Mapping[Path, CursorPosition]
) -> tuple[Notice, ...]:
    """Say so where a file of this machine was read a second time, by whichever series.

    Args:
        taken: by the directory of a store, the files read since they were written: by samples, warm-ups and searches.
    """
    if session.scratch is None:
        return ()
    found = []
    for reads in count_reads(setup, session.scratch, taken):
        if reads.again and any(load.reads_files for load in reads.loads):
            message = (
                f"{reads.read_bytes / 1e9:.2f} GB were read from {reads.held_bytes / 1e9:.2f} GB of files; a "
                f"cache below this system's page cache, which no counter here sees, may have answered; "
                f"--working-set makes the files larger"
            )
            found += [
                Notice(kind="bytes_read_again", series=load.name, detail=message) for load in reads.loads
            ]
    return tuple(found)


def describe_storage_of(setup: ResolvedPlan, data_dir: Path) -> dict[str, Any]:
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


def describe_machine_of(setup: ResolvedPlan) -> tuple[str, dict[str, Any]]:
    """Name for the folder, and facts; a simulated sweep says nothing of the machine it happens to run on.

    Raises:
        PlanError, MeasureError: the device that was asked for is not there.
    """
    plan = setup.plan
    if plan.simulation is not None:
        return "simulated", {"device_name": "a simulated device"}
    facts = describe_machine()
    seen = None if plan.device == "cpu" else ask_device(plan)
    if seen is None or seen.gpu_name is None:
        _require_meant(plan, facts, seen)
        name = f"{facts.cpu_model} ({facts.usable_cores:g} cores)"
        facts = facts.model_copy(update={"gpus": ()})
        return machine_slug(facts), {"device_name": name, "devices": ["cpu"], **facts.model_dump(mode="json")}
    computing = {"device_name": seen.gpu_name, "devices": list(seen.devices)}
    return machine_slug(facts, seen.gpu_name), {**computing, **facts.model_dump(mode="json")}


def _require_meant(plan: Plan, facts: MachineFacts, seen: DeviceSeen | None) -> None:
    """Measure the CPU of a machine with a GPU only where that was asked for."""
    if seen is not None and facts.gpus:
        raise PlanError(
            f"device {plan.device}: {facts.gpus[0].name} is here, but torch {seen.torch_version} sees no GPU; "
            "try --device cpu to measure the CPU, or install a CUDA build of torch"
        )


@contextmanager
def open_record(
    setup: ResolvedPlan, root: Path, data_dir: Path, *, other_runs: int, known: Sequence[Notice] = ()
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
            noticed = (*known, *run.notices, *notice_other_work(_busy_share(machine), other_runs))
            run = run.model_copy(update={"notices": noticed})
            write_run(folder, run)
        except BaseException:  # an interrupt too: without a header it is no result
            remove_folder(folder)
            raise
        yield run, folder


def _first_record(
    setup: ResolvedPlan, data_dir: Path, *, run_id: str, started: datetime, machine: dict[str, Any]
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


def _simulated_truth(setup: ResolvedPlan) -> dict[str, Any]:
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


def _first_notices(setup: ResolvedPlan, machine: Mapping[str, Any]) -> tuple[Notice, ...]:
    found = [
        Notice(kind=code, series=load.name, detail=message)
        for load in setup.loads
        for code, message in load.geometry.notices.items()
    ]
    found += [notice for load in setup.loads for notice in server_notices(load)]
    ranks, cores = setup.plan.tensor_parallel, machine.get("usable_cores")
    if cores is not None and machine.get("devices") == ["cpu"] and ranks > cores:
        message = f"{ranks} ranks share {cores:g} cores: they take turns where they should work at once"
        found.append(Notice(kind="ranks_share_cores", detail=message))
    return tuple(found)
