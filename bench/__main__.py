"""The command line of kvcross; only this and the verbs print or set exit codes."""

import importlib.metadata
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated

import typer
from pydantic import ValidationError
from typer._click.exceptions import UsageError  # typer's own click: it has no public name

from bench.record.units import printable
from kvio.errors import FailedError, UserError

# each in bench/cli/<verb>_command.py, as a function or, where it has verbs of its own, a typer app of that name
VERBS = {
    "model": "Print the KV geometry of a model.",
    "doctor": "Check what this machine can measure.",
    "sweep": "Measure recompute and load; locate the crossover.",
    "report": "Derive tables, figures and answer of a sweep again.",
    "compare": "Print the answers of several sweeps side by side.",
    "fio": "Write a fio job of a layout, or compare fio with a sweep.",
    "predict": "Model a machine that is described, not measured.",
    "matrix": "Draw crossovers of models and storage as one matrix.",
    "capacity": "Calculate how much KV cache fits into memory.",
    "size": "Calculate GPUs, drives and cost for a load of requests.",
    "reuse": "Calculate how often a cache hits on a trace of requests.",
}
HELP = """From how many tokens on is it faster to load a KV cache than to recompute it, and how sure are we?

Exit codes: 0 fine, 1 failed or interrupted, 2 usage, 3 measured but suspect or inconclusive.
"""
FAILED, USAGE = 1, 2
INTERRUPTED = 130  # what typer makes of Ctrl-C in a verb, which no verb uses for anything else
FLAGS = {  # where the option of a field of the plan has another name
    "num_threads": "threads",
    "num_samples": "samples",
    "num_rounds": "rounds",
    "tensor_parallel": "tp",
    "request_bytes": "request",
    "budget_s": "budget",
    "limit_bytes_per_s": "limit",
    "working_set_bytes": "working-set",
}


def make_app(verb: str | None) -> typer.Typer:
    """The command line with the libraries of one verb; of all others (None: of all) only the help line."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", no_args_is_help=True, help=HELP)
    app.callback()(_take_options)
    for name, help_line in VERBS.items():
        if name != verb:
            app.command(name, help=help_line)(lambda: None)
            continue
        found = getattr(import_module(f"bench.cli.{name}_command"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        print(f"kvcross {importlib.metadata.version('kvcross')}")
        raise typer.Exit


def _take_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before a verb."""


def _run(arguments: list[str]) -> int:
    """The exit code; every error is one line."""
    try:
        app = make_app(next((word for word in arguments if not word.startswith("-")), None))
        code: int | None = app(arguments, prog_name="python -m bench", standalone_mode=False)
    except UsageError as error:
        if not arguments:
            return USAGE  # typer has printed the help
        command = error.ctx.command_path if error.ctx else "python -m bench"
        return _fail(f"{error.format_message().rstrip('.')}; try {command} --help", USAGE)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][-1])
        flag = FLAGS.get(field, field.replace("_", "-"))
        why = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
        return _fail(f"--{flag} {first['input']}: {why}", USAGE)
    except UserError as error:
        return _fail(str(error), USAGE)
    except FailedError as error:
        return _fail(str(error), FAILED)
    except KeyboardInterrupt:
        code = INTERRUPTED
    return _fail("interrupted", FAILED) if code == INTERRUPTED else code or 0


def _fail(text: str, code: int) -> int:
    with suppress(OSError):  # a terminal that is gone
        print(f"kvcross: {printable(' '.join(text.split()))}", file=sys.stderr)
    return code


def main() -> None:
    """Run the command line."""
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]  # rich would print lines of no width
    from bench.report.text.terminal import open_streams, require_printed  # reads COLUMNS when it is imported

    open_streams()
    code = _run(sys.argv[1:])
    lost = require_printed()
    sys.exit(code if lost is None else _fail(lost, FAILED))


if __name__ == "__main__":
    main()
