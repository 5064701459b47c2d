"""Bounce buffers: aligned, registered once, deregistered once."""

from pathlib import Path

import pytest
import torch

from kvio.host_buffers import HUGE_PAGE_BYTES, MIN_HUGE_BYTES, CudaRegistrar, HostBuffer
from kvio.protocol import KVIOError

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class RecordingRegistrar:
    """Keeps what is asked of it, and answers with the codes given."""

    def __init__(self, register_code: int = 0, release_code: int = 0) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self._codes = (register_code, release_code)

    def register(self, address: int, num_bytes: int) -> int:
        self.calls.append(("register", address, num_bytes))
        return self._codes[0]

    def release(self, address: int) -> int:
        self.calls.append(("release", address, 0))
        return self._codes[1]


@pytest.mark.parametrize("num_bytes", [0, 1, 4096, 1_000_001])
def test_a_buffer_is_page_aligned_and_as_large_as_asked(num_bytes: int) -> None:
    buffer = HostBuffer(num_bytes)
    assert buffer.address % 4096 == 0
    assert len(buffer.view) == num_bytes
    assert not buffer.view.readonly
    buffer.close()


def _flags_of(address: int) -> list[str]:
    """The kernel's flags of the mapping that holds this address: VmFlags of proc_pid_smaps(5)."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "VmFlags:":
            return line.split()[1:]
    raise AssertionError(f"nothing is mapped at {address:#x}")


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="this kernel has no transparent huge pages")
@pytest.mark.parametrize("num_bytes", [MIN_HUGE_BYTES, HUGE_PAGE_BYTES, 5_000_001])
def test_a_buffer_worth_it_begins_on_a_huge_page_and_asks_for_them(num_bytes: int) -> None:
    buffer = HostBuffer(num_bytes)
    assert buffer.address % HUGE_PAGE_BYTES == 0
    assert len(buffer.view) == num_bytes
    assert {"hg"} <= {*_flags_of(buffer.address)} & {*_flags_of(buffer.address + num_bytes - 1)}
    buffer.close()


def test_a_small_buffer_takes_no_huge_page() -> None:
    buffer = HostBuffer(MIN_HUGE_BYTES - 1)
    assert "hg" not in _flags_of(buffer.address)
    buffer.close()


def test_equal_parts_lie_one_behind_another() -> None:
    buffer = HostBuffer(3 * 8192)
    targets = buffer.targets(3)
    assert [target.address - buffer.address for target in targets] == [0, 8192, 16384]
    targets[1].view[:] = b"x" * 8192
    assert bytes(buffer.view) == bytes(8192) + b"x" * 8192 + bytes(8192)
    assert [(target.slot, target.num_bytes) for target in targets] == [(0, 8192), (1, 8192), (2, 8192)]


def test_a_closed_buffer_refuses_use_and_closes_again() -> None:
    buffer = HostBuffer(4096)
    buffer.close()
    buffer.close()
    with pytest.raises(KVIOError, match="closed"):
        _ = buffer.view


def test_memory_is_registered_once_and_released_once() -> None:
    registrar = RecordingRegistrar()
    buffer = HostBuffer(8192, registrar)
    buffer.close()
    buffer.close()
    assert registrar.calls == [("register", buffer.address, 8192), ("release", buffer.address, 0)]


def test_a_refused_registration_names_the_limit_and_is_not_released() -> None:
    registrar = RecordingRegistrar(register_code=2)
    with pytest.raises(KVIOError, match=r"8192 bytes.*cudaError 2.*RLIMIT_MEMLOCK is .*ulimit -l"):
        HostBuffer(8192, registrar)
    assert [name for name, _, _ in registrar.calls] == ["register"]


def test_a_refused_release_is_an_error() -> None:
    buffer = HostBuffer(8192, RecordingRegistrar(release_code=713))
    with pytest.raises(KVIOError, match="deregistered \\(cudaError 713\\)"):
        buffer.close()


def test_more_memory_than_there_is_is_one_line() -> None:
    with pytest.raises(KVIOError, match="no memory for a bounce buffer of 4611686018427387904 bytes"):
        HostBuffer(1 << 62)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_sees_the_memory_as_pinned() -> None:
    torch.cuda.init()
    buffer = HostBuffer(1 << 20, CudaRegistrar())
    assert torch.from_numpy(buffer.array).is_pinned()
    buffer.close()
