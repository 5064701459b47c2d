"""The kernel's read limit: what is refused, and what it does where it is permitted."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.machine import read_limit as limit
from bench.machine.read_limit import (
    Controller,
    LimitRefusedError,
    ReadThrottle,
    clean_stale_groups,
    find_controller,
)
from bench.measure.session import open_session
from bench.measure.setup import resolve_plan
from bench.record.plan import LoadSpec, Plan
from kvio.evidence.page_cache import evict
from tests.helpers.commands import ROOT
from tests.helpers.places import memory_folder, require_disk

SIZE_BYTES = 4 * 1024 * 1024
LIMIT_BYTES_PER_S = 20e6
READER = """
import hashlib, sys
sys.stdin.readline()
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest(), flush=True)
sys.stdin.readline()
"""
KILLED_OWNER = """
import os, signal, sys
from pathlib import Path
from bench.machine.read_limit import ReadThrottle
print(ReadThrottle(Path(sys.argv[1]), 1e6).group, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def permitted(tmp_path: Path) -> Path:
    """A folder whose disk may be limited."""
    try:
        assert ReadThrottle(require_disk(tmp_path), 1e9).close()
    except LimitRefusedError as error:
        pytest.skip(str(error))
    return tmp_path


@pytest.fixture
def reader(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that reads the file on a line of input, and ends on another."""
    (tmp_path / "chunk").write_bytes(os.urandom(SIZE_BYTES))
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(tmp_path / "chunk")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        yield child
        child.kill()


def tell(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


@pytest.mark.root
def test_an_attached_process_reads_the_same_bytes_no_faster_than_asked(
    permitted: Path, reader: "subprocess.Popen[str]"
) -> None:
    path = permitted / "chunk"
    evict(path)
    with ReadThrottle(permitted, LIMIT_BYTES_PER_S) as held:
        held.attach(reader.pid)
        assert held.members() == {reader.pid}
        before = held.read_bytes()
        start_s = time.monotonic()
        tell(reader)
        assert reader.stdout is not None
        digest = reader.stdout.readline().strip()
        seconds = time.monotonic() - start_s
        assert held.read_bytes() - before >= SIZE_BYTES
        assert seconds > 0.5 * SIZE_BYTES / LIMIT_BYTES_PER_S
        group = held.group
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert not group.exists()
    assert reader.poll() is None  # sent back to where it was, not ended


@pytest.mark.root
def test_two_limits_at_once_have_groups_of_their_own(permitted: Path) -> None:
    with ReadThrottle(permitted, 1e6) as one, ReadThrottle(permitted, 2e6) as other:
        assert one.group != other.group
        shown = [(held.group / held.controller.limit_file).read_text() for held in (one, other)]
        assert [number in text for number, text in zip(("1000000", "2000000"), shown, strict=True)] == [
            True
        ] * 2
    assert not one.group.exists()
    assert one.close()


@pytest.mark.root
def test_any_sweep_removes_the_group_of_a_killed_run(permitted: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_OWNER, str(permitted)], cwd=ROOT, capture_output=True, text=True
    )
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    setup = resolve_plan(Plan(model="qwen3-0.6b", loads=(LoadSpec(chunk_tokens=4),)))
    with open_session(setup, permitted, since_s=0.0):
        assert not left.exists()


@pytest.mark.root
def test_the_group_of_a_killed_run_is_removed_and_that_of_a_living_one_stays(permitted: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_OWNER, str(permitted)], cwd=ROOT, capture_output=True, text=True
    )
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    with ReadThrottle(permitted, 1e6) as held:  # making one cleans up first
        assert not left.exists()
        assert clean_stale_groups(held.controller) == []
        assert held.group.is_dir()


@pytest.mark.root
def test_a_process_that_is_gone_cannot_be_attached(permitted: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with ReadThrottle(permitted, 1e6) as held, pytest.raises(LimitRefusedError, match=f"process {child.pid}"):
        held.attach(child.pid)


def test_tmpfs_cannot_be_limited() -> None:
    with (
        memory_folder() as folder,
        pytest.raises(LimitRefusedError, match="there is no block device to limit"),
    ):
        ReadThrottle(folder, 1e6)


def test_without_a_controller_the_refusal_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "find_controller", lambda: None)
    with pytest.raises(LimitRefusedError, match="neither the io nor the blkio"):
        ReadThrottle(require_disk(tmp_path), 1e6)


def test_where_no_group_can_be_made_the_refusal_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "find_controller", lambda: Controller(1, Path("/proc/self")))
    with pytest.raises(LimitRefusedError, match="cannot make the cgroup /proc/self/kvcross-") as refusal:
        ReadThrottle(require_disk(tmp_path), 1e6)
    assert "\n" not in str(refusal.value)


def test_a_group_that_takes_no_limit_is_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "find_controller", lambda: Controller(1, tmp_path))
    monkeypatch.setattr(Controller, "limit_file", property(lambda self: "nowhere/limit"))
    with pytest.raises(LimitRefusedError, match="cannot limit reads in"):
        ReadThrottle(require_disk(tmp_path), 1e6)
    assert list(tmp_path.glob("kvcross-*")) == []


@pytest.mark.parametrize("rate", [0.0, 0.5, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float, tmp_path: Path) -> None:
    with pytest.raises(LimitRefusedError, match="cannot be set"):
        ReadThrottle(require_disk(tmp_path), rate)


def cgroup_tree(root: Path, *lines: str, controllers: str = "") -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("\n".join(lines) + "\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cgroup.controllers").write_text(controllers)
    return root


V2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1 = "38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio"


def test_version_2_is_used_where_it_has_the_io_controller(tmp_path: Path) -> None:
    root = cgroup_tree(tmp_path, V1, V2, controllers="cpu io memory")
    assert find_controller(root) == Controller(2, root / "sys/fs/cgroup")


def test_version_1_is_used_where_version_2_has_no_io_controller(tmp_path: Path) -> None:
    root = cgroup_tree(tmp_path, V1, V2, controllers="hugetlb")
    assert find_controller(root) == Controller(1, root / "sys/fs/cgroup/blkio")


def test_no_controller_is_none(tmp_path: Path) -> None:
    root = cgroup_tree(tmp_path, "38 31 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
    assert find_controller(root) is None


def test_both_versions_are_spoken(tmp_path: Path) -> None:
    old, new = Controller(1, tmp_path), Controller(2, tmp_path)
    assert (old.limit_file, old.limit_line("259:0", 7)) == ("blkio.throttle.read_bps_device", "259:0 7")
    assert (new.limit_file, new.limit_line("259:0", 7)) == ("io.max", "259:0 rbps=7")
    old_text = "259:0 Read 4096\n259:0 Write 8192\n259:0 Total 12288\n8:0 Read 1\nTotal 12289\n"
    new_text = "8:0 rbytes=1 wbytes=2\n259:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"
    assert old.counted_bytes(old_text, "259:0") == 4096
    assert new.counted_bytes(new_text, "259:0") == 4096
    assert new.counted_bytes(new_text, "254:0") == 0
