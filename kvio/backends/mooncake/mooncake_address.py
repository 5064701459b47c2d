"""Where a Mooncake store is, as a backend's options say."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from kvio.protocol import KVIOError

INSTALL = "pip install -c constraints.txt -e '.[mooncake]'"
OPTIONS = {
    "master": "host:port of mooncake_master; default: a store in this machine's memory, started for the run",
    "metadata": "metadata server of the cluster, http://…/metadata or etcd://…; default P2PHANDSHAKE, none",
    "protocol": "tcp (default) or rdma; never whichever works",
    "devices": "RDMA devices with commas; default: Mooncake chooses",
    "hostname": "name or address of this machine, as the store's others reach it; default: that towards the master",
    "replicas": "copies of each object; default 1",
    "prefix": "before the keys of all objects; default kvcross",
}
PROTOCOLS = ("tcp", "rdma")
LOOPBACK = "127.0.0.1"
NO_METADATA = "P2PHANDSHAKE"  # the members of a cluster ask one another


@dataclass(frozen=True, slots=True)
class MooncakeAddress:
    """A store, and the way to it; holds no secret, so that it can be recorded.

    Args:
        master: host and port; None for a store that the run starts and ends.
        metadata, protocol, devices, hostname: of the transfer engine.
        replicas: copies of each object that is placed.
        prefix: before all keys.
    """

    master: str | None = None
    metadata: str = NO_METADATA
    protocol: str = "tcp"
    devices: str = ""
    hostname: str | None = None
    replicas: int = 1
    prefix: str = "kvcross"

    @property
    def name(self) -> str:
        """For people."""
        return f"Mooncake store at {self.master}" if self.master else "Mooncake store of this run"

    @property
    def host(self) -> str | None:
        """Where the bytes come from; not known of a user's store: the master's host may hold none of them."""
        return None if self.master else LOOPBACK

    @property
    def remote(self) -> bool:
        """Whether it is a store of the user's, wherever its memory is."""
        return self.master is not None

    @property
    def port(self) -> int:
        """Any: the route to a host is the same for all."""
        return 1


def read_mooncake(options: Mapping[str, str]) -> MooncakeAddress:
    """The address in a backend's options.

    Raises:
        KVIOError: an option is wrong, or needs a master.
    """
    own = "master" not in options
    extra = sorted(set(options) & set(OPTIONS) - {"prefix"}) if own else []
    if extra:
        raise KVIOError(
            f"the Mooncake store that a run starts is on loopback over TCP, and has no {extra[0]!r}; "
            "name a store of yours with --option master=HOST:PORT"
        )
    if not own:
        _require_master(options["master"])
    metadata = options.get("metadata", NO_METADATA)
    if "@" in metadata or urlsplit(metadata).query:
        # not repeated here: what is recorded or printed must not hold it
        raise KVIOError("the metadata server's address holds credentials or a query; name it without")
    protocol = options.get("protocol", "tcp")
    if protocol not in PROTOCOLS:
        raise KVIOError(
            f"mooncake has no protocol {protocol!r}; try --option protocol= one of {', '.join(PROTOCOLS)}"
        )
    replicas = options.get("replicas", "1")
    if not replicas.isdecimal() or not int(replicas):
        raise KVIOError(f"replicas is {replicas!r}, not a number of copies; try --option replicas=1")
    return MooncakeAddress(
        options.get("master"),
        metadata,
        protocol,
        options.get("devices", ""),
        options.get("hostname"),
        int(replicas),
        options.get("prefix", "kvcross").strip("/"),
    )


def _require_master(master: str) -> None:
    try:
        parts = urlsplit(f"//{master}")
        named = bool(parts.hostname and parts.port) and parts.netloc == master and "@" not in master
    except ValueError:
        named = False
    if not named:
        raise KVIOError("the master is no host:port; try --option master=127.0.0.1:50051")
