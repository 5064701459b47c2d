"""What the verbs share: how options are declared and read, and where results go."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from bench.measure.folder import find_latest
from bench.measure.plan import PlanError
from bench.measure.record import RecordError

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


def newest_results() -> Path:
    """The folder of the newest sweep.

    Raises:
        RecordError: there is none.
    """
    found = find_latest(RESULTS)
    if found is None:
        raise RecordError(f"{RESULTS}: no sweep here yet; start one with: make sweep MODEL=qwen3-8b")
    return found
