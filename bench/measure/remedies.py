"""What to try where a budget was too small: never what was done already."""

from bench.record.plan import Plan


def say_remedies(plan: Plan, enough_s: int) -> str:
    """Another budget, and what would make a round cheaper: "--budget 90s, or --layers fit, or fewer tokens"."""
    others = {
        "--layers fit": plan.layers != "fit" and plan.simulation is None,
        "fewer tokens": plan.tokens is not None,
        "fewer backends or layouts": len(plan.loads) > 1,
        "no --hybrid": plan.hybrid,
    }
    return ", or ".join((f"--budget {enough_s}s", *(what for what, helps in others.items() if helps)))
