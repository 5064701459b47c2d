"""A bucket of an S3 server, by way of obstore.

Compared on one machine against SeaweedFS over loopback, 32 MiB objects, interleaved medians of five on two busy
cores, GB/s whole by one and four threads, 4 MiB ranges by one and four: obstore streaming 0.28, 0.52, 0.32, 0.38;
obstore collecting 0.25, 0.34, 0.54, 0.40; boto3 0.21, 0.30, 0.27, 0.36; awscrt 0.12, 0.12 whole.  obstore also
retries nothing when told so, leaves the GIL while it waits, is one wheel of 16 MB with types, and pins nothing;
botocore refuses the python-dateutil that the rest of this project runs on.  A body is taken as a stream of pieces,
each copied once into the caller's buffer: no piece is collected into an object of its own size first.

Where a bucket of an S3 server is.
"""

import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from kvio.protocol import KVIOError, ShortReadError

OPTIONS = {
    "endpoint": "address of the server, http://127.0.0.1:8333; default Amazon's",
    "bucket": "name of the bucket; it must exist",
    "region": "region that requests are signed for; default us-east-1",
    "prefix": "before the keys of all objects; default kvcross",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a bucket is; holds no credentials, so that it can be recorded.

    Args:
        endpoint: of the server; None is Amazon's.
        prefix: before all keys.
    """

    endpoint: str | None
    bucket: str
    region: str
    prefix: str

    @property
    def name(self) -> str:
        """For people."""
        return f"bucket {self.bucket} at {self.endpoint or 'Amazon S3'}"

    @property
    def host(self) -> str:
        """The server that is spoken to."""
        found = urlsplit(self.endpoint).hostname if self.endpoint else None
        return found or f"s3.{self.region}.amazonaws.com"

    @property
    def remote(self) -> bool:
        """No run starts one."""
        return True

    @property
    def port(self) -> int:
        """Of the server."""
        parts = urlsplit(self.endpoint or "https://")
        return parts.port or (80 if parts.scheme == "http" else 443)


def read_address(options: Mapping[str, str]) -> Address:
    """The address in a backend's options.

    Raises:
        KVIOError: no bucket, or an endpoint that is no plain http(s) address, or that holds a secret.
    """
    if not options.get("bucket"):
        raise KVIOError(
            "no bucket is named; try --option bucket=kvcross --option endpoint=http://127.0.0.1:8333"
        )
    endpoint = options.get("endpoint")
    if endpoint is not None:
        _require_plain(endpoint)
    return Address(
        endpoint,
        options["bucket"],
        options.get("region", "us-east-1"),
        options.get("prefix", "kvcross").strip("/"),
    )


def _require_plain(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        named = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise KVIOError("the endpoint is no address; try --option endpoint=http://127.0.0.1:8333") from None
    if parts.username or parts.password or parts.query:
        # not repeated here: what is recorded or printed must not hold it
        raise KVIOError(
            "the endpoint holds credentials or a query; set AWS_ACCESS_KEY_ID and … in the environment"
        )
    if not named:
        raise KVIOError(f"the endpoint {endpoint!r} is no http:// or https:// address")


INSTALL = "pip install -c constraints.txt -e '.[s3]'"
PIECE_BYTES = (
    1 << 20
)  # of a stream: large enough to be cheap, small enough to be copied while the next arrives
SLOWEST_BYTES_PER_S = 1e6  # that an upload is given time for
PAST_THE_END = re.compile(r"\bstatus code: 416\b|InvalidRange")  # the number alone may be a time or a port
CAUSES = {  # what servers say in their answers -> what to say and to try; the first that fits
    "169.254.169.254": "no credentials in the environment; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "NoSuchBucket": "there is no such bucket; create it, or name another with --option bucket=",
    "NoSuchKey": "there is no such object; it was removed while the run went on",
    "InvalidAccessKeyId": "the server does not know this access key; check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the server refuses the secret key; check AWS_SECRET_ACCESS_KEY",
    "AccessDenied": "access denied; the credentials do not permit this",
    "403 Forbidden": "access denied; check the credentials in the environment",
    "InvalidBucketName": "the server takes no bucket of that name",
    "credential": "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "kind: Timeout": "it did not answer in time; the server hangs, or the way to it is cut",
    "error sending request": "no answer; check the endpoint, and that the server runs",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a server may take.

    Args:
        connect_s: until it accepts.
        silence_s: without a byte of what is read from it; of an upload, beyond the time for its bytes.
        answer_s: for a listing, a size or a removal.
        read_s: for one object; a large one over a slow link comes steadily, and is not cut off.
    """

    connect_s: float = 5.0
    silence_s: float = 30.0
    answer_s: float = 15.0
    read_s: float = 600.0

    def upload_s(self, num_bytes: int) -> float:
        """For an upload, in steps of two: objects of about one size share their connections."""
        needed_s = self.silence_s + num_bytes / SLOWEST_BYTES_PER_S
        return float(2.0 ** math.ceil(math.log2(needed_s)))


LIMITS = Limits()


class ObjectError(KVIOError):
    """An object cannot be read, written, listed or removed."""


class Bucket:
    """Objects of one bucket; one request is one attempt.  Credentials come from the environment alone.

    Args:
        address: of the bucket.
        limits: after which a server that accepts and does not answer is given up.

    Raises:
        KVIOError: obstore is not installed, or refuses the address.
    """

    def __init__(self, address: Address, limits: Limits = LIMITS) -> None:
        self.address = address
        self._limits = limits
        self._obstore = load_obstore()
        self._clients: dict[tuple[float, float], Any] = {}
        self._reading = self._client(limits.read_s, limits.silence_s)

    def _client(self, limit_s: float, silence_s: float) -> Any:  # noqa: ANN401 - an untyped package
        """A client whose requests end after these times; obstore takes them for all requests of a client alike."""
        if (limit_s, silence_s) in self._clients:
            return self._clients[limit_s, silence_s]
        address = self.address
        try:
            made = importlib.import_module("obstore.store").S3Store(
                address.bucket,
                **({} if address.endpoint is None else {"endpoint": address.endpoint}),
                region=address.region,
                client_options={
                    "allow_http": (address.endpoint or "").startswith("http://"),
                    "timeout": timedelta(seconds=limit_s),
                    "read_timeout": timedelta(seconds=silence_s),
                    "connect_timeout": timedelta(seconds=self._limits.connect_s),
                },
                retry_config={"max_retries": 0},  # a retry would hide in the time of a sample
            )
        except self._errors as error:
            raise ObjectError(f"{address.name}: {format_cause(error)}") from None
        self._clients[limit_s, silence_s] = made
        return made

    @property
    def _asking(self) -> Any:  # noqa: ANN401 - an untyped package
        """The client for what is answered at once."""
        return self._client(self._limits.answer_s, self._limits.answer_s)

    @property
    def _errors(self) -> tuple[type[BaseException], ...]:
        return (self._obstore.exceptions.BaseError, OSError, ValueError)

    def _failed(self, error: BaseException, key: str) -> ObjectError:
        return ObjectError(f"{self.address.name}: {key or 'listing'}: {format_cause(error)}")

    def read_into(self, key: str, start: int, *, target: memoryview, whole: bool) -> None:
        """Fill `target` with the object's bytes from `start` on; `whole` asks for the object without a range.

        Raises:
            ShortReadError: the object ends before `target` is full, or has more than `target` where all was asked.
            ObjectError: the request failed.
        """
        wanted = len(target)
        options = {} if whole else {"range": (start, start + wanted)}
        arrived = 0
        try:
            answer = self._obstore.get(self._reading, key, options=options)
            if answer.range != (start, start + wanted):
                first, end = answer.range
                raise ShortReadError(
                    f"{key}: {end - first} of {wanted} bytes at offset {start} in {self.address.name}"
                )
            for piece in answer.stream(min_chunk_size=PIECE_BYTES):
                target[arrived : arrived + len(piece)] = piece
                arrived += len(piece)
        except self._errors as error:
            if PAST_THE_END.search(str(error)):
                raise ShortReadError(
                    f"{key}: 0 of {wanted} bytes at offset {start} in {self.address.name}"
                ) from None
            raise self._failed(error, key) from None
        if arrived != wanted:
            raise ShortReadError(
                f"{key}: {arrived} of {wanted} bytes at offset {start} in {self.address.name}"
            )

    def write(self, key: str, content: bytes) -> None:
        """Make or replace an object with one request.

        Raises:
            ObjectError: it failed.
        """
        try:
            limit_s = self._limits.upload_s(len(content))
            self._obstore.put(self._client(limit_s, limit_s), key, content, use_multipart=False)
        except self._errors as error:
            raise self._failed(error, key) from None

    def read(self, key: str) -> bytes | None:
        """All of an object; None where there is none.

        Raises:
            ObjectError: the request failed.
        """
        try:
            return bytes(self._obstore.get(self._reading, key).bytes())
        except FileNotFoundError as error:
            if "NoSuchKey" in str(error):
                return None
            raise self._failed(error, key) from None
        except self._errors as error:
            raise self._failed(error, key) from None

    def size_bytes(self, key: str) -> int | None:
        """Size of an object; None where there is none.

        Raises:
            ObjectError: the request failed.
        """
        try:
            return int(self._obstore.head(self._asking, key)["size"])
        except FileNotFoundError:
            return None
        except self._errors as error:
            raise self._failed(error, key) from None

    def list_keys(self, folder: str) -> list[str]:
        """Keys below `folder`.

        Raises:
            ObjectError: there is no such bucket, or it may not be listed.
        """
        try:
            return [
                str(found["path"])
                for page in self._obstore.list(self._asking, prefix=folder)
                for found in page
            ]
        except self._errors as error:
            raise self._failed(error, "") from None

    def list_folders(self, folder: str) -> list[str]:
        """Names of the folders right below `folder`.

        Raises:
            ObjectError: there is no such bucket, or it may not be listed.
        """
        try:
            found: Iterable[Any] = self._obstore.list_with_delimiter(self._asking, folder or None)[
                "common_prefixes"
            ]
        except self._errors as error:
            raise self._failed(error, "") from None
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)

    def remove(self, keys: Sequence[str]) -> None:
        """Remove these objects; those that are gone already do no harm.

        Raises:
            ObjectError: it failed.
        """
        if not keys:
            return
        try:
            self._obstore.delete(self._asking, list(keys))
        except FileNotFoundError:
            return
        except self._errors as error:
            raise self._failed(error, keys[0]) from None


def load_obstore() -> ModuleType:
    """The module; only this file imports it, and only when it is needed.

    Raises:
        KVIOError: it is not installed.
    """
    try:
        importlib.import_module("obstore.exceptions")
        return importlib.import_module("obstore")
    except ModuleNotFoundError:
        raise KVIOError(f"obstore is not installed; {INSTALL}") from None


def format_cause(error: BaseException) -> str:
    """What went wrong in a few words: obstore's own text runs over many lines and repeats the request."""
    text = str(error)
    for mark, cause in CAUSES.items():
        if mark in text:
            return cause
    return " ".join(text.split())[:200]
