"""Doubles of a sweep's parts: an observer, sources that follow a script, and rounds of two arms on a virtual clock."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bench.measure.budget import CostBook
from bench.measure.clock import Clock, VirtualClock
from bench.measure.processes.messages import Job, Message
from bench.measure.processes.source import Source
from bench.measure.rounds import Rounds, run_rounds
from bench.record.plan import Plan
from bench.record.progress import Policy, Progress
from bench.record.run import RunRecord
from bench.record.sample import Sample
from bench.record.samples_csv import SampleWriter


class SilentObserver:
    """Prints nothing; keeps the phases and the lengths of the rounds."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, ...]] = []
        self.phases: list[str] = []

    def on_notice(self, text: str) -> None: ...

    def on_phase(self, text: str) -> None:
        self.phases.append(text)

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None:
        self.rounds.append(lengths)

    def on_sample(self, sample: Sample) -> None: ...


class ScriptedSource:
    """Answers every job with the same messages."""

    def __init__(self, *messages: Message) -> None:
        self._messages = messages

    def run(self, job: Job) -> Iterator[Message]:
        yield from self._messages

    def close(self) -> None: ...


class SlowScriptedSource(ScriptedSource):
    """Takes three seconds before its messages."""

    def __init__(self, clock: VirtualClock, *messages: Message) -> None:
        super().__init__(*messages)
        self._clock = clock

    def run(self, job: Job) -> Iterator[Message]:
        self._clock.advance(3.0)
        yield from super().run(job)


def all_lengths(progress: Progress) -> tuple[int, ...]:
    """The policy that measures every allowed length in every round."""
    return progress.allowed


def make_rounds(clock: VirtualClock, *, budget_s: float, **settings: object) -> Rounds:
    """Rounds of both arms at 100, 200 and 400 tokens; a case is expected to take 1 s."""
    run = RunRecord(
        run_id="r",
        started_utc="2026-01-01T00:00:00Z",
        plan=Plan.model_validate({"model": "m", "budget_s": budget_s, **settings}),
        model_name="M",
        kv_bytes_per_token=8,
        chunk_tokens=100,
    )
    return Rounds(
        run=run,
        series=(("recompute", "recompute"), ("load", "load")),
        allowed=(100, 200, 400),
        start_s=clock.now_s(),
        deadline_s=clock.now_s() + budget_s,
        costs=CostBook(lambda case: 1.0),
    )


def measure_rounds(
    rounds: Rounds,
    source: Source,
    folder: Path,
    *,
    clock: Clock,
    policy: Policy = all_lengths,
    observer: SilentObserver | None = None,
) -> SilentObserver:
    """Run the rounds that the policy asks for and write their samples to `folder`."""
    observer = observer or SilentObserver()
    with closing(SampleWriter(folder)) as writer:
        run_rounds(
            rounds,
            source=source,
            policy=policy,
            writer=writer,
            observer=observer,
            clock=clock,
            between=lambda: None,
        )
    return observer
