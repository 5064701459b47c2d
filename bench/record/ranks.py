"""How many ranks a sweep was measured with, and that no option says another number."""

from pathlib import Path

from bench.record.run import RunRecord
from bench.record.validate import InputError


def find_ranks(sweep: Path, run: RunRecord, flag: str, given: int | None) -> int:
    """The sweep's tensor-parallel ranks, which measured together and each keep their own KV.

    Raises:
        InputError: `flag` was given another number.
    """
    ranks = run.plan.tensor_parallel
    if given not in (None, ranks):
        together = "one rank" if ranks == 1 else f"{ranks} ranks together"
        raise InputError(f"{flag} {given} is not what {sweep} was measured with, {together}: leave it out")
    return ranks
