"""Which interface leads to a server, and how fast it is."""

import socket
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from kvio.nic import Interface, find_interface

Found = namedtuple("Found", "address")


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_to_an_address_of_this_machine_the_bytes_go_over_loopback_whatever_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, family: socket.AddressFamily
) -> None:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 1))
    except OSError as error:
        pytest.skip(f"no way to {address}: {error.strerror}")
    folder = tmp_path / "sys/class/net/eth0"
    folder.mkdir(parents=True)
    (folder / "speed").write_text("1000\n")
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
