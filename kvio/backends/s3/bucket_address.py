"""Where a bucket of an S3 server is."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from kvio.protocol import KVIOError

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
