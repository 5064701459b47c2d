"""The command line of kvcross; only this and the verbs print or set exit codes.

Exit codes: 0 fine, 1 failed, 2 usage, 3 measured but suspect or inconclusive.
"""

import sys
from collections.abc import Callable

import typer
from pydantic import ValidationError

from bench.analyse.stats import AnalysisError
from bench.catalog.fields import CatalogError
from bench.measure.limit import LimitRefusedError
from bench.measure.plan import PlanError
from bench.measure.record import RecordError
from bench.measure.runner import MeasureError
from bench.show.compare import DifferentMachinesError
from bench.show.fio_figures import FioError
from bench.verbs.compare import compare
from bench.verbs.doctor import doctor
from bench.verbs.fio import fio
from bench.verbs.model import model
from bench.verbs.report import report
from bench.verbs.sweep import sweep
from kvio.backends.protocol import KVIOError

VERBS: tuple[Callable[..., None], ...] = (
    model,
    doctor,
    sweep,
    report,
    compare,
)
GROUPS: dict[str, typer.Typer] = {  # verbs that have verbs of their own
    "fio": fio,
}
USER_ERRORS = (
    CatalogError,
    DifferentMachinesError,
    FioError,
    KVIOError,
    LimitRefusedError,
    PlanError,
    RecordError,
    ValidationError,
)
FAILURES = (MeasureError, AnalysisError)
FAILED, USAGE = 1, 2


def _say_error(error: Exception) -> None:
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        text = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}, not {first['input']!r}"
    print(f"kvcross: {' '.join(text.split())}", file=sys.stderr)


def main() -> None:
    """Run the command line."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__)
    for verb in VERBS:
        app.command()(verb)
    for name, group in GROUPS.items():
        app.add_typer(group, name=name)
    try:
        app(prog_name="python -m bench")
    except USER_ERRORS as error:
        _say_error(error)
        sys.exit(USAGE)
    except FAILURES as error:
        _say_error(error)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
