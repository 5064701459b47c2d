"""A Mooncake store of a run's own, on loopback: a master, and processes that give memory to it.

All of them end with the process that started them, even by kill -9, and with them all that the store held.  The
master's address lies in the run's scratch directory, for the processes that read.
"""

import select
import socket
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import psutil

from kvio.alignment import round_up
from kvio.backends.mooncake.mooncake_client import LOOPBACK, MooncakeAddress, StoreClient, load_mooncake
from kvio.backends.s3.object_placement import scratch_of
from kvio.child_process import start_child, stop_child
from kvio.protocol import KVIOError
from kvio.store.store_files import os_errors_as_store_errors

ADDRESS_NAME, LOG_NAME = "mooncake-master", "mooncake.log"
READY_LIMIT_S = 20.0
ASK_AGAIN_S = 0.05
NUM_ATTEMPTS = 3  # somebody may take a port between our choice and the master
ROOM_SHARE, ROOM_BYTES, ALIGN_BYTES = (
    1.125,
    64 << 20,
    16 << 20,
)  # beyond the objects' own bytes: the allocator's rounding
CLIENT_LIMIT_S = 60  # a busy machine's segment must not be taken for dead; Mooncake's own is 10 s
LEAVE_LIMIT_S = 10.0
READY, SILENT = b"ready\n", f"it says nothing for {READY_LIMIT_S:g} s".encode()


def find_master(address: MooncakeAddress, directory: Path | None) -> str:
    """Host and port of the master: as named, else of the run whose scratch directory `directory` is in.

    Raises:
        KVIOError: no store was started there.
    """
    if address.master is not None:
        return address.master
    if directory is not None:
        found = scratch_of(directory) / ADDRESS_NAME
        if found.is_file():
            return found.read_text().strip()
    raise KVIOError(
        f"{address.name}: it was not started, or has ended; name one with --option master=HOST:PORT"
    )


class OwnMaster:
    """A `mooncake_master` on loopback.

    Args:
        folder: a scratch directory; the log and the address go there.

    Raises:
        KVIOError: it is not installed, or does not get ready.
    """

    def __init__(self, folder: Path) -> None:
        load_mooncake()  # says what is missing better than the program does
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        for _ in range(NUM_ATTEMPTS):
            port = _free_port()
            self.address = f"{LOOPBACK}:{port}"
            self._process = self._start(port)
            if self._gets_ready(self._process, port):
                try:
                    with os_errors_as_store_errors(folder):
                        (folder / ADDRESS_NAME).write_text(self.address)
                except KVIOError:
                    self.stop()
                    raise
                return
            self.stop()
        raise KVIOError(f"mooncake_master does not get ready: {_last_line(folder / LOG_NAME)}")

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        with _open_log(self._folder) as log:
            return start_child(
                [
                    str(_find_program()),
                    f"-rpc_address={LOOPBACK}",
                    f"-rpc_port={port}",
                    f"-metrics_host={LOOPBACK}",
                    "-metrics_port=0",  # any
                    "-enable_metric_reporting=false",
                    f"-client_ttl={CLIENT_LIMIT_S}",
                    "-eviction_high_watermark_ratio=1.0",  # nothing is evicted, all of it is measured
                ],
                folder=self._folder,
                log=log,
            )

    @staticmethod
    def _gets_ready(process: subprocess.Popen[bytes], port: int) -> bool:
        for _ in range(round(READY_LIMIT_S / ASK_AGAIN_S)):
            try:
                with socket.create_connection((LOOPBACK, port), timeout=READY_LIMIT_S):
                    return process.poll() is None
            except OSError:
                pass
            try:
                process.wait(ASK_AGAIN_S)
            except subprocess.TimeoutExpired:
                continue
            return False
        return False

    def stop(self) -> None:
        """End it, and let the address go; safe to call twice."""
        with suppress(OSError):  # the folder may be gone, or its disk read-only
            (self._folder / ADDRESS_NAME).unlink(missing_ok=True)
        process, self._process = self._process, None
        if process is not None:
            stop_child(process)


class StoreSegment:
    """A process that gives memory to the store for as long as it runs.

    Args:
        master: host and port.
        object_bytes: what it must hold.
        folder: a scratch directory; the log goes there.

    Raises:
        KVIOError: this machine has not that much memory, or the process does not get ready.
    """

    def __init__(self, master: str, object_bytes: int, *, folder: Path) -> None:
        num_bytes = round_up(int(object_bytes * ROOM_SHARE) + ROOM_BYTES, ALIGN_BYTES)
        free_bytes = psutil.virtual_memory().available
        if num_bytes > free_bytes:
            raise KVIOError(
                f"a Mooncake store of {num_bytes / 1e9:.2f} GB does not fit into the {free_bytes / 1e9:.2f} GB of memory "
                "that are free; try a smaller --working-set, or a store of yours with --option master=HOST:PORT"
            )
        with _open_log(folder) as log:
            command = [sys.executable, "-m", __name__, master, str(num_bytes)]
            self._process = start_child(command, folder=folder, log=log, talks=True)
        assert self._process.stdout is not None
        talks, _, _ = select.select([self._process.stdout], [], [], READY_LIMIT_S)  # a stopped one never does
        said = self._process.stdout.readline() if talks else SILENT
        if said != READY:
            self.stop()
            why = said.decode(errors="replace").strip() or _last_line(folder / LOG_NAME)
            raise KVIOError(f"no memory could be given to the Mooncake store: {why}")

    def leave(self) -> None:
        """Take the memory back: the master no longer counts on it, and what lay there is gone."""
        stdin, self._process.stdin = self._process.stdin, None
        if stdin is not None:
            stdin.close()  # what it waits for
        with suppress(subprocess.TimeoutExpired):  # then the master finds out by itself, later
            self._process.wait(LEAVE_LIMIT_S)
        self.stop()

    def stop(self) -> None:
        """End it at once, where the master ends too."""
        stop_child(self._process)


def _open_log(folder: Path) -> BinaryIO:
    with os_errors_as_store_errors(folder):
        return (folder / LOG_NAME).open("ab")


def _find_program() -> Path:
    spec = find_spec("mooncake")
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():
        if (Path(place) / "mooncake_master").is_file():
            return Path(place) / "mooncake_master"
    raise KVIOError(
        "mooncake_master is not in the package; name a store of yours with --option master=HOST:PORT"
    )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1][-200:] if lines else "it says nothing"


def main() -> None:
    """Give memory to a store, say so, and hold it until nobody listens any more."""
    master, num_bytes = sys.argv[1:]
    try:
        client = StoreClient(MooncakeAddress(), master, segment_bytes=int(num_bytes))
    except KVIOError as error:
        print(error, flush=True)
        return
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    sys.stdin.buffer.read()
    client.close()


if __name__ == "__main__":
    main()
