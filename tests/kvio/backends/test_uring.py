"""What is particular to io_uring: refusals, locked memory, continued reads, and counters."""

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from kvio.backends.config import BackendConfig
from kvio.backends.local.io_uring import ENTRY, Completion, Ring
from kvio.backends.local.uring import MAX_IN_FLIGHT, NOT_REGISTERED, UringBackend, explain_refusal, try_uring
from kvio.backends.selftest_process import TRIAL_FAILED
from kvio.evidence.cold_evidence import read_counters
from kvio.evidence.page_cache import evict
from kvio.evidence.storage_device import describe_storage
from kvio.host_buffers import HostBuffer
from kvio.protocol import DeviceTarget, KVIOError, Read
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.commands import ROOT
from tests.helpers.places import avoid_memory, require_disk

MIB = 1 << 20
IOSQE_ASYNC = 1 << 4  # to a worker thread at once; include/uapi/linux/io_uring.h


@pytest.fixture(autouse=True)
def _kernel_gives_rings(tmp_path: Path) -> None:
    why = try_uring(tmp_path, {})
    if why is not None:
        assert not why.reason.startswith(TRIAL_FAILED), why.reason
        pytest.skip(f"{why.reason}; try: {why.remedy}")


def _file(directory: Path, num_bytes: int) -> tuple[Path, bytes]:
    path, content = directory / "chunk", np.random.default_rng(0).bytes(num_bytes)
    path.write_bytes(content)
    return path, content


def _attached(num_bytes: int, queue_depth: int = 1) -> tuple[UringBackend, HostBuffer]:
    backend, buffer = UringBackend(BackendConfig(queue_depth=queue_depth)), HostBuffer(num_bytes)
    backend.attach([buffer.targets(1)[0]])
    return backend, buffer


def test_reads_queued_together_reach_the_kernel_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = _file(tmp_path, 8 * 4096)
    calls: list[int] = []
    real = Ring._enter
    monkeypatch.setattr(
        Ring, "_enter", lambda ring, least: (calls.append(ring.num_queued), real(ring, least))[1]
    )
    ring, buffer = Ring(8), HostBuffer(8 * 4096)
    descriptor = os.open(path, os.O_RDONLY)
    for number in range(8):
        ring.queue_read(
            number,
            descriptor,
            offset=number * 4096,
            address=buffer.address + number * 4096,
            num_bytes=4096,
            buffer=None,
        )
    found: list[Completion] = []
    while len(found) < 8:
        found += ring.wait()
    ring.close()
    os.close(descriptor)
    assert calls[0] == 8
    assert sorted(found, key=lambda result: result.tag) == [Completion(number, 4096) for number in range(8)]
    assert bytes(buffer.view) == content


def test_the_queues_wrap_around(tmp_path: Path) -> None:
    path, content = _file(tmp_path, 40 * 4096)
    backend, buffer = _attached(40 * 4096)
    backend.open(path)
    backend.submit(0, [Read(path, n * 4096, 4096, n * 4096) for n in range(40)], buffer.targets(1)[0])
    (arrival,) = backend.wait()
    backend.close()
    assert arrival.num_bytes == 40 * 4096
    assert bytes(buffer.view) == content


def test_a_read_longer_than_one_call_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvio.backends.local.uring.MAX_CALL_BYTES", 3000)
    path, content = _file(tmp_path, 10_000)
    backend, buffer = _attached(10_000)
    backend.open(path)
    backend.submit(0, [Read(path, 0, 10_000, 0)], buffer.targets(1)[0])
    (arrival,) = backend.wait()
    backend.close()
    assert arrival.num_bytes == 10_000
    assert bytes(buffer.view) == content


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_a_read_that_was_interrupted_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path, content = _file(tmp_path, 8192)
    backend, buffer = _attached(8192)
    real, spoiled = Ring.wait, []

    def wait(ring: Ring) -> list[Completion]:
        found = real(ring)
        if spoiled:
            return found
        spoiled.append(True)
        buffer.array.fill(0)
        return [Completion(result.tag, -code) for result in found]

    monkeypatch.setattr(Ring, "wait", wait)
    backend.open(path)
    backend.submit(0, [Read(path, 0, 8192, 0)], buffer.targets(1)[0])
    (arrival,) = backend.wait()
    backend.close()
    assert (spoiled, arrival.num_bytes) == ([True], 8192)
    assert bytes(buffer.view) == content


