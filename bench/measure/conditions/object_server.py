"""The server that a load series reads from, and what is not known of it."""

from dataclasses import dataclass

from bench.measure.setup import LoadSeries
from bench.record.notices import Notice, kind_of
from kvio.backends import find_backend
from kvio.evidence.network_link import Interface, find_interface
from kvio.protocol import ServerAddress


@dataclass(frozen=True, slots=True)
class Server:
    """Where objects are read from, and by which interface."""

    address: ServerAddress
    interface: Interface

    @property
    def name(self) -> str:
        """For people: "bucket kv at http://127.0.0.1:8333, over loopback …"."""
        return f"{self.address.name}, {self.interface.says}"


def find_server(load: LoadSeries) -> Server | None:
    """The server of a series; None when it reads what lies on this machine."""
    read_address = find_backend(load.spec.backend).server
    if read_address is None:
        return None
    address = read_address(load.spec.options)
    host = address.host
    return Server(address, Interface(None, None) if host is None else find_interface(host, address.port))


def server_notices(load: LoadSeries) -> tuple[Notice, ...]:
    """What cannot be known of a series' reads, for the header."""
    server = find_server(load)
    if server is None:
        return ()
    codes = ["server_caches_unknown"]
    codes += ["link_rate_unknown"] if server.interface.bytes_per_s is None else []
    return tuple(Notice(kind=code, series=load.name, detail=kind_of(code).meaning) for code in codes)
