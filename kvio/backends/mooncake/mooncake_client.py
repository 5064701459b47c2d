"""A client of a Mooncake store, by way of its Python package.

The package logs much and gives numbers for errors; here a failure is one line.  Names and numbers of its errors are
those of mooncake-store/include/types.h (github.com/kvcache-ai/Mooncake, 0.3.13).

Where a Mooncake store is, as a backend's options say.
"""

import atexit
import ctypes
import importlib
import importlib.util
import os
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from kvio.backends.s3.bucket import ObjectError
from kvio.protocol import HostTarget, KVIOError

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


LIBRARIES = "apt-get install libcurl4 libibverbs1 libnuma1 librdmacm1"
CONNECT_LIMIT_S = 5.0
BUFFER_BYTES = 1 << 20  # of the client itself; what is read or placed has registered buffers of its own
SETTINGS = {
    "MC_MMAP_ARENA_POOL_SIZE": str(64 << 20),  # its own default reserves 8 GiB
    "MC_STORE_CLIENT_SETUP_RETRIES": "1",  # of its own it tries for a minute and a half
    "MC_STORE_MEMCPY": "0",  # bytes take the transport that the data path names, never a short cut
}
GLOG_LEVEL, GLOG_FATAL = "_ZN3fLI17FLAGS_minloglevelE", 3  # glog, src/glog/logging.h
FULL, INVALID, NOT_READY, NOT_FOUND = -200, -600, -703, -704
CAUSES = {
    FULL: "the store is full, or nothing is mounted in it; free some, or try a smaller --working-set",
    INVALID: "Mooncake calls the request invalid",
    NOT_READY: "the object is not whole",
    NOT_FOUND: "there is no such object; it was evicted or removed while the run went on",
    -707: "its lease ran out before the bytes had arrived",
    -800: "the transfer failed; do the processes that hold the store's memory run?",
    -900: "the master does not answer",
    -901: "the master does not answer in time",
    -1700: "the tenant's quota is used up",
}
NOTHING_UNDER_WAY = frozenset({FULL, INVALID, NOT_READY, NOT_FOUND, -707, -900, -901})


def is_installed() -> bool:
    """Whether the package is there; imports nothing."""
    return importlib.util.find_spec("mooncake") is not None


def load_mooncake() -> ModuleType:
    """The module; only this file imports it, and only when it is needed.

    Raises:
        KVIOError: it is not installed, or a library of the system is missing.
    """
    if not is_installed():
        raise KVIOError(f"mooncake is not installed; {INSTALL}")
    for name, value in SETTINGS.items():  # read when it is loaded
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("mooncake.store")
    except ImportError as error:
        raise KVIOError(f"Mooncake cannot be loaded: {' '.join(str(error).split())}; {LIBRARIES}") from None


def say(code: int) -> str:
    """What an error of Mooncake means."""
    return f"{CAUSES.get(code, 'Mooncake failed')} (error {code})"


