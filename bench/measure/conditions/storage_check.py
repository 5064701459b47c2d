"""Check before a sweep whether cold or direct reads can be verified in the data directory."""

from pathlib import Path

from bench.measure.setup import ResolvedPlan
from bench.record.notices import Notice, kind_of
from bench.record.plan import PlanError
from kvio.evidence.cold_evidence import read_counters
from kvio.evidence.storage_device import Storage, describe_storage
from kvio.store.store_files import os_errors_as_store_errors

TRY_DISK = "try --data-dir FOLDER on a local disk"


def check_cold_reads(setup: ResolvedPlan, data_dir: Path) -> tuple[Notice, ...]:
    """A notice when no sample of the series that read files can count, whatever is measured.

    Args:
        setup: what is to be measured.
        data_dir: where the files will lie; no notice where it does not exist.

    Raises:
        PlanError: every series reads files, and there they never leave memory.
    """
    reading = [load.name for load in setup.loads if load.reads_files]
    if not reading or setup.plan.simulation is not None or not data_dir.is_dir():
        return ()
    with os_errors_as_store_errors(data_dir):
        storage = describe_storage(data_dir)
    if storage.in_memory and len(reading) == len(setup.loads):
        raise PlanError(
            f"{data_dir} is on {storage.name}: no read there is ever cold or direct, so no sample of a load would "
            f"count; {TRY_DISK}, or --backend hostmem for loads from memory"
        )
    why = _find_obstacle(storage)
    if why is None:
        return ()
    detail = f"{data_dir} is on {storage.name}: {why}; {TRY_DISK}"
    return tuple(Notice(kind="storage_unproved", series=name, detail=detail) for name in reading)


def _find_obstacle(storage: Storage) -> str | None:
    """Why no read of files there is proved; None where it can be."""
    if storage.in_memory:
        return "no read there is ever cold or direct, so none of these samples will count"
    if storage.device is not None and storage.device.behind_loop:
        return "the file below its loop device may be cached, so none of these samples will count"
    if storage.device is not None and storage.device.unproved is not None:
        return f"no sample will count: {kind_of(storage.device.unproved).meaning}"
    counters = read_counters(storage.device)
    if counters.process_bytes is None or counters.device_bytes is None:
        return "the kernel has no counters that prove reads there, so none of these samples will count"
    return None
