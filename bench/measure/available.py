"""Which of the ways to load that were asked for can be used here; the others are skipped, and said."""

from pathlib import Path

from bench.record.plan import Plan, PlanError
from bench.record.run import Notice
from kvio.backends import find_backend
from kvio.protocol import Unavailable

SKIPPED = "skipped"
NEEDS_GPU = Unavailable("it reads into a GPU, and the device asked for is the CPU", "--device cuda")


def leave_out_unavailable(plan: Plan, data_dir: Path) -> tuple[Plan, tuple[Notice, ...]]:
    """The plan with the loads that work here, and a notice for each backend that does not.

    Args:
        plan: its backends are known.
        data_dir: where the KV files will lie; nothing is tried where there is no such directory.

    Raises:
        PlanError: none of them works.
    """
    missing = _probe(plan, data_dir) if data_dir.is_dir() else {}
    notices = tuple(
        Notice(code=SKIPPED, message=f"{name} skipped: {why.reason}; try: {why.remedy}", suspect=False)
        for name, why in missing.items()
    )
    left = tuple(load for load in plan.loads if load.backend not in missing)
    if not left:
        raise PlanError("nothing is left to measure: " + "; ".join(notice.message for notice in notices))
    return plan.model_copy(update={"loads": left}), notices


def _probe(plan: Plan, data_dir: Path) -> dict[str, Unavailable]:
    """Why each backend cannot be used, by name; those that can are left out."""
    options = {load.backend: load.options for load in plan.loads}
    found = {
        name: NEEDS_GPU
        if plan.device == "cpu" and find_backend(name).needs_gpu
        else find_backend(name).probe(data_dir, chosen)
        for name, chosen in options.items()
    }
    return {name: why for name, why in found.items() if why is not None}
