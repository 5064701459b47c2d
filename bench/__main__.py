"""The command line of kvcross; only this and the verbs print or set exit codes."""

import sys
from importlib import import_module

import typer
from pydantic import ValidationError

from kvio.errors import FailedError, UserError

# each in bench/verbs/<verb>.py, as a function or, where it has verbs of its own, a typer app of that name
VERBS = (
    "model",
    "doctor",
    "sweep",
    "report",
    "compare",
    "fio",
    "predict",
    "matrix",
    "capacity",
    "size",
    "longctx",
    "reuse",
)
HELP = """From how many tokens on is it faster to load a KV cache than to recompute it, and how sure are we?

Exit codes: 0 fine, 1 failed or interrupted, 2 usage, 3 measured but suspect or inconclusive.
"""
FAILED, USAGE = 1, 2


def make_app(asked: str | None) -> typer.Typer:
    """The command line with the verb asked for, whose libraries alone are loaded; with all of them for any other word."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=HELP)
    app.callback()(_take_verbs)  # else a verb alone would be taken for the whole command line
    for name in (asked,) if asked in VERBS else VERBS:
        verb = getattr(import_module(f"bench.verbs.{name}"), name)
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name)
        else:
            app.command(name)(verb)
    return app


def _take_verbs() -> None:
    """Do nothing before a verb."""


def _say_error(error: Exception) -> None:
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        text = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}, not {first['input']!r}"
    print(f"kvcross: {' '.join(text.split())}", file=sys.stderr)


def main() -> None:
    """Run the command line."""
    app = make_app(sys.argv[1] if len(sys.argv) > 1 else None)
    try:
        app(prog_name="python -m bench")
    except (UserError, ValidationError) as error:
        _say_error(error)
        sys.exit(USAGE)
    except FailedError as error:
        _say_error(error)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
