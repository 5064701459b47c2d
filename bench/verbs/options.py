"""What the verbs share: how options are declared and read, and where results go."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from bench.measure.plan import PlanError
from bench.measure.units import parse_bytes
from kvio.backends import find_backend

RESULTS = Path("results")
SCRATCH = RESULTS / "scratch"
T = TypeVar("T")

out = Console(soft_wrap=True, highlight=False)
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def option(help_text: str) -> Any:  # noqa: ANN401 — what typer takes as metadata
    """Declare an option, for `Annotated`."""
    return typer.Option(help=help_text)


def parsed(read: Callable[[str], T], text: str | None) -> T | None:
    """Read an option as `read` does; a text that it refuses is a usage error."""
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as error:
        raise PlanError(str(error)) from None


def make_scratch(data_dir: Path) -> None:
    """The default scratch folder is ours to make; any other must be there."""
    if data_dir == SCRATCH:
        data_dir.mkdir(parents=True, exist_ok=True)


def read_options(texts: Sequence[str], backends: Sequence[str]) -> dict[str, dict[str, str]]:
    """By backend, those of the options NAME=VALUE that it knows; sizes ("…_bytes=4MiB") in plain bytes.

    Raises:
        PlanError: no NAME=VALUE, no backend that knows it, or no size.
    """
    found: dict[str, dict[str, str]] = {backend: {} for backend in backends}
    for text in texts:
        name, equals, value = text.partition("=")
        knowing = [backend for backend in backends if name in find_backend(backend).options]
        if not equals or not knowing:
            known = "; ".join(
                f"{backend}: {', '.join(find_backend(backend).options) or 'none'}" for backend in backends
            )
            raise PlanError(f"--option {text}: not one of NAME=VALUE with these names: {known}")
        if name.endswith("_bytes"):
            value = str(parsed(parse_bytes, value))
        for backend in knowing:
            found[backend][name] = value
    return found
