"""The device of a sweep, as its measuring processes pick it; this process touches no device."""

from bench.measure.clock import MonotonicClock
from bench.measure.processes.entry import PRELOAD, serve
from bench.measure.processes.messages import DeviceJob, DeviceSeen, JobFailed
from bench.measure.processes.source import ProcessSource, Source
from bench.measure.rounds import MeasureError
from bench.record.plan import Plan, PlanError

ANSWER_S = 60.0  # the fork server has torch to import first


def ask_device(plan: Plan) -> DeviceSeen:
    """Ask a fresh process which device it would measure on.

    Raises:
        PlanError: the device that was asked for is not there, or its driver does not answer.
        MeasureError: the process failed.
    """
    clock = MonotonicClock()
    source = ProcessSource(serve, preload=PRELOAD, clock=clock, attach=None, overrun_s=0.0)
    return receive_device(source, DeviceJob(plan, clock.now_s() + ANSWER_S))


def receive_device(source: Source, job: DeviceJob) -> DeviceSeen:
    """The device that the process of `source` reports.

    Raises:
        PlanError, MeasureError: see `ask_device`.
    """
    seen = None
    for message in source.run(job):
        match message:
            case DeviceSeen():
                seen = message
            case JobFailed(reason, refused):
                raise PlanError(reason) if refused else MeasureError(f"device {job.plan.device}: {reason}")
    if seen is None:
        raise PlanError(
            f"device {job.plan.device}: torch did not answer within {ANSWER_S:.0f} s; try --device cpu"
        )
    return seen
