"""Which interface leads to a server, and how fast it is."""

import socket
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from kvio.evidence.network_link import Interface, find_interface

Found = namedtuple("Found", "address")


def _interface(root: Path, name: str, *, device: bool, megabits: int = 1000) -> None:
    folder = root / "sys/class/net" / name
    folder.mkdir(parents=True)
    (folder / "speed").write_text(f"{megabits}\n")
    if device:
        (folder / "device").mkdir()


def _away(monkeypatch: pytest.MonkeyPatch, root: Path) -> Interface:
    """The interface to a server that is not this machine, whose packets leave by eth0."""

    class Probe:
        def __init__(self, *arguments: object) -> None:
            pass

        def __enter__(self) -> "Probe":
            return self

        def __exit__(self, *arguments: object) -> None:
            pass

        def connect(self, address: object) -> None:
            pass

        def getsockname(self) -> tuple[str, int]:
            return "192.0.2.1", 1

    monkeypatch.setattr(socket, "socket", Probe)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": [Found("192.0.2.1")]})
    return find_interface("192.0.2.2", 8333, root)


@pytest.mark.parametrize(
    ("device", "hypervisor", "megabits", "bytes_per_s"),
    [
        (True, False, 1000, 125e6),
        (False, False, 10_000, None),
        (True, True, 10_000, None),
        (True, False, -1, None),
    ],
    ids=["hardware", "veth", "guest", "hardware that does not know"],
)
def test_only_hardware_outside_of_a_guest_is_believed_its_speed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    device: bool,
    hypervisor: bool,
    megabits: int,
    bytes_per_s: float | None,
) -> None:
    _interface(tmp_path, "eth0", device=device, megabits=megabits)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"flags\t\t: fpu vme{' hypervisor' if hypervisor else ''}\n")
    found = _away(monkeypatch, tmp_path)
    assert found == Interface("eth0", bytes_per_s)
    assert ("not known" in found.says) is (bytes_per_s is None)


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_to_an_address_of_this_machine_the_bytes_go_over_loopback_whatever_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, family: socket.AddressFamily
) -> None:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 1))
    except OSError as error:
        pytest.skip(f"no way to {address}: {error.strerror}")
    _interface(tmp_path, "eth0", device=True)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": [Found(address)]})
    assert find_interface(address, 8333, tmp_path) == Interface("lo", None)


def test_every_own_address_of_this_machine_is_reached_over_loopback() -> None:
    own = {
        found.address
        for addresses in psutil.net_if_addrs().values()
        for found in addresses
        if found.family == socket.AF_INET
    }
    assert own
    assert {find_interface(address, 8333) for address in own} == {Interface("lo", None)}
