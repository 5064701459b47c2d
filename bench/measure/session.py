"""The clock, job source, scratch directory and read limit of a sweep; released at its end."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine.read_limit import ReadThrottle, clean_groups_left_behind
from bench.measure.clock import Clock, MonotonicClock, VirtualClock
from bench.measure.processes.entry import PRELOAD, serve
from bench.measure.processes.source import ProcessSource, SimulatedSource, Source
from bench.measure.setup import ResolvedPlan
from bench.measure.stores import ChunkPlacement
from kvio.store.scratch import clean_stale, count_live, open_scratch

OVERRUN_SHARE = 0.04  # of the budget: after this long a case that runs over the deadline is stopped


@dataclass(frozen=True, slots=True)
class MeasurementSession:
    """What a sweep uses; `scratch` is None when nothing is read from files."""

    clock: Clock
    source: Source
    scratch: Path | None
    start_s: float
    other_runs: int = 0  # other sweeps in the same folder when it started
    placement: ChunkPlacement | None = None

    def count_others(self) -> int:
        """Other sweeps that use the folder of the scratch files now."""
        return 0 if self.scratch is None else max(0, count_live(self.scratch.parent) - 1)


@contextmanager
def open_session(setup: ResolvedPlan, data_dir: Path, *, since_s: float) -> Iterator[MeasurementSession]:
    """A session whose scratch files, processes and limit are gone when the block ends, however it ends.

    Args:
        setup: what is measured.
        data_dir: where scratch files go.
        since_s: when the sweep was asked for, on the monotonic clock: from then on its budget counts.

    Raises:
        ScratchError: `data_dir` cannot hold files.
        KVIOError: a server that is to hold the chunks does not answer.
        LimitRefusedError: the read limit is not permitted here.
    """
    plan = setup.plan
    if plan.simulation is not None:
        virtual = VirtualClock()
        simulated = SimulatedSource(plan.simulation, clock=virtual, num_bytes=setup.load_bytes)
        yield MeasurementSession(virtual, simulated, None, 0.0)
        return
    clock = MonotonicClock()
    clean_stale(data_dir)
    clean_groups_left_behind()
    other_runs = count_live(data_dir)
    with ExitStack() as stack:
        scratch = stack.enter_context(open_scratch(data_dir))
        placement = ChunkPlacement(setup.loads, scratch)
        stack.callback(
            placement.withdraw
        )  # before the scratch directory goes: while it is there, the run lives
        placement.begin()
        limit = None
        if plan.limit_bytes_per_s is not None:
            limit = stack.enter_context(ReadThrottle(scratch, plan.limit_bytes_per_s))
        source = ProcessSource(
            serve,
            preload=PRELOAD,
            clock=clock,
            attach=None if limit is None else limit.attach,
            overrun_s=OVERRUN_SHARE * plan.budget_s,
            num_ranks=plan.tensor_parallel,
        )
        yield MeasurementSession(clock, source, scratch, since_s, other_runs, placement)
