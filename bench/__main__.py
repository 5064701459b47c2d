"""The command line of kvcross; only this and the verbs print or set exit codes."""

import difflib
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

import typer
from pydantic import ValidationError
from typer._click.exceptions import NoSuchOption, UsageError  # typer's own click: no public name for it

from bench.record.units import printable
from kvio.errors import FailedError, UserError

# each in bench/cli/<verb>_command.py, as a function or, where it has verbs of its own, a typer app of that name
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
    "reuse",
)
HELP = """From how many tokens on is it faster to load a KV cache than to recompute it, and how sure are we?

Exit codes: 0 fine, 1 failed or interrupted, 2 usage, 3 measured but suspect or inconclusive.
"""
FAILED, USAGE = 1, 2
LAST_STREAM = 2  # standard error
INTERRUPTED = 130  # what typer makes of Ctrl-C in a verb, which no verb uses for anything else
FLAGS = {  # where a field of the plan is called otherwise than its option
    "num_threads": "threads",
    "num_samples": "samples",
    "num_rounds": "rounds",
    "tensor_parallel": "tp",
    "request_bytes": "request",
    "budget_s": "budget",
    "limit_bytes_per_s": "limit",
    "working_set_bytes": "working-set",
}


def make_app(asked: str | None) -> typer.Typer:
    """The command line with the verb asked for, whose libraries alone are loaded; with all of them for any other word."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=HELP)
    app.callback()(_take_verbs)  # else a verb alone would be taken for the whole command line
    for name in (asked,) if asked in VERBS else VERBS:
        verb = getattr(import_module(f"bench.cli.{name}_command"), name)
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name)
        else:
            app.command(name)(verb)
    return app


def _take_verbs() -> None:
    """Do nothing before a verb."""


def _format_message(text: str) -> None:
    print(f"kvcross: {printable(' '.join(text.split()))}", file=sys.stderr)


def _explain(error: ValidationError) -> str:
    """What was asked and is impossible, by the option that asked for it."""
    first = error.errors()[0]
    field = str(first["loc"][-1])
    flag = FLAGS.get(field, field.replace("_", "-"))
    why = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    return f"--{flag} {first['input']}: {why}"


def _explain_option(error: NoSuchOption) -> str:
    """What an option that there is not should have been: an argument, or an option whose name is near."""
    name = error.option_name.lstrip("-")
    context = error.ctx
    if context is not None and any(
        parameter.param_type_name == "argument" and name in {parameter.name, context.command.name}
        for parameter in context.command.params
    ):
        value = _value_after(error.option_name) or name.upper()
        return f"{error.message}: it is given without one: {context.command_path} {value}"
    near = difflib.get_close_matches(name, [one.lstrip("-") for one in error.possibilities or ()])
    return f"{error.message}; near it: {', '.join(f'--{one}' for one in near)}" if near else error.message


def _value_after(option: str) -> str | None:
    """What was given to an option on this command line; None for nothing."""
    for word, following in zip(sys.argv, (*sys.argv[1:], ""), strict=True):
        if word.startswith(f"{option}="):
            return word.partition("=")[2] or None
        if word == option:
            return following or None
    return None


def _run(app: typer.Typer) -> int:
    """The exit code; what typer refuses is one line too, unless it is the help for lack of any word.

    Raises:
        KeyboardInterrupt: Ctrl-C, which typer keeps to itself.
    """
    try:
        code: int | None = app(prog_name="python -m bench", standalone_mode=False)
    except UsageError as error:
        text = _explain_option(error) if isinstance(error, NoSuchOption) else error.format_message()
        if "\n" in text:
            print(text, file=sys.stderr)
        else:
            _format_message(
                f"{text.rstrip('.')}; try {error.ctx.command_path if error.ctx else 'python -m bench'} --help"
            )
        return USAGE
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    return code or 0


def _open_closed_streams() -> None:
    """Let what goes to a stream that the shell closed (2>&-) go nowhere; else the next file opened would get it."""
    descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    while descriptor <= LAST_STREAM:
        os.set_inheritable(descriptor, True)
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 — for as long as the process lives
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _allow_any_text() -> None:
    """Write what the terminal's encoding lacks as its number, instead of failing when all is measured."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    _allow_any_text()
    try:
        sys.exit(_run(make_app(sys.argv[1] if len(sys.argv) > 1 else None)))
    except KeyboardInterrupt:
        _format_message("interrupted")
        sys.exit(FAILED)
    except ValidationError as error:
        _format_message(_explain(error))
    except UserError as error:
        _format_message(str(error))
    except FailedError as error:
        _format_message(str(error))
        sys.exit(FAILED)
    sys.exit(USAGE)


if __name__ == "__main__":
    main()
