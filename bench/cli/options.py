"""What the verbs share: how options are declared and read, and where results go."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from bench.record.folder import find_latest
from bench.record.plan import PlanError
from bench.record.sample import RecordError
from bench.record.units import parse_byte_count
from bench.record.validate import parsed
from bench.report.text.terminal import out as out

RESULTS = Path("results")
SCRATCH = RESULTS / "scratch"
T = TypeVar("T")
Given = TypeVar("Given")

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Catalogue = Annotated[
    Path | None,
    typer.Option(help="TOML file with devices of yours, in the format of bench/catalog/tables/gpus.toml"),
]


def option(help_text: str) -> Any:  # noqa: ANN401 — what typer takes as metadata
    """Declare an option, for `Annotated`."""
    return typer.Option(help=help_text)


def parse_options(texts: list[str], backends: list[str]) -> dict[str, dict[str, str]]:
    """Options by backend: `NAME=VALUE` goes to every one that knows the name, `BACKEND.NAME=VALUE` to that one.

    Raises:
        PlanError: no value, the same name twice, or a name that none of the backends knows.
    """
    found: dict[str, dict[str, str]] = {backend: {} for backend in backends}
    for text in texts:
        name, _, value = text.partition("=")
        if not value:
            # what was given may be a secret in the wrong place, so only its name is repeated
            raise PlanError(f"--option {name!r} has no value; try --option bucket=kvcross")
        owner, dot, key = name.rpartition(".")
        if not key:
            raise PlanError(f"--option {name!r} names no option; try --option bucket=kvcross")
        if dot and owner not in backends:
            raise PlanError(f"option {name!r} is of {owner}, which is not measured; add it to --backend")
        plain = (
            str(parsed(parse_byte_count, value)) if key.endswith("_bytes") else value
        )  # sizes in plain bytes
        for backend in [owner] if dot else _that_know(name, backends):
            if key in found[backend]:
                raise PlanError(f"option {key} of {backend} is given twice")
            found[backend][key] = plain
    return found


def _that_know(name: str, backends: list[str]) -> list[str]:
    from kvio.backends import BACKENDS, find_backend  # numpy, which --help must not cost

    knowing = [backend for backend in backends if name in find_backend(backend).options]
    if not knowing:
        known = sorted({option for backend in backends for option in find_backend(backend).options})
        others = [kind for kind, backend in BACKENDS.items() if name in backend.options]
        raise PlanError(
            f"no option {name!r} of {' and '.join(backends)}; there are: {', '.join(known) or 'none'}"
            + (f"; it is one of {' and '.join(others)}: try --backend {others[0]}" if others else "")
        )
    return knowing


def given_flags(context: typer.Context) -> dict[str, str]:
    """Flags that stand on the command line, by the name of their parameter."""
    flags = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name is not None and source is not None and source.name == "COMMANDLINE":
            flags[parameter.name] = parameter.opts[0]
    return flags


def require_unused(context: typer.Context, names: Collection[str], why: str) -> None:
    """Stop on flags that would be ignored; `names` are those of their parameters.

    Raises:
        PlanError: says which flag, and why.
    """
    for name, flag in given_flags(context).items():
        if name in names:
            raise PlanError(f"{flag} {why}")


def make_scratch(data_dir: Path, *, flags: str = "--data-dir") -> None:
    """The default scratch folder is ours to make; any other must be there.

    Args:
        flags: options that name folders elsewhere.

    Raises:
        PlanError: it cannot be made here.
    """
    if data_dir != SCRATCH:
        return
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlanError(
            f"{data_dir}: cannot be made here: {error.strerror}; name other folders with {flags}"
        ) from None


def newest_results() -> Path:
    """The folder of the newest sweep.

    Raises:
        RecordError: there is none.
    """
    found = find_latest(RESULTS)
    if found is None:
        raise RecordError(f"{RESULTS}: no sweep here yet; start one with: make sweep MODEL=qwen3-8b")
    return found
