"""Bounce buffers: aligned, registered once, deregistered once."""

import pytest
import torch

from kvio.backends.protocol import KVIOError
from kvio.buffers import CudaRegistrar, HostBuffer


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
