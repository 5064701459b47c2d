"""The inner loop of a round: warm up, prepare, time, report; knows arms only by their protocol."""

from collections import Counter
from collections.abc import Iterator, Mapping

from bench.measure.clock import Clock
from bench.measure.processes.messages import CaseRefused, Message, RoundJob, SampleTaken, SeriesFailed
from bench.record.sample import Arm, CannotHoldError, Case, Sample
from kvio.errors import KVIOError

READING = frozenset({"load", "hybrid"})  # arms that files or servers can fail


def measure_passes(job: RoundJob, arms: Mapping[str, Arm], *, clock: Clock) -> Iterator[Message]:
    """One message per timed call, in the order of the job's passes.

    A length that is expected to run over the deadline is not begun; shorter ones after it still are.  One that
    the device cannot hold is refused and ends the round: what it left behind would disturb the others.  So does a
    series that cannot be read.
    """
    warmed: set[Case] = set()
    repetitions: Counter[Case] = Counter()
    order = 0
    for walk in job.passes:
        for group in walk.groups:
            if clock.now_s() + sum(job.expected_s.get(case, 0.0) for case in group) > job.deadline_s:
                continue
            for case in group:
                began_s = clock.now_s()
                try:
                    _warm_up(job, arms[case.series], case, warmed=warmed)
                    sample = _take_sample(
                        job, arms[case.series], case, order=order, repetition=repetitions[case], clock=clock
                    )
                except CannotHoldError as error:
                    yield CaseRefused(case, str(error))
                    return
                except KVIOError as error:
                    if job.plan.tensor_parallel > 1 or case.arm not in READING:
                        raise  # of several ranks, the others wait for this one
                    yield SeriesFailed(case.series, str(error))
                    return
                repetitions[case] += 1
                order += 1
                yield SampleTaken(sample, wall_s=clock.now_s() - began_s)


def _warm_up(job: RoundJob, arm: Arm, case: Case, *, warmed: set[Case]) -> None:
    """Warm the case once per round; a long one at `warmup_tokens` instead, where that is enough."""
    at = case
    if job.warmup_tokens and case.prefix_tokens > job.warmup_tokens:
        at = Case(case.arm, case.series, job.warmup_tokens, case.suffix_tokens)
    if at in warmed:
        return
    warmed.add(at)
    for _ in range(job.plan.num_warmups):
        arm.warm_up(at)


def _take_sample(job: RoundJob, arm: Arm, case: Case, *, order: int, repetition: int, clock: Clock) -> Sample:
    arm.prepare(case)
    started_s = clock.now_s() - job.start_s
    outcome = arm.run(case)
    return Sample(
        round=job.number,
        order=order,
        sample=repetition,
        started_s=started_s,
        case=case,
        outcome=outcome,
    )
