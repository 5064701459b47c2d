"""Probing reads prove what a folder lets us prove, and leave nothing behind."""

import os
from pathlib import Path

import pytest

from bench.machine import storage_probe as probe
from bench.machine.storage_probe import PROBE_BYTES, probe_storage
from tests.places import memory_folder, require_disk


def test_a_disk_can_be_proved_cold_and_direct(tmp_path: Path) -> None:
    found = probe_storage(require_disk(tmp_path))
    assert found.residency_known and found.process_counted and found.device_counted
    assert found.left_bytes == 0
    assert (found.buffered.state, found.direct.state) == ("cold", "direct")
    assert list(tmp_path.iterdir()) == []


def test_tmpfs_accepts_o_direct_and_is_warm_all_the_same() -> None:
    with memory_folder() as folder:
        found = probe_storage(folder)
    assert found.left_bytes == PROBE_BYTES
    assert (found.buffered.state, found.direct.state) == ("warm", "warm")
    assert "direct_not_honoured" in found.direct.notices
    assert not found.device_counted


def test_a_dropped_flag_is_found_though_the_open_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_open = os.open
    monkeypatch.setattr(
        probe.os,
        "open",
        lambda path, flags, *rest, **named: whole_open(path, flags & ~os.O_DIRECT, *rest, **named),
    )
    found = probe_storage(require_disk(tmp_path))
    assert found.direct.refused == "open dropped O_DIRECT in silence"
    assert found.buffered.state == "cold"


def test_a_refused_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_BYTES", 1000)  # O_DIRECT takes whole blocks only
    found = probe_storage(require_disk(tmp_path))
    if found.direct.refused is None:
        pytest.skip("this file system reads odd lengths through O_DIRECT")
    assert found.direct.refused == "read: Invalid argument"


def test_a_folder_that_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        probe_storage(tmp_path / "nowhere")
