"""How fast the network interface is that leads to a server."""

import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from kvio.evidence.storage_device import runs_in_guest

ROOT = Path("/")
MEGABITS = (
    1e6 / 8
)  # bytes per second in the unit of /sys/class/net/X/speed; Documentation/ABI/testing/sysfs-class-net


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of this machine.

    Args:
        name: of the kernel; None when no way to the server is known.
        bytes_per_s: its speed; None for loopback, for what no hardware of its own carries (veth, bridges, VLANs,
            bonds), in a guest, and whatever else does not say.
    """

    name: str | None
    bytes_per_s: float | None

    @property
    def says(self) -> str:
        """For people: what a rate can be held against."""
        if self.bytes_per_s is not None:
            return f"over {self.name}"
        where = "loopback" if self.name == "lo" else f"{self.name or 'an unknown interface'}"
        return f"over {where}, whose speed is not known: no rate can be called implausible"


def find_interface(host: str, port: int, root: Path = ROOT) -> Interface:
    """The interface that packets to `host` would leave by; sends none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # of a datagram socket: picks the route, sends nothing
            local = str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return Interface(None, None)
    if (
        local == str(address[0]).partition("%")[0]
    ):  # of this machine itself: whatever has it, lo carries the bytes
        return Interface("lo", None)
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address.partition("%")[0] == local for found in addresses):
            return Interface(name, _read_speed(name, root))
    return Interface(None, None)


def _read_speed(name: str, root: Path) -> float | None:
    """What the hardware says; virtual interfaces (veth, vmxnet3) say a number that bounds nothing."""
    interface = root / "sys/class/net" / name
    if not (interface / "device").exists() or runs_in_guest(root):
        return None
    try:
        megabits = int((interface / "speed").read_text())
    except (OSError, ValueError):  # it is down, or its driver does not know
        return None
    return megabits * MEGABITS if megabits > 0 else None  # -1 is how drivers say that they do not know
