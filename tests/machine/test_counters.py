"""Counters of this machine: whose work the processor did between two moments."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bench.machine.counters import SystemCounters, read_busy_s, read_own_s, read_system_counters
from kvio.evidence.disk import PhysicalDevice
from kvio.evidence.io_counters import Traffic
from kvio.evidence.storage_device import BlockDevice

# user nice system idle iowait irq softirq steal guest guest_nice, in ticks
STAT = """cpu  9999 9999 9999 9999 9999 9999 9999 9999 9999 0
cpu0 100 20 30 7000 50 900 900 4 100 0
cpu1 1000 200 300 7000 50 900 900 40 100 0
cpu2 5000 5000 5000 0 0 0 0 5000 0 0
intr 1
"""
# a process that ends after it has computed for 0.2 s, and one that waits until it is heard to have waited for such a one
BURN = "import time\nwhile time.process_time() < 0.2: pass"
WAIT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])\nprint(flush=True)\ninput()"
TICK_S = 0.01


def _tree(tmp_path: Path, text: str) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(text)
    return tmp_path


def test_work_on_the_cores_that_we_may_use_is_counted_with_steal_and_without_waiting_and_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    root = _tree(tmp_path, STAT)
    assert read_busy_s({0, 1}, root) == 16.94
    assert read_busy_s({1}, root) == 15.4


def test_cores_that_are_not_all_listed_are_not_counted(tmp_path: Path) -> None:
    assert read_busy_s({0, 3}, _tree(tmp_path, STAT)) is None
    assert read_busy_s({0}, tmp_path / "none") is None


def test_the_drive_is_counted_where_it_is_known(tmp_path: Path) -> None:
    root = _tree(tmp_path, STAT)
    (root / "sys/block/a").mkdir(parents=True)
    (root / "sys/block/a/stat").write_text("1 2 30 4 5 6 70 8 9 10 11")
    device = BlockDevice("a", "8:0", ("8:0",), (PhysicalDevice("a", "8:0"),))
    before = read_system_counters(0.0, device=device, root=root)
    (root / "sys/block/a/stat").write_text("1 2 32 4 5 6 73 8 9 10 11")
    after = read_system_counters(1.0, device=device, root=root)
    assert after.drive_since(before) == Traffic(1024, 1536)
    assert after.drive_since(read_system_counters(0.0, root=root)) is None


def test_what_others_took_is_what_all_did_without_our_own() -> None:
    before = SystemCounters(10.0, busy_s=100.0, own_s=40.0, num_cores=4, children=frozenset({7}))
    after = SystemCounters(20.0, busy_s=130.0, own_s=50.0, num_cores=4, children=frozenset({7, 8}))
    assert after.others_share_since(before) == 0.5


@pytest.mark.parametrize(
    "changes",
    [{"busy_s": None}, {"at_s": 10.2}, {"children": frozenset({8})}],
    ids=["not counted", "too short", "a child is gone"],
)
def test_no_share_is_made_up(changes: dict[str, object]) -> None:
    before = SystemCounters(10.0, busy_s=100.0, own_s=40.0, num_cores=4, children=frozenset({7}))
    after = SystemCounters(20.0, busy_s=130.0, own_s=50.0, num_cores=4, children=frozenset({7}))
    assert after.others_share_since(before) is not None
    assert replace(after, **changes).others_share_since(before) is None  # type: ignore[arg-type]


def test_our_own_work_is_that_of_all_that_we_started_and_of_what_that_waited_for() -> None:
    before = read_system_counters(0.0)
    with subprocess.Popen(
        [sys.executable, "-c", WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = read_system_counters(1.0)
        child.communicate(b"\n")
    assert child.pid in during.children - before.children
    assert during.own_s - before.own_s >= 0.2 - TICK_S
    assert read_own_s(psutil.Process()) >= during.own_s - TICK_S  # it has ended, and is counted all the same


def test_a_child_that_was_killed_is_gone_though_nobody_has_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        before = read_system_counters(0.0)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert before.children - read_system_counters(1.0).children == {child.pid}