def test_waiting_lets_other_threads_run() -> None:
    reader, writer = os.pipe()
    buffer = HostBuffer(4096)
    order: list[str] = []

    def write() -> None:
        order.append("written")
        os.write(writer, b"kv")

    ring = Ring(1)
    ring.queue_read(7, reader, offset=0, address=buffer.address, num_bytes=2, buffer=None)
    ring.submit()
    thread = threading.Thread(target=write)
    thread.start()
    found = ring.wait()  # for ever, if the interpreter's lock were held
    order.append("read")
    thread.join()
    ring.close()
    os.close(reader)
    os.close(writer)
    assert (found, order) == ([Completion(7, 2)], ["written", "read"])


def test_draining_waits_for_what_the_kernel_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    buffer, ring = HostBuffer(4096), Ring(2)
    for tag, offset in ((1, 0), (2, 2)):  # the second is queued only, and taken back
        ring.queue_read(tag, reader, offset=0, address=buffer.address + offset, num_bytes=2, buffer=None)
        if tag == 1:
            ring.submit()
    waits = threading.Event()
    real = Ring._enter

    def enter(ring: Ring, min_results: int) -> None:
        waits.set()
        real(ring, min_results)

    monkeypatch.setattr(Ring, "_enter", enter)
    thread = threading.Thread(target=lambda: (waits.wait(), os.write(writer, b"kvKV")))
    thread.start()
    ring.drain()
    asked, _ = waits.is_set(), waits.set()  # lets the writer go, should nobody have waited
    assert asked
    assert bytes(buffer.view[:4]) == b"kv\0\0"
    assert (ring.num_queued, ring.num_under_way) == (0, 0)
    thread.join()
    ring.close()
    os.close(reader)
    os.close(writer)


def test_waiting_for_nothing_is_refused_rather_than_for_ever() -> None:
    ring = Ring(1)
    with pytest.raises(ValueError, match="nothing to wait for"):
        ring.wait()
    ring.close()


WITHOUT_LOCKED_MEMORY = """
import os, resource, sys
from kvio.backends.config import BackendConfig
from kvio.backends.local.uring import UringBackend
from kvio.protocol import Read
from kvio.host_buffers import HostBuffer
from pathlib import Path
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
where = os.open(sys.argv[1], os.O_RDONLY)
if os.geteuid() == 0:
    os.setuid(65534)
os.fchdir(where)
buffer = HostBuffer(1 << 20)
backend = UringBackend(BackendConfig())
backend.attach([buffer.targets(1)[0]])
backend.open(Path("chunk"))
backend.submit(0, [Read(Path("chunk"), 0, 1 << 20, 0)], buffer.targets(1)[0])
print(backend.wait()[0].num_bytes, bytes(buffer.view) == Path("chunk").read_bytes(), *backend.notices)
backend.close()
"""


def test_buffers_that_may_not_be_locked_are_read_into_all_the_same_and_said(tmp_path: Path) -> None:
    path, _ = _file(tmp_path, MIB)
    tmp_path.chmod(0o755)
    path.chmod(0o644)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKED_MEMORY, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{MIB} True {NOT_REGISTERED}\n"


@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
@pytest.mark.parametrize("flag", [0, IOSQE_ASYNC], ids=["own thread", "worker threads"])
def test_the_process_counter_sees_reads_whoever_carries_them_out(
    tmp_path: Path, direct: bool, flag: int
) -> None:
    storage = describe_storage(require_disk(tmp_path))
    path, content = _file(tmp_path, 8 * MIB)
    evict(path)
    descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    ring, buffer = Ring(8), HostBuffer(8 * MIB)
    ring.register([(buffer.address, buffer.num_bytes)])
    before = read_counters(storage.device)
    for number in range(8):
        ring.queue_read(
            number,
            descriptor,
            offset=number * MIB,
            address=buffer.address + number * MIB,
            num_bytes=MIB,
            buffer=0,
        )
        ring._entries[number * ENTRY.size + 1] = flag
    found: list[Completion] = []
    while len(found) < 8:
        found += ring.wait()
    moved = read_counters(storage.device).moved_since(before)
    ring.close()
    os.close(descriptor)
    assert bytes(buffer.view) == content
    assert moved.process_bytes is not None
    assert 8 * MIB <= moved.process_bytes < 8.2 * MIB


