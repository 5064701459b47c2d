"""Objects in a bucket of a real server: placed, read whole and by ranges, refused in one line, and withdrawn."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from kvio.backends import find_backend
from kvio.backends.config import BackendConfig
from kvio.backends.nixl.nixl_backend import find_marked, write_sentinels
from kvio.backends.nixl.nixl_plugin import load_nixl
from kvio.backends.s3.bucket import (
    LIMITS,
    PAST_THE_END,
    Address,
    Bucket,
    Limits,
    ObjectError,
    format_cause,
    read_address,
)
from kvio.backends.s3.object_placement import BucketPlacement, describe_owner, object_key
from kvio.backends.s3.s3_backend import S3Reader
from kvio.evidence.network_link import Interface, find_interface
from kvio.host_buffers import HostBuffer
from kvio.protocol import KVIOError, Read, ShortReadError
from kvio.store.scratch import clean_stale, open_scratch
from tests.helpers.servers import S3Server, require_s3, shared_s3

CONTENT = np.random.default_rng(5).bytes(20_000)


@pytest.fixture
def server() -> S3Server:
    require_s3()
    return shared_s3()


@pytest.fixture
def options(server: S3Server, tmp_path: Path) -> dict[str, str]:
    """Of the shared server, under a prefix of this test's own."""
    return {**server.options, "prefix": f"test/{tmp_path.name}"}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    with open_scratch(tmp_path) as directory:
        yield directory


def _file(scratch: Path, name: str = "chunk-000000.kv", content: bytes = CONTENT) -> Path:
    (scratch / "store-0").mkdir(exist_ok=True)
    path = scratch / "store-0" / name
    path.write_bytes(content)
    return path


def _bucket(options: dict[str, str]) -> Bucket:
    return Bucket(read_address(options))


def _keys(options: dict[str, str]) -> list[str]:
    return sorted(_bucket(options).list_keys(options["prefix"]))


def _read(options: dict[str, str], *reads: Read) -> tuple[bytes, str | None]:
    reader, buffer = S3Reader(BackendConfig(options=options)), HostBuffer(32_768)
    reader.open(reads[0].path)
    reader.read(reads, buffer.view)
    return buffer.array.tobytes(), reader.take_way()


def test_a_key_is_the_path_from_the_scratch_directory_on() -> None:
    path = Path("/mnt/kvcross-drive/data/kvcross-abc/store-0/chunk-000001.kv")
    assert object_key(path, "team/kv") == "team/kv/kvcross-abc/store-0/chunk-000001.kv"
    assert object_key(path, "") == "kvcross-abc/store-0/chunk-000001.kv"
    with pytest.raises(KVIOError, match="not in a scratch directory"):
        object_key(Path("/mnt/data/chunk"), "kv")


def test_placed_files_are_read_back_whole_and_by_ranges(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch)
    BucketPlacement(options, scratch).upload([path])
    held, way = _read(options, Read(path, 0, 20_000, 7))
    assert (held[7:20_007], way) == (CONTENT, "s3-whole")
    held, way = _read(options, Read(path, 100, 5000, 0), Read(path, 0, 100, 5000))
    assert (held[:5100], way) == (CONTENT[100:5100] + CONTENT[:100], "s3-ranged")
    assert _read(options, Read(path, 0, 20_000, 0), Read(path, 1, 1, 20_000))[1] == "s3-mixed"


def test_an_object_cut_short_on_the_server_is_a_short_read(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch)
    BucketPlacement(options, scratch).upload([path])
    _bucket(options).write(object_key(path, options["prefix"]), CONTENT[:5000])
    with pytest.raises(ShortReadError, match=r"chunk-000000\.kv: 5000 of 20000 bytes at offset 0"):
        _read(options, Read(path, 0, 20_000, 0))
    with pytest.raises(ShortReadError, match="1000 of 4096 bytes at offset 4000"):
        _read(options, Read(path, 4000, 4096, 0))
    with pytest.raises(ShortReadError, match="0 of 4096 bytes at offset 8192"):
        _read(options, Read(path, 8192, 4096, 0))


def test_nixl_says_done_of_a_short_object_and_is_not_believed(options: dict[str, str], scratch: Path) -> None:
    try:
        load_nixl()
    except KVIOError as error:
        pytest.skip(str(error))
    path, buffer = _file(scratch), HostBuffer(32_768)
    BucketPlacement(options, scratch).upload([path])
    _bucket(options).write(object_key(path, options["prefix"]), CONTENT[:5000])
    backend = find_backend("nixl-obj").make(BackendConfig(options=options))
    backend.attach([buffer.targets(1)[0]])
    backend.open(path)
    backend.submit(0, [Read(path, 0, 20_000, 0)], buffer.targets(1)[0])
    with pytest.raises(ShortReadError, match="5000 of 20000 bytes"):
        backend.wait()
    backend.close()


