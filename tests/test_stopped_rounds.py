"""A round whose process never answers again is ended, and the record says so."""

from pathlib import Path

from bench.measure.clock import VirtualClock
from bench.measure.processes.messages import JobStopped, Message, SampleTaken
from bench.record.progress import End, Progress
from bench.record.sample import Case, Outcome, Sample
from bench.record.samples_csv import SampleWriter
from tests.test_runner import Scripted, _rounds, carry_out


def _stopped_after(tmp_path: Path, *messages: Message) -> list[tuple[str, str, bool]]:
    clock = VirtualClock()
    rounds = _rounds(clock, budget_s=60.0)

    def once(progress: Progress) -> tuple[int, ...] | End:
        return progress.allowed if progress.rounds_done == 0 else End("enough")

    writer = SampleWriter(tmp_path)
    source = Scripted(*messages, JobStopped())
    carry_out(rounds, source, once, clock=clock, writer=writer)
    return [(notice.code, notice.message, notice.suspect) for notice in rounds.notices]


def test_a_round_that_had_to_be_ended_makes_the_run_suspect_and_says_where_it_was(tmp_path: Path) -> None:
    sample = Sample(
        round=0,
        order=0,
        sample=0,
        started_s=0.0,
        case=Case("load", "s3/best", 200),
        outcome=Outcome(seconds=1.0),
    )
    (code, message, suspect), unmeasured = _stopped_after(tmp_path, SampleTaken(sample, 1.0))
    assert (code, suspect) == ("round_stopped", True)
    assert message.startswith("round 1: its process did not answer any more after the deadline and was ended")
    assert "samples that it had given: 1, the last of s3/best at 200 tokens" in message
    assert unmeasured == (
        "series_unmeasured",
        "the last round ended before the first sample of recompute, load",
        True,
    )


def test_a_round_that_never_gave_a_sample_is_said_to(tmp_path: Path) -> None:
    (code, message, _), _ = _stopped_after(tmp_path)
    assert code == "round_stopped"
    assert (
        "had given: 0; a call far slower than before does that, as on a machine that is busy, or a drive"
        in message
    )
