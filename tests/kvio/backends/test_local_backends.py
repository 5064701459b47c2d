"""What is particular to one way to read; what all must do is in test_backend_contract."""

import os
from pathlib import Path

import numpy as np
import pytest

from kvio.backends import BACKENDS, find_backend
from kvio.backends.config import BackendConfig, HostMemory, SimulatedDevice
from kvio.backends.local.hostmem import HostMemReader
from kvio.backends.local.posix import MAX_CALL_BYTES, PosixReader
from kvio.backends.local.virtual import NullReader, SimulatedReader
from kvio.host_buffers import HostBuffer
from kvio.protocol import KVIOError, Read, ShortReadError
from tests.helpers.servers import shared_mooncake

BUFFERED = BackendConfig(direct=False)
DIRECT = BackendConfig(direct=True)


def _content(num_bytes: int) -> bytes:
    return np.random.default_rng(0).bytes(num_bytes)


def _file(directory: Path, num_bytes: int) -> Path:
    path = directory / "chunk"
    path.write_bytes(_content(num_bytes))
    return path


def test_one_call_asks_for_no_more_than_the_kernel_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        asked.append((len(buffers[0]), offset))
        return len(buffers[0])

    monkeypatch.setattr("kvio.backends.local.posix.os.preadv", preadv)
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
        "kvio.backends.local.posix.os.preadv", lambda fd, parts, offset: real(fd, [parts[0][:3000]], offset)
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
    monkeypatch.setattr(
        "kvio.backends.local.file_handles.os.open", lambda path, flags: real(path, flags & ~os.O_DIRECT)
    )
    backend = PosixReader(DIRECT)
    with pytest.raises(KVIOError, match="opened, but without O_DIRECT"):
        backend.open(_file(tmp_path, 4096))
    backend.close()


def test_null_touches_neither_file_nor_memory() -> None:
    path = Path("/nowhere")
    backend = NullReader(BackendConfig())
    buffer = HostBuffer(4096)
    backend.open(path)
    assert backend.read([Read(path, 0, 4096, 0), Read(path, 4096, 100, 0)], buffer.view) == 4196
    assert not buffer.array.any()
    backend.close()


def test_simulated_lets_the_clock_pass_as_the_device_would() -> None:
    passed: list[float] = []
    device = SimulatedDevice(1e9, 0.001, advance_s=passed.append)
    backend = SimulatedReader(BackendConfig(device=device))
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
        SimulatedReader(BackendConfig())


def test_hostmem_copies_what_it_holds_even_when_the_file_is_gone(tmp_path: Path) -> None:
    path = _file(tmp_path, 8192)
    memory = HostMemory()
    memory.upload([path])
    path.unlink()
    backend = HostMemReader(BackendConfig(placement=memory))
    buffer = HostBuffer(8192)
    backend.open(path)
    assert backend.read([Read(path, 4096, 4096, 0), Read(path, 0, 4096, 4096)], buffer.view) == 8192
    assert buffer.array.tobytes() == _content(8192)[4096:] + _content(8192)[:4096]
    with pytest.raises(ShortReadError, match="0 of 10 bytes held at offset 8192"):
        backend.read([Read(path, 8192, 10, 0)], buffer.view)
    memory.upload([])
    with pytest.raises(KVIOError, match="not held in memory"):
        backend.open(path)


def test_hostmem_names_a_file_that_it_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(KVIOError, match=r"gone: No such file"):
        HostMemory().upload([tmp_path / "gone"])
    with pytest.raises(KVIOError, match="needs a memory"):
        HostMemReader(BackendConfig())


def test_an_unknown_backend_lists_those_there_are() -> None:
    listed = ", ".join(BACKENDS)
    assert listed.startswith("null, simulated, hostmem, hostmem-pinned, posix, uring")
    with pytest.raises(KVIOError, match=f"unknown backend 'dma'; .*{listed}$"):
        find_backend("dma")


@pytest.mark.slow
def test_every_backend_carries_the_name_it_is_listed_under(tmp_path: Path) -> None:
    # what needs a package that is not installed, or a GPU, cannot be made here
    made = {name: kind.make for name, kind in BACKENDS.items() if _can_be_made(name, tmp_path)}
    setting = BackendConfig(
        placement=HostMemory(),
        device=SimulatedDevice(1.0, 0.0, advance_s=lambda seconds: None),
        options={"bucket": "kvcross", **(shared_mooncake().options if "mooncake" in made else {})},
    )
    assert {"null", "simulated", "hostmem", "posix"} <= set(made)
    assert {name: make(setting).name for name, make in made.items()} == {name: name for name in made}


def _can_be_made(name: str, directory: Path) -> bool:
    """Without a server named, those that need one say so; they are asked for their package alone."""
    why = BACKENDS[name].probe(directory, {})
    return why is None or why.reason.startswith("no bucket is named")