@pytest.mark.parametrize(
    ("code", "switch", "reason", "remedy"),
    [
        (errno.EPERM, "2\n", "kernel.io_uring_disabled is 2", "sysctl -w kernel.io_uring_disabled=0"),
        (errno.EPERM, "1\n", "kernel.io_uring_disabled is 1", "sysctl -w kernel.io_uring_disabled=0"),
        (errno.EPERM, "0\n", "seccomp filter of a container", "seccomp=unconfined"),
        (errno.EPERM, None, "seccomp filter of a container", "seccomp=unconfined"),
        (errno.ENOSYS, "0\n", "no io_uring", "seccomp=unconfined"),
        (errno.EINVAL, "0\n", "cannot defer", "Linux 6.1"),
        (errno.ENOMEM, "0\n", "RLIMIT_MEMLOCK is", "ulimit -l unlimited"),
        (errno.EMFILE, "0\n", "Too many open files", "ulimit -n"),
        (errno.ENODEV, "0\n", "No such device", "--backend posix"),
    ],
)
def test_a_refused_ring_says_why_and_what_to_try(
    tmp_path: Path, code: int, switch: str | None, reason: str, remedy: str
) -> None:
    file = tmp_path / "io_uring_disabled"
    if switch is not None:
        file.write_text(switch)
    why = explain_refusal(OSError(code, os.strerror(code)), file)
    assert reason in why.reason
    assert remedy in why.remedy


REFUSED = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
# a seccomp filter as containers have it: io_uring_setup (425) fails with EPERM, everything else goes through
class Rule(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("rules", ctypes.POINTER(Rule)))
rules = (Rule * 4)((0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))
program = Program(4, rules)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(program)) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
import runpy
sys.argv = ["kvcross", *sys.argv[1:]]
runpy.run_module("bench", run_name="__main__")
"""


def _bench_in_a_container(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", REFUSED, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_container_that_forbids_io_uring_gets_one_line_and_exit_2(tmp_path: Path) -> None:
    done = _bench_in_a_container("sweep", "qwen3-0.6b", "--backend", "uring", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "nothing is left to measure: uring: unavailable: io_uring is refused here" in line
    assert "seccomp=unconfined" in line


@pytest.mark.slow
def test_beside_a_refused_backend_the_others_are_measured(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    avoid_memory(tmp_path)
    asked = ["--backend", "posix,uring", "--dtype", "float32", "--tokens", "64,128", "--working-set", "64MiB"]
    limits = ["--rounds", "1", "--samples", "1", "--budget", "300s"]
    done = _bench_in_a_container("sweep", "tiny.json", *asked, *limits, cwd=tmp_path)
    assert done.returncode in {0, 3}, done.stderr
    folder = tmp_path / done.stdout.strip().splitlines()[-1]
    run = read_run(folder)
    assert [load.backend for load in run.plan.loads] == ["posix"]
    (said,) = [notice.text for notice in run.notices if notice.kind == "backend_unavailable"]
    assert said.startswith("uring: unavailable: io_uring is refused here")
    assert f"notice: {said}" in done.stdout
    assert "uring: unavailable: io_uring is refused here" in (folder / "report.html").read_text()
    assert {s.outcome.data_path for s in read_samples(folder)[0] if s.case.arm == "load"} == {"posix-direct"}


def test_the_depth_has_bounds() -> None:
    for depth in (0, MAX_IN_FLIGHT + 1):
        with pytest.raises(KVIOError, match=f"1 to 128 reads in flight, not {depth}"):
            UringBackend(BackendConfig(queue_depth=depth))


def test_device_memory_is_refused() -> None:
    backend, _ = _attached(4096)
    torch = pytest.importorskip("torch")
    with pytest.raises(KVIOError, match="host memory only"):
        backend.submit(0, [], DeviceTarget(0, torch.empty(4096, dtype=torch.uint8)))
    backend.close()


def test_a_closed_backend_refuses_work() -> None:
    backend, buffer = _attached(4096)
    backend.close()
    with pytest.raises(KVIOError, match="closed"):
        backend.submit(0, [Read(Path("chunk"), 0, 4096, 0)], buffer.targets(1)[0])
