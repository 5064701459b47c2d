"""Every way to read: what arrives, what is refused, and what is given back at the end."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvio.backends import BACKENDS, find_backend
from kvio.backends.gds import GdsBackend
from kvio.backends.hostmem import HostMemReader
from kvio.backends.null import NullReader
from kvio.backends.opened import MAX_OPEN_FILES
from kvio.backends.posix import MAX_CALL_BYTES, PosixReader
from kvio.backends.protocol import KVIOError, Read, ShortReadError
from kvio.backends.setting import BackendSetting, HostMemory, SimulatedDevice
from kvio.backends.simulated import SimulatedReader
from kvio.buffers import HostBuffer

BUFFERED = BackendSetting(direct=False)
DIRECT = BackendSetting(direct=True)


def _content(num_bytes: int) -> bytes:
    return np.random.default_rng(0).bytes(num_bytes)


def _file(directory: Path, num_bytes: int) -> Path:
    path = directory / "chunk"
    path.write_bytes(_content(num_bytes))
    return path


def _num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, and opens one itself each time


def _require_direct(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        pytest.skip("the file system of the test directory refuses O_DIRECT")


@pytest.mark.parametrize("setting", [BUFFERED, DIRECT], ids=["buffered", "direct"])
def test_posix_brings_each_read_to_its_place(tmp_path: Path, setting: BackendSetting) -> None:
    path = _file(tmp_path, 16_384)
    _require_direct(path)
    buffer = HostBuffer(16_384)
    backend = PosixReader(setting)
    backend.open(path)
    # halves swapped: a backend that forgets either offset is found out
    reads = [Read(path, 0, 8192, 8192), Read(path, 8192, 8192, 0)]
    assert backend.read(reads, buffer.view) == 16_384
    content = _content(16_384)
    assert buffer.array.tobytes() == content[8192:] + content[:8192]
    backend.close()


def test_posix_reads_an_odd_tail_buffered(tmp_path: Path) -> None:
    path = _file(tmp_path, 5001)
    buffer = HostBuffer(8192)
    backend = PosixReader(BUFFERED)
    backend.open(path)
    assert backend.read([Read(path, 1, 5000, 3)], buffer.view) == 5000
    assert buffer.array[3:5003].tobytes() == _content(5001)[1:]
    backend.close()


@pytest.mark.parametrize(
    ("read", "named"),
    [((1, 4096, 0), "offset 1 "), ((0, 5000, 0), "length 5000 "), ((0, 4096, 512), "buffer address ")],
)
def test_posix_refuses_what_o_direct_cannot_read(
    tmp_path: Path, read: tuple[int, int, int], named: str
) -> None:
    path = _file(tmp_path, 16_384)
    _require_direct(path)
    backend = PosixReader(DIRECT)
    backend.open(path)
    with pytest.raises(KVIOError, match=f"{named}.*not a multiple of 4096"):
        backend.read([Read(path, *read)], HostBuffer(16_384).view)
    backend.close()


@pytest.mark.parametrize("setting", [BUFFERED, DIRECT], ids=["buffered", "direct"])
@pytest.mark.parametrize("num_bytes", [0, 4096, 5000])
def test_a_truncated_file_is_a_short_read_never_a_fast_one(
    tmp_path: Path, setting: BackendSetting, num_bytes: int
) -> None:
    path = _file(tmp_path, 16_384)
    _require_direct(path)
    os.truncate(path, num_bytes)
    backend = PosixReader(setting)
    backend.open(path)
    with pytest.raises(ShortReadError, match=f"{num_bytes} of 8192 bytes at offset 0"):
        backend.read([Read(path, 0, 8192, 0)], HostBuffer(8192).view)
    backend.close()


def test_one_call_asks_for_no_more_than_the_kernel_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        asked.append((len(buffers[0]), offset))
        return len(buffers[0])

    monkeypatch.setattr("kvio.backends.posix.os.preadv", preadv)
    backend = PosixReader(BUFFERED)
    path = Path("/dev/null")
    backend.open(path)
    num_bytes = MAX_CALL_BYTES + 8192
    # mapped, never touched: the call above moves nothing
    target = memoryview(np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (num_bytes,), (0,)))
    assert backend.read([Read(path, 0, num_bytes, 0)], target) == num_bytes
    assert asked == [(MAX_CALL_BYTES, 0), (8192, MAX_CALL_BYTES)]
    backend.close()


def test_partial_results_of_the_kernel_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path, 10_000)
    real = os.preadv
    monkeypatch.setattr(
        "kvio.backends.posix.os.preadv", lambda fd, parts, offset: real(fd, [parts[0][:3000]], offset)
    )
    backend = PosixReader(BUFFERED)
    backend.open(path)
    buffer = HostBuffer(10_000)
    assert backend.read([Read(path, 0, 10_000, 0)], buffer.view) == 10_000
    assert buffer.array.tobytes() == _content(10_000)
    backend.close()


def test_o_direct_that_the_descriptor_does_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open
    monkeypatch.setattr("kvio.backends.opened.os.open", lambda path, flags: real(path, flags & ~os.O_DIRECT))
    backend = PosixReader(DIRECT)
    with pytest.raises(KVIOError, match="opened, but without O_DIRECT"):
        backend.open(_file(tmp_path, 4096))
    backend.close()


def test_a_vanished_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KVIOError, match=r"gone\.kv: No such file or directory"):
        PosixReader(BUFFERED).open(tmp_path / "gone.kv")


def test_a_directory_in_place_of_a_file_is_one_line(tmp_path: Path) -> None:
    backend = PosixReader(BUFFERED)
    backend.open(tmp_path)
    with pytest.raises(KVIOError, match="reading 4096 bytes at offset 0: Is a directory"):
        backend.read([Read(tmp_path, 0, 4096, 0)], HostBuffer(4096).view)
    backend.close()


def test_close_gives_back_every_descriptor_and_may_be_repeated(tmp_path: Path) -> None:
    before = _num_open_files()
    backend = PosixReader(BUFFERED)
    for number in range(5):
        path = tmp_path / str(number)
        path.write_bytes(b"kv")
        backend.open(path)
        backend.open(path)
    assert _num_open_files() == before + 5
    backend.close()
    backend.close()
    assert _num_open_files() == before


def test_a_thread_keeps_a_bounded_number_of_files_open(tmp_path: Path) -> None:
    before = _num_open_files()
    backend = PosixReader(BUFFERED)
    for number in range(MAX_OPEN_FILES + 10):
        path = tmp_path / str(number)
        path.write_bytes(b"kv")
        backend.open(path)
    assert _num_open_files() == before + MAX_OPEN_FILES
    backend.close()


TOO_MANY = """
import resource, sys
from pathlib import Path
from kvio.backends.posix import PosixReader
from kvio.backends.protocol import KVIOError
from kvio.backends.setting import BackendSetting
backends = [PosixReader(BackendSetting()) for _ in range(40)]
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
try:
    for backend in backends:
        backend.open(Path(sys.argv[1]))
