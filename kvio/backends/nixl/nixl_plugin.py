"""NIXL's wheel and plugins: loading them, their parameters, and the traces that show which queue is at work.

The extra installs the wheel nixl-cu12 alone: it needs nothing but torch and numpy, while the package `nixl` asks for
the wheels of every CUDA version at once.
"""

import importlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kvio.backends.s3.bucket import Address
from kvio.protocol import KVIOError

Plugin = Literal["POSIX", "GDS_MT", "OBJ"]
INSTALL = "pip install -c constraints.txt -e '.[nixl]'"
WHEELS = ("nixl_cu13", "nixl_cu12")  # the module that each wheel brings; the first that is there
QUEUES = {
    "aio": "use_aio",
    "uring": "use_uring",
    "posix_aio": "use_posix_aio",
}  # option -> POSIX plugin's parameter
POSIX_OPTIONS = {"queue": "how NIXL's POSIX plugin reads: aio (default), uring or posix_aio"}
SEEN_OF = {
    "aio": "/[aio]",
    "uring": "anon_inode:[io_uring]",
}  # what a queue leaves in this process's maps or files
# one attempt for each request: read by the AWS SDK when the plugin is made; the number alone changes nothing
NO_RETRIES = {"AWS_MAX_ATTEMPTS": "1", "AWS_RETRY_MODE": "standard"}


@dataclass(frozen=True, slots=True)
class Wheel:
    """What NIXL offers to Python, and all that it raises."""

    api: Any
    errors: tuple[type[Exception], ...]


def load_nixl() -> Wheel:
    """The wheel that is installed; only this file imports it, and only when it is needed.

    Raises:
        KVIOError: none is, or it cannot be loaded.
    """
    os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")  # what it logs as errors is raised, and said once
    for name in WHEELS:
        if importlib.util.find_spec(name) is None:
            continue
        try:
            api, bindings = (importlib.import_module(f"{name}.{part}") for part in ("_api", "_bindings"))
        except ImportError as error:
            raise KVIOError(f"NIXL cannot be loaded: {one_line(error)}") from None
        kinds = (kind for kind in vars(bindings).values() if isinstance(kind, type))
        own = [kind for kind in kinds if issubclass(kind, Exception)]
        return Wheel(api, (*own, RuntimeError, KeyError))  # the last two: no plugin, none of that name
    raise KVIOError(f"nixl is not installed; {INSTALL}")


def make_agent(wheel: Wheel, plugin: Plugin, *, name: str, parameters: Mapping[str, str]) -> Any:  # noqa: ANN401
    """An agent with this plugin and no other.

    Raises:
        KVIOError: the plugin cannot be made.
    """
    config = wheel.api.nixl_agent_config(backends=[], enable_prog_thread=False)
    try:
        with _set_environment(NO_RETRIES if plugin == "OBJ" else {}):
            agent = wheel.api.nixl_agent(name, config)
            agent.create_backend(plugin, dict(parameters))
    except wheel.errors as error:
        raise KVIOError(f"NIXL's {plugin} plugin cannot be used: {one_line(error)}") from None
    return agent


def read_queue(options: Mapping[str, str]) -> str:
    """The queue of the POSIX plugin.

    Raises:
        KVIOError: there is none of that name.
    """
    queue = options.get("queue", "aio")
    if queue not in QUEUES:
        raise KVIOError(f"nixl has no queue {queue!r}; try --option queue= one of {', '.join(QUEUES)}")
    return queue


def plugin_parameters(queue: str, address: Address | None) -> dict[str, str]:
    """What the plugin is made with: its queue, or its bucket; credentials are left to the AWS SDK's own chain."""
    if address is not None:
        scheme = "http" if (address.endpoint or "").startswith("http://") else "https"
        named = {"bucket": address.bucket, "region": address.region, "scheme": scheme}
        if address.endpoint is not None:
            named |= {"endpoint_override": address.endpoint, "use_virtual_addressing": "false"}
        return named
    return {QUEUES[queue]: "true"} if queue else {}


def count_traces(queue: str) -> int:
    """Traces of this queue in this process: memory mapped for libaio's rings, files of io_uring."""
    mark = SEEN_OF.get(queue)
    if mark is None:
        return 0
    if queue == "aio":
        return Path("/proc/self/maps").read_text().count(mark)
    return sum(1 for file in Path("/proc/self/fd").iterdir() if _link_of(file) == mark)


def _link_of(file: Path) -> str | None:
    try:
        return str(file.readlink())
    except FileNotFoundError:  # the descriptor of the listing itself
        return None


@contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def one_line(error: BaseException) -> str:
    """What it says, shortened; its kind where it says nothing."""
    return " ".join(str(error).split())[:200] or type(error).__name__
