"""What the verbs share: how options are declared and read, and where results go."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from bench.measure.plan import PlanError
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


def parse_backend_options(texts: list[str], backends: list[str]) -> dict[str, dict[str, str]]:
    """`name=value` texts by backend, each for those backends that know the name.

    Raises:
        PlanError: no `=`, the same name twice, or a name that none of the backends knows.
    """
    found: dict[str, dict[str, str]] = {backend: {} for backend in backends}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise PlanError(f"--option {text!r} is not name=value; try --option bucket=kvcross")
        knowing = [backend for backend in backends if name in find_backend(backend).options]
        if not knowing:
            known = sorted({known for backend in backends for known in find_backend(backend).options})
            raise PlanError(
                f"{' and '.join(backends)} know no option {name!r}; there are: {', '.join(known) or 'none'}"
            )
        for backend in knowing:
            if name in found[backend]:
                raise PlanError(f"--option {name} is given twice")
            found[backend][name] = value
    return found


def make_scratch(data_dir: Path) -> None:
    """The default scratch folder is ours to make; any other must be there."""
    if data_dir == SCRATCH:
        data_dir.mkdir(parents=True, exist_ok=True)
