"""Host memory that is pinned: which buffers are pinned when, and what is refused without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvio.backends import BACKENDS, find_backend
from kvio.backends.config import BackendConfig, HostMemory
from kvio.backends.local.hostmem_pinned import NO_GPU, PinnedBackend, PinnedMemory
from kvio.file_ranges import Span
from kvio.protocol import DeviceTarget, HostTarget, KVIOError, Read, UnavailableError
from tests.kvio.test_host_buffers import RecordingRegistrar


def _file(folder: Path, name: str, num_bytes: int) -> Path:
    path = folder / name
    path.write_bytes(bytes(range(256)) * (num_bytes // 256))
    return path


@pytest.fixture
def registrar() -> RecordingRegistrar:
    return RecordingRegistrar()


def _pinned(registrar: RecordingRegistrar) -> list[tuple[str, int]]:
    return [(name, num_bytes) for name, _, num_bytes in registrar.calls]


def test_buffers_are_pinned_once_and_used_again_for_files_of_their_size(
    tmp_path: Path, registrar: RecordingRegistrar
) -> None:
    first, second, other = (
        _file(tmp_path, name, size) for name, size in (("a", 4096), ("b", 4096), ("c", 8192))
    )
    memory = PinnedMemory(lambda: registrar)
    memory.upload([first])
    memory.upload([second])
    assert (list(memory.held.contents), _pinned(registrar)) == ([Span(second, 0, 4096)], [("register", 4096)])
    memory.upload([other])
    assert _pinned(registrar) == [("register", 4096), ("release", 0), ("register", 8192)]
    memory.remove()
    memory.remove()
    assert _pinned(registrar)[3:] == [("release", 0)]


def test_a_file_that_stays_is_neither_read_nor_pinned_again(
    tmp_path: Path, registrar: RecordingRegistrar
) -> None:
    path = _file(tmp_path, "a", 4096)
    memory = PinnedMemory(lambda: registrar)
    memory.upload([path])
    path.unlink()
    memory.load_into_memory([Span(path, 0, 4096)])
    assert len(registrar.calls) == 1
    memory.remove()
    with pytest.raises(KVIOError, match="a: No such file"):
        memory.upload([path])


def test_of_a_file_just_the_part_named_is_pinned_and_in_buffers_used_before(
    tmp_path: Path, registrar: RecordingRegistrar
) -> None:
    path = _file(tmp_path, "container", 1 << 20)
    memory = PinnedMemory(lambda: registrar)
    memory.load_into_memory([Span(path, 4096, 512), Span(path, 8192, 512)])
    memory.load_into_memory([Span(path, 4097, 512), Span(path, 8192, 512)])
    assert _pinned(registrar) == [("register", 512), ("register", 512)]
    found = memory.held.find(path, 4100)
    assert found is not None
    assert found[0].array[found[1] : found[1] + 2].tolist() == [4, 5]
    memory.remove()


@pytest.mark.parametrize(
    ("path", "why"),
    [(Path("/proc/self/mem"), "Input/output error"), (Path("/dev/null"), "0 of 4096 bytes could be read")],
    ids=["read error", "short"],
)
def test_what_was_pinned_for_a_read_that_fails_is_released(
    registrar: RecordingRegistrar, path: Path, why: str
) -> None:
    memory = PinnedMemory(lambda: registrar)
    with pytest.raises(KVIOError, match=f"{path}: {why}"):
        memory.load_into_memory([Span(path, 0, 4096)])  # nothing is mapped at address 0
    memory.remove()
    assert _pinned(registrar) == [("register", 4096), ("release", 0)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_there_is_nothing_to_pin_for(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="torch sees none here; try: --backend hostmem"):
        PinnedMemory().upload([_file(tmp_path, "a", 4096)])
    assert find_backend("hostmem-pinned").probe(tmp_path, {}) == NO_GPU
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_only_pinned_memory_and_device_targets_will_do(registrar: RecordingRegistrar) -> None:
    with pytest.raises(KVIOError, match="needs a pinned memory"):
        PinnedBackend(BackendConfig(placement=HostMemory()))
    backend = PinnedBackend(BackendConfig(placement=PinnedMemory(lambda: registrar)))
    with pytest.raises(KVIOError, match="one device only"):
        backend.attach([HostTarget(0, 0, memoryview(bytearray(4096)))])


def test_what_arrives_lies_in_the_target_and_not_beside_it(
    tmp_path: Path, registrar: RecordingRegistrar
) -> None:
    path = _file(tmp_path, "a", 512)
    memory = PinnedMemory(lambda: registrar)
    memory.upload([path])
    target = DeviceTarget(0, torch.full((16,), 9, dtype=torch.uint8))
    backend = PinnedBackend(BackendConfig(placement=memory, queue_depth=2))
    backend.attach([target])
    backend.open(path)
    backend.submit(0, [Read(path, 3, 4, 8)], target)
    assert [(arrival.ticket, arrival.num_bytes) for arrival in backend.wait()] == [(0, 4)]
    assert target.tensor.tolist() == [9] * 8 + [3, 4, 5, 6] + [9] * 4
    backend.close()
    memory.remove()


def test_listing_the_backends_loads_no_torch() -> None:
    script = "import sys, kvio.backends; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert "hostmem-pinned" in BACKENDS


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pinned_memory_reaches_the_gpu(tmp_path: Path) -> None:
    path = _file(tmp_path, "a", 1 << 20)
    memory = PinnedMemory()
    memory.upload([path])
    target = DeviceTarget(0, torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"))
    backend = PinnedBackend(BackendConfig(placement=memory))
    backend.attach([target])
    backend.open(path)
    backend.submit(0, [Read(path, 0, 1 << 20, 0)], target)
    backend.wait()
    assert target.tensor.cpu().numpy().tobytes() == path.read_bytes()
    backend.close()
    memory.remove()