def test_a_mark_is_found_only_where_the_last_bytes_never_arrived() -> None:
    view = memoryview(bytearray(64))
    reads = [Read(Path("a"), 0, 32, 0), Read(Path("b"), 0, 3, 32), Read(Path("c"), 0, 0, 40)]
    write_sentinels(reads, view)
    assert find_marked(reads, view) == reads[0]
    view[0:32] = bytes(32)
    assert find_marked(reads, view) == reads[1]
    view[34:35] = bytes([view[34] ^ 1])
    assert find_marked(reads, view) is None


@pytest.mark.parametrize(
    ("changes", "secret", "said"),
    [
        ({"bucket": "kvcross-none"}, None, "there is no such bucket"),
        ({}, "wrong", "the server refuses the secret key"),
        ({"endpoint": "http://127.0.0.1:1"}, None, "no answer; check the endpoint"),
    ],
    ids=["bucket", "secret", "refused"],
)
def test_what_a_server_refuses_is_one_clear_line(
    options: dict[str, str],
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    secret: str | None,
    said: str,
) -> None:
    if secret is not None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with pytest.raises(ObjectError, match=said) as caught:
        BucketPlacement({**options, **changes}, scratch).open()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_metadata_service_that_was_asked_for_lack_of_a_key_means_that_there_are_no_credentials() -> None:
    text = "Error performing PUT http://169.254.169.254/latest/api/token: non-2xx status code: 403 Forbidden"
    assert format_cause(OSError(text)).startswith("no credentials in the environment; set AWS_ACCESS_KEY_ID")


@pytest.mark.parametrize(
    ("text", "past"),
    [
        ("Server returned non-2xx status code: 416 Requested Range Not Satisfiable: ", True),
        ("<Code>InvalidRange</Code>", True),
        ("Error performing GET http://127.0.0.1:41600/kvcross in 2.416ms - NoSuchKey", False),
    ],
    ids=["status", "code", "a time and a port"],
)
def test_the_end_of_an_object_is_told_by_the_status_and_not_by_any_number(text: str, past: bool) -> None:
    assert bool(PAST_THE_END.search(text)) == past


def test_a_missing_key_is_named_and_nothing_is_tried_twice(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch)
    with pytest.raises(ObjectError, match=r"store-0/chunk-000000\.kv: there is no such object"):
        _read(options, Read(path, 0, 20_000, 0))


