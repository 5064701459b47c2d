"""Findings about the data directory."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.machine.doctor.finding import Finding
from bench.machine.read_limit import LimitRefusedError, ReadThrottle
from bench.machine.storage_probe import ProbeProof, StorageProbe, probe_storage
from bench.record.notices import kind_of
from bench.record.units import format_bytes, format_rate
from kvio.evidence.storage_device import Storage, describe_storage

MIN_FREE_BYTES = 4 * 10**9  # less holds too few chunks to read each of them once
PROBED_LIMIT_BYTES_PER_S = 1e9


def examine_storage(data_dir: Path) -> Iterator[Finding]:
    """File system, device, space, what can be proved about reads, and whether they can be limited."""
    if not data_dir.is_dir():
        yield Finding("storage", "missing", f"{data_dir} is not a folder", f"mkdir -p {data_dir}")
        return
    storage = describe_storage(data_dir)
    yield _examine_device(storage, data_dir)
    yield _examine_space(data_dir)
    try:
        probe = probe_storage(data_dir)
    except OSError as error:
        what = f"{data_dir} cannot be written: {error.strerror}"
        yield Finding("storage", "missing", what, "choose another data folder")
        return
    yield from _examine_probe(storage, probe)
    yield _examine_limit(data_dir)


def _examine_device(storage: Storage, data_dir: Path) -> Finding:
    if storage.in_memory:
        what = f"{data_dir} is on {storage.name}: nothing there is ever cold"
        return Finding("storage", "warning", what, "choose a data folder on a disk")
    what = f"{data_dir} is on {storage.name}"
    if storage.device is not None and storage.device.unproved is not None:
        why = kind_of(storage.device.unproved).meaning
        return Finding("storage", "warning", f"{what}: {why}", "choose a data folder on a local disk")
    if storage.options:
        what += f", {', '.join(storage.options)}"
    if storage.link_bytes_per_s is not None:
        what += f", link {format_rate(storage.link_bytes_per_s)}"
    if storage.in_guest:
        what += "; cold means cold in guest"
    return Finding("storage", "ok", what)


def _examine_space(data_dir: Path) -> Finding:
    free = shutil.disk_usage(data_dir).free
    if free < MIN_FREE_BYTES:
        remedy = f"free {format_bytes(MIN_FREE_BYTES)}, or choose another data folder"
        return Finding("free space", "warning", format_bytes(free), remedy)
    return Finding("free space", "ok", format_bytes(free))


def _examine_probe(storage: Storage, probe: StorageProbe) -> Iterator[Finding]:
    known = [
        name
        for name, there in (
            ("/proc/self/io", probe.process_counted),
            ("the device's sectors", probe.device_counted),
            ("page cache residency", probe.residency_known),
        )
        if there
    ]
    complete = len(known) == 3
    remedy = "" if complete else "cold reads cannot be proved here: use O_DIRECT, or a local disk"
    yield Finding("counters", "ok" if complete else "warning", ", ".join(known) or "none", remedy)
    yield _examine_read("cold reads", probe.buffered, proved=f"proved {storage.cold_name}")
    yield _examine_read("direct reads", probe.direct, proved="proved direct")


def _examine_read(topic: str, proof: ProbeProof, *, proved: str) -> Finding:
    if proof.refused is not None:
        return Finding(topic, "skipped", f"refused: {proof.refused}", "choose a data folder on a local disk")
    if topic.startswith(proof.state):
        return Finding(topic, "ok", f"a probing read was {proved}")
    why = "; ".join(kind_of(code).meaning for code in proof.notices)
    what = f"a probing read was {proof.state}: {why}"
    return Finding(topic, "skipped", what, "choose a data folder on a local disk")


def _examine_limit(data_dir: Path) -> Finding:
    try:
        with ReadThrottle(data_dir, PROBED_LIMIT_BYTES_PER_S) as limit:
            version = limit.controller.version
    except LimitRefusedError as error:
        remedy = "run as root outside of a container" if os.geteuid() else "use a host with block cgroups"
        return Finding("read limit", "skipped", str(error), remedy)
    return Finding("read limit", "ok", f"the kernel can slow reads down (cgroup v{version})")