class StoreClient:
    """One connection to a master, and through it to the memory of a store; threads may share it.

    Args:
        address: where the store is, and which transport leads there.
        master: host and port of the master.
        segment_bytes: memory that this process gives to the store; 0 for a client that only uses it.

    Raises:
        KVIOError: the package is not there, nobody answers, or the transport cannot be had.
    """

    def __init__(self, address: MooncakeAddress, master: str, *, segment_bytes: int = 0) -> None:
        self.name = f"{address.name}"
        module = load_mooncake()
        self._config = module.ReplicateConfig()
        self._config.replica_num = address.replicas
        self._replicas = address.replicas
        self._config.with_hard_pin = True  # what is measured must not be evicted to make room
        own_address = _require_answer(address, master)
        before = _count_rdma_files()
        self._store: Any = module.MooncakeDistributedStore()
        if not segment_bytes:
            _quieten()
        code = self._store.setup(
            {
                "local_hostname": address.hostname or own_address,
                "metadata_server": address.metadata,
                "global_segment_size": str(segment_bytes),
                "local_buffer_size": str(BUFFER_BYTES),
                "protocol": address.protocol,
                "rdma_devices": address.devices,
                "master_server_addr": master,
            }
        )
        if code:
            raise ObjectError(
                f"{self.name}: no connection ({say(code)}); other options protocol, metadata, hostname"
            )
        self.transport = "rdma" if _count_rdma_files() > before else "tcp"
        if self.transport != address.protocol:  # Mooncake falls back without a word
            self.close()
            raise ObjectError(
                f"{self.name}: {address.protocol} was asked for, and Mooncake uses {self.transport}: no RDMA device "
                f"was opened; try --option protocol={self.transport}"
            )

    def register(self, target: HostTarget) -> None:
        """Let bytes arrive in, or leave from, this memory.

        Raises:
            KVIOError: refused.
        """
        code = self._store.register_buffer(target.address, target.num_bytes)
        if code:
            raise KVIOError(
                f"mooncake: a buffer of {target.num_bytes} bytes cannot be registered ({say(code)}); raise ulimit -l"
            )

    def deregister(self, target: HostTarget) -> None:
        """Undo `register`."""
        self._store.unregister_buffer(target.address)

    def put(self, key: str, source: HostTarget, num_bytes: int) -> None:
        """Make an object of the first bytes of `source`, registered memory.

        Raises:
            ObjectError: the store is full, it failed, or there are fewer copies than asked for.
        """
        code = self._store.put_from(key, source.address, num_bytes, self._config)
        if code:
            raise ObjectError(f"{self.name}: {key}: {say(code)}")
        copies = len(self._store.get_replica_desc(key))
        if copies < self._replicas:  # which Mooncake calls a success
            raise ObjectError(
                f"{self.name}: {key}: {copies} of {self._replicas} copies were made, each needs a process of its own that "
                f"gives memory; try --option replicas={max(1, copies)}"
            )

    def get_whole(self, keys: Sequence[str], addresses: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Bring whole objects, all at once; bytes of each that arrived, or the number of an error."""
        return [int(n) for n in self._store.batch_get_into(list(keys), list(addresses), list(sizes))]

    def get_ranges(
        self, keys: Sequence[str], addresses: Sequence[int], ranges: Sequence[tuple[int, int]]
    ) -> list[int]:
        """Bring a part of each object, `(start, size)`, all at once; results as of `get_whole`."""
        found = self._store.get_into_ranges(
            list(addresses),
            [[key] for key in keys],
            [[[0]] for _ in keys],
            [[[start]] for start, _ in ranges],
            [[[size]] for _, size in ranges],
        )
        return [int(of_object[0]) for (of_object,) in found]

    def size_bytes(self, key: str) -> int | None:
        """Size of an object; None where there is none.

        Raises:
            ObjectError: it cannot be asked.
        """
        found = int(self._store.get_size(key))
        if found == NOT_FOUND:
            return None
        if found < 0:
            raise ObjectError(f"{self.name}: {key}: {say(found)}")
        return found

    def remove_below(self, folder: str, *, but: Sequence[str] = ()) -> int:
        """Remove all objects below `folder`, read lately or not, but for those in folders of these names in it.

        Gives their number.

        Raises:
            ObjectError: it failed.
        """
        spared = "|".join(re.escape(name) for name in but)
        pattern = f"^{re.escape(folder)}/" + (f"(?!(?:{spared})/)" if spared else "")
        found = int(self._store.remove_by_regex(pattern, True))
        if found < 0:
            raise ObjectError(f"{self.name}: {folder}: {say(found)}")
        return found

    def close(self) -> None:
        """Leave the store, and take the memory given back; safe to call twice."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


_SHARED: dict[tuple[MooncakeAddress, str], StoreClient] = {}
_LOCK = threading.Lock()


def shared_client(address: MooncakeAddress, master: str) -> StoreClient:
    """The client of this process, made when first asked for: it has dozens of threads, and leaving takes a second."""
    with _LOCK:
        if (address, master) not in _SHARED:
            _SHARED[address, master] = StoreClient(address, master)
        return _SHARED[address, master]


def close_clients(master: str | None = None) -> None:
    """Close those of this master, or all: while it still answers."""
    with _LOCK:
        for found in [key for key in _SHARED if master in {None, key[1]}]:
            _SHARED.pop(found).close()


atexit.register(close_clients)


def _require_answer(address: MooncakeAddress, master: str) -> str:
    """This machine's address as the master sees it."""
    host, _, port = master.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_LIMIT_S) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        why = error.strerror or "no answer"
        if address.master is None:
            raise ObjectError(
                f"{address.name}: {why}: the mooncake_master that it was started with is gone, and all that it held"
            ) from None
        raise ObjectError(
            f"{address.name}: {why}; start mooncake_master there, or name another --option master="
        ) from None


def _quieten() -> None:
    """Let its logger say fatal things alone: what it logs as errors is raised here, and said once.

    No variable of the environment does that: Mooncake sets the level anew when its first store is made.
    """
    lines = Path("/proc/self/maps").read_text().splitlines()
    path = next((line.split(maxsplit=5)[-1] for line in lines if "/libglog" in line), None)
    if path is not None:
        ctypes.c_int32.in_dll(ctypes.CDLL(path), GLOG_LEVEL).value = GLOG_FATAL


def _count_rdma_files() -> int:
    """RDMA devices that this process holds open, as its descriptors tell."""
    return sum(1 for file in Path("/proc/self/fd").iterdir() if _link_of(file).startswith("/dev/infiniband/"))


def _link_of(file: Path) -> str:
    try:
        return str(file.readlink())
    except FileNotFoundError:  # the descriptor of the listing itself
        return ""
