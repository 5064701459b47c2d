"""Which ways to load can be measured here, and what would make the others work."""

from collections.abc import Iterator
from pathlib import Path

from bench.measure.finding import Finding
from bench.measure.plan import LoadSpec, Plan, PlanError
from bench.measure.record import Notice
from kvio.backends import BACKENDS, find_backend
from kvio.backends.protocol import Unavailable


def keep_available(plan: Plan, data_dir: Path) -> tuple[Plan, tuple[Notice, ...]]:
    """The plan without the loads whose backend cannot be used here, and a notice for each of those.

    Raises:
        PlanError: none is left.
    """
    kept: list[LoadSpec] = []
    notices: dict[str, Notice] = {}
    for spec in plan.loads:
        found = find_backend(spec.backend).probe(data_dir, spec.options)
        if found is None:
            kept.append(spec)
        else:
            notices[spec.backend] = Notice(
                code="backend_skipped", message=_say(spec.backend, found), suspect=False
            )
    if not kept:
        raise PlanError("; ".join(notice.message for notice in notices.values()))
    return plan.model_copy(update={"loads": tuple(kept)}), tuple(notices.values())


def _say(backend: str, found: Unavailable) -> str:
    return f"{backend} skipped: {found.reason}; {found.remedy}"


def examine_backends(data_dir: Path) -> Iterator[Finding]:
    """What each backend says of this machine."""
    for name, kind in BACKENDS.items():
        found = kind.probe(data_dir, {})
        if found is None:
            yield Finding(f"backend {name}", "ok", "usable here")
        else:
            yield Finding(f"backend {name}", "skipped", found.reason, found.remedy)
