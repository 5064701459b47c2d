"""A server that accepts, and does not answer, is given up after a time: every request has one."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from kvio.backends.s3.bucket import LIMITS, Address, Bucket, Limits, ObjectError
from tests.servers import require_s3

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


def _bucket(listener: socket.socket) -> Bucket:
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
        request_(_bucket(listener))
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
            _bucket(listener).read_into("chunk", 0, target=memoryview(bytearray(1000)), whole=True)
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