except KVIOError as error:
    print(error)
"""


def test_too_many_open_files_says_what_to_raise(tmp_path: Path) -> None:
    path = _file(tmp_path, 4096)
    done = subprocess.run(
        [sys.executable, "-c", TOO_MANY, str(path)], capture_output=True, text=True, check=True
    )
    assert "raise ulimit -n or use fewer threads" in done.stdout


FORBIDDEN = """
import os, sys
from pathlib import Path
from kvio.backends.posix import PosixReader
from kvio.backends.protocol import KVIOError
from kvio.backends.setting import BackendSetting
directory = os.open(sys.argv[1], os.O_RDONLY)
if os.geteuid() == 0:
    os.setuid(65534)
os.fchdir(directory)
try:
    PosixReader(BackendSetting()).open(Path("chunk"))
except KVIOError as error:
    print(error)
"""


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    _file(tmp_path, 4096).chmod(0o000)
    done = subprocess.run(
        [sys.executable, "-c", FORBIDDEN, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "chunk: Permission denied\n"


def test_null_touches_neither_file_nor_memory() -> None:
    path = Path("/nowhere")
    backend = NullReader(BackendSetting())
    buffer = HostBuffer(4096)
    backend.open(path)
    assert backend.read([Read(path, 0, 4096, 0), Read(path, 4096, 100, 0)], buffer.view) == 4196
    assert not buffer.array.any()
    backend.close()


def test_simulated_lets_the_clock_pass_as_the_device_would() -> None:
    passed: list[float] = []
    device = SimulatedDevice(1e9, 0.001, advance_s=passed.append)
    backend = SimulatedReader(BackendSetting(device=device))
    path = Path("/nowhere")
    reads = [Read(path, 0, 1_000_000, 0), Read(path, 0, 3_000_000, 0)]
    assert backend.read(reads, memoryview(bytearray())) == 4_000_000
    assert passed == pytest.approx([0.002, 0.004], rel=1e-12)


def test_simulated_jitter_repeats_with_its_seed_and_differs_with_another() -> None:
    def times(seed: int) -> list[float]:
        passed: list[float] = []
        device = SimulatedDevice(1e9, 0.0, advance_s=passed.append, jitter=0.1, seed=seed)
        for _ in range(200):
            device.serve(1_000_000)
        return passed

    assert times(1) == times(1)
    assert times(1) != times(2)
    assert np.std(np.log(times(1))) == pytest.approx(0.1, rel=0.15)


def test_a_device_that_cannot_be_is_refused() -> None:
    with pytest.raises(KVIOError, match="0 bytes/s"):
        SimulatedDevice(0, 0.0, advance_s=lambda seconds: None)
    with pytest.raises(KVIOError, match="needs a device"):
        SimulatedReader(BackendSetting())


def test_hostmem_copies_what_it_holds_even_when_the_file_is_gone(tmp_path: Path) -> None:
    path = _file(tmp_path, 8192)
    memory = HostMemory()
    memory.hold([path])
    path.unlink()
    backend = HostMemReader(BackendSetting(memory=memory))
    buffer = HostBuffer(8192)
    backend.open(path)
    assert backend.read([Read(path, 4096, 4096, 0), Read(path, 0, 4096, 4096)], buffer.view) == 8192
    assert buffer.array.tobytes() == _content(8192)[4096:] + _content(8192)[:4096]
    with pytest.raises(ShortReadError, match="0 of 10 bytes held at offset 8192"):
        backend.read([Read(path, 8192, 10, 0)], buffer.view)
    memory.hold([])
    with pytest.raises(KVIOError, match="not held in memory"):
        backend.open(path)


def test_hostmem_names_a_file_that_it_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(KVIOError, match=r"gone: No such file"):
        HostMemory().hold([tmp_path / "gone"])
    with pytest.raises(KVIOError, match="needs a memory"):
        HostMemReader(BackendSetting())


def test_an_unknown_backend_lists_those_there_are() -> None:
    with pytest.raises(
        KVIOError, match="unknown backend 'dma'; there are: null, simulated, hostmem, posix, uring, gds"
    ):
        find_backend("dma")


def test_every_backend_carries_the_name_it_is_listed_under() -> None:
    setting = BackendSetting(
        memory=HostMemory(), device=SimulatedDevice(1.0, 0.0, advance_s=lambda seconds: None)
    )
    ours = {name: kind for name, kind in BACKENDS.items() if name != "gds"}  # kvikio may not be here
    assert {name: kind.make(setting).name for name, kind in ours.items()} == {name: name for name in ours}
    assert GdsBackend.name == "gds"