@pytest.mark.parametrize("endpoint", ["http://user:geheim@127.0.0.1:1", "http://127.0.0.1:1/?key=geheim"])
def test_an_endpoint_with_a_secret_is_refused_and_not_repeated(endpoint: str) -> None:
    with pytest.raises(KVIOError, match="holds credentials or a query") as caught:
        read_address({"bucket": "kvcross", "endpoint": endpoint})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["ftp://127.0.0.1", "127.0.0.1:8333", "http://", "http://[::1"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(KVIOError, match=r"the endpoint .*is no"):
        read_address({"bucket": "kvcross", "endpoint": endpoint})


def test_without_an_endpoint_the_server_is_amazons() -> None:
    require_s3()
    address = read_address({"bucket": "kvcross", "region": "eu-west-1"})
    assert (address.host, address.port) == ("s3.eu-west-1.amazonaws.com", 443)
    assert Bucket(address).address.name == "bucket kvcross at Amazon S3"  # made, and nobody asked


def test_withdrawing_removes_this_run_and_nothing_else(options: dict[str, str], scratch: Path) -> None:
    placement, other = BucketPlacement(options, scratch), f"{options['prefix']}/thesis"
    _bucket(options).write(other, b"mine")
    placement.open()
    placement.upload([_file(scratch), _file(scratch, "state-000000.kv")])
    assert len(_keys(options)) == 4
    placement.remove()
    placement.remove()
    assert _keys(options) == [other]


PLACE = """
import signal, sys
from pathlib import Path
from kvio.backends.s3.object_placement import BucketPlacement
from kvio.store.scratch import open_scratch
options = dict(zip(("endpoint", "bucket", "prefix"), sys.argv[2:]))
with open_scratch(Path(sys.argv[1])) as scratch:
    (scratch / "store-0").mkdir()
    path = scratch / "store-0" / "chunk-000000.kv"
    path.write_bytes(bytes(4096))
    placement = BucketPlacement(options, scratch)
    placement.open()
    placement.upload([path])
    print(scratch.name, flush=True)
    signal.pause()
"""


def test_the_next_run_removes_what_a_killed_one_left_and_spares_the_living(
    options: dict[str, str], tmp_path: Path
) -> None:
    arguments = [options["endpoint"], options["bucket"], options["prefix"]]
    child = subprocess.Popen(
        [sys.executable, "-c", PLACE, str(tmp_path), *arguments], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    dead = [f"{options['prefix']}/{name}/{end}" for end in ("owner", "store-0/chunk-000000.kv")]
    foreign = f"{options['prefix']}/kvcross-foreign/owner"
    unmarked = f"{options['prefix']}/kvcross-unmarked/store-0/chunk-000000.kv"
    _bucket(options).write(foreign, b"another machine")
    _bucket(options).write(unmarked, b"not ours to judge")
    try:
        with open_scratch(tmp_path) as scratch:
            BucketPlacement(options, scratch).open()
            assert set(dead) <= set(_keys(options))  # it lives
            BucketPlacement(options, scratch).remove()
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert set(dead) <= set(_keys(options))
    clean_stale(tmp_path)
    with open_scratch(tmp_path) as scratch:
        BucketPlacement(options, scratch).open()
        BucketPlacement(options, scratch).remove()
    assert _keys(options) == sorted([foreign, unmarked])


def test_another_folder_has_another_owner(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    owners = {describe_owner(tmp_path / name) for name in "ab"}
    assert len(owners) == 2
    assert all(str(tmp_path) not in owner for owner in owners)


def test_other_bytes_than_were_placed_are_noticed(
    options: dict[str, str], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Bucket.write
    monkeypatch.setattr(
        Bucket, "write", lambda self, key, content: real(self, key, content[:-1] + bytes([content[-1] ^ 1]))
    )
    with pytest.raises(ObjectError, match="other bytes came back"):
        BucketPlacement(options, scratch).upload([_file(scratch)])
    monkeypatch.setattr(Bucket, "write", lambda self, key, content: real(self, key, content[:-1]))
    with pytest.raises(ObjectError, match="19999 bytes came back of 20000"):
        BucketPlacement(options, scratch).upload([_file(scratch)])


def test_loopback_has_no_speed_to_hold_a_rate_against(tmp_path: Path) -> None:
    assert find_interface("127.0.0.1", 1) == Interface("lo", None)
    folder = tmp_path / "sys/class/net/lo"
    folder.mkdir(parents=True)
    (folder / "speed").write_text("10000\n")
    assert find_interface("127.0.0.1", 1, tmp_path).bytes_per_s is None


def test_without_the_client_a_probe_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    why = find_backend("s3").probe(tmp_path, {"bucket": "kvcross"})
    assert why is not None
    assert (why.reason, why.remedy) == (
        "obstore is not installed",
        "pip install -c constraints.txt -e '.[s3]'",
    )
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - names alone


SHORT = Limits(connect_s=5.0, silence_s=0.2, answer_s=0.2, read_s=60.0)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nETag: \"1\"\r\n"
    b"Last-Modified: Mon, 30 Nov 2026 00:00:00 GMT\r\n\r\n"
)  # fmt: skip


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    require_s3()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-access")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """The kernel accepts what comes, and nobody reads it."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield listening


def _bucket_of_silent_server(listener: socket.socket) -> Bucket:
    port = listener.getsockname()[1]
    return Bucket(Address(f"http://127.0.0.1:{port}", "kv", "us-east-1", "kvcross"), SHORT)


REQUESTS: dict[str, Callable[[Bucket], object]] = {
    "list": lambda bucket: bucket.list_keys("kvcross"),
    "folders": lambda bucket: bucket.list_folders("kvcross"),
    "size": lambda bucket: bucket.size_bytes("chunk"),
    "remove": lambda bucket: bucket.remove(["chunk"]),
    "put": lambda bucket: bucket.write("chunk", bytes(1000)),
    "get": lambda bucket: bucket.read("chunk"),
    "get into": lambda bucket: bucket.read_into("chunk", 0, target=memoryview(bytearray(9)), whole=False),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_server_that_accepts_and_is_silent_is_said_to_hang(
    listener: socket.socket, request_: Callable[[Bucket], object]
) -> None:
    with pytest.raises(ObjectError, match="did not answer in time; the server hangs") as caught:
        request_(_bucket_of_silent_server(listener))
    assert "\n" not in str(caught.value)


def test_a_body_that_stops_coming_is_given_up_long_before_the_limit_of_the_whole(
    listener: socket.socket,
) -> None:
    ended = threading.Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(HEAD + bytes(10))
            ended.wait(30)

    serving = threading.Thread(target=answer)
    serving.start()
    try:
        with pytest.raises(ObjectError, match="did not answer in time"):
            _bucket_of_silent_server(listener).read_into(
                "chunk", 0, target=memoryview(bytearray(1000)), whole=True
            )
    finally:
        ended.set()
        serving.join()


def test_an_upload_has_time_for_its_bytes_and_all_else_half_a_minute_at_most() -> None:
    assert (LIMITS.silence_s, LIMITS.answer_s) == (30.0, 15.0)
    assert [LIMITS.upload_s(num_bytes) for num_bytes in (0, 1 << 20, 32 << 20, 512 << 20)] == [
        32,
        32,
        64,
        1024,
    ]
