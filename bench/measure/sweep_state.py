"""What a running sweep has come to, and the header that it leaves however it ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.measure.conditions.header import found_in_rounds, notice_other_work, notice_repeats
from bench.measure.conditions.interference import InterferenceMonitor
from bench.measure.rounds import Rounds
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan
from bench.record.notices import Notice, keep_latest
from bench.record.run import RunRecord, write_run
from bench.record.sample import Sample


@dataclass(slots=True)
class SweepState:
    """The header so far and the rounds; a kill at any moment leaves what was written last."""

    setup: ResolvedPlan
    session: MeasurementSession
    folder: Path
    run: RunRecord
    earlier: tuple[Sample, ...] = ()  # samples of the part that is resumed
    before: RunRecord | None = None  # header of the part that is resumed
    rounds: Rounds | None = None

    @property
    def has_measured(self) -> bool:
        """Whether this part has added a sample."""
        return self.rounds is not None and len(self.rounds.samples) > len(self.earlier)

    @property
    def spent_s(self) -> float:
        """Seconds of the budget that the resumed part used."""
        return max((sample.started_s for sample in self.earlier), default=0.0)

    @property
    def valid_checks(self) -> frozenset[str]:
        """Checks of the resumed part that still count: those made with the layers that are built now."""
        return frozenset() if self.run.built_layers is None else frozenset(self.run.checks)

    def note(self, run: RunRecord) -> None:
        """Take a new header, and write it."""
        self.run = run
        if self.rounds is not None:
            self.rounds.run = run
        self.write_header()

    def check_interference(self, monitor: InterferenceMonitor | None) -> None:
        """After a round: note other work, and write the notices before a kill loses them."""
        rounds = self.rounds
        if rounds is None:
            return
        found = notice_other_work(0.0, self.session.count_others(), when="measured")
        if monitor is not None:
            found += monitor.look(rounds.next_round + 1)
        rounds.notices[:] = keep_latest((*rounds.notices, *found))
        if rounds.notices:
            self.write_header()

    def finish(self, state: str) -> None:
        """Write the last header, then remove uploaded objects, which may take long.

        A resumed part that neither measured nor completed anything leaves the header of the part before it.
        """
        repeats = notice_repeats(self.setup, self.session, self.rounds.taken) if self.rounds else ()
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        self.run = self.run.model_copy(update={"state": state, "finished_utc": finished})
        before = self.before
        if before is not None and before.state != "running" and state != "complete" and not self.has_measured:
            self.run, self.rounds, repeats = before, None, ()
        self.write_header(repeats)
        left = () if self.session.placement is None else self.session.placement.withdraw()
        if left:
            self.write_header((*repeats, *left))

    def write_header(self, more: Sequence[Notice] = ()) -> None:
        """Write the header: the notices of earlier parts, and the latest of each kind and series of this one."""
        rounds = self.rounds.notices if self.rounds else ()
        before = None if self.has_measured or self.run is self.before else self.before
        earlier = () if before is None else found_in_rounds(before)
        notices = dict.fromkeys((*earlier, *self.run.notices, *keep_latest((*rounds, *more))))
        write_run(self.folder, self.run.model_copy(update={"notices": tuple(notices)}))
