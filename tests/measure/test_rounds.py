"""The rounds of a sweep, on a virtual clock and simulated arms."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure.clock import VirtualClock
from bench.measure.processes.messages import (
    CaseRefused,
    JobDone,
    JobFailed,
    JobStopped,
    Message,
    Pass,
    RoundJob,
    SampleTaken,
    SeriesFailed,
)
from bench.measure.processes.source import SimulatedSource, Source
from bench.measure.rounds import MeasureError, Rounds, plan_round
from bench.measure.worker.sampling import measure_passes
from bench.record.plan import Plan, SimulationSpec
from bench.record.progress import End, Progress
from bench.record.sample import Case, Outcome, Sample
from bench.record.samples_csv import read_samples
from kvio.errors import KVIOError
from tests.helpers.scripted_rounds import ScriptedSource, make_rounds, measure_rounds

SPEC = SimulationSpec(recompute_s=(0.0, 0.01, 0.0), load_s=(1.0, 0.0), round_noise=0.0, sample_noise=0.0)


def _source(clock: VirtualClock) -> SimulatedSource:
    return SimulatedSource(SPEC, clock=clock, num_bytes=lambda n, suffix: 8 * (suffix or n))


def test_the_budget_is_used_up_and_never_overrun(tmp_path: Path) -> None:
    clock = VirtualClock(50.0)
    rounds = make_rounds(clock, budget_s=100.0, num_samples=1)
    measure_rounds(rounds, _source(clock), tmp_path, clock=clock)
    assert 98.0 <= clock.now_s() - 50.0 <= 100.0  # the cheapest length costs 2 s


def test_every_sample_is_in_the_file_in_the_order_measured(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0, num_samples=2)
    measure_rounds(rounds, _source(clock), tmp_path, clock=clock)
    written, _ = read_samples(tmp_path)
    assert written == rounds.samples
    times = [sample.started_s for sample in written]
    assert times == sorted(times)
    assert written[0].started_s == 0.0


def test_both_arms_are_measured_equally_often_at_every_length_of_a_round(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=300.0)
    measure_rounds(rounds, _source(clock), tmp_path, clock=clock)
    seen = Counter((s.round, s.case.prefix_tokens, s.case.arm) for s in rounds.samples)
    assert all(seen[r, n, "load"] == count for (r, n, _), count in seen.items())


def test_a_slow_length_gets_fewer_samples_than_a_cheap_one(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=200.0, num_samples=5)
    measure_rounds(rounds, _source(clock), tmp_path, clock=clock)
    last = max(s.round for s in rounds.samples) - 1
    seen = Counter(s.case.prefix_tokens for s in rounds.samples if s.round == last)
    assert seen[100] > seen[400] >= 2  # one sample of each arm at least


def test_a_failed_process_stops_the_sweep_and_says_in_which_round(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)
    with pytest.raises(MeasureError, match="round 1: no more disk"):
        measure_rounds(rounds, ScriptedSource(JobFailed("no more disk")), tmp_path, clock=clock)


def test_lengths_that_do_not_fit_are_dropped_with_a_notice(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)
    asked: list[tuple[int, ...]] = []

    def twice(progress: Progress) -> tuple[int, ...] | End:
        asked.append(progress.allowed)
        return progress.allowed if len(asked) < 2 else End("enough")

    source = ScriptedSource(CaseRefused(Case("recompute", "recompute", 400), "out of memory"), JobDone())
    measure_rounds(rounds, source, tmp_path, clock=clock, policy=twice)
    assert asked == [(100, 200, 400), (100, 200)]
    assert [notice.kind for notice in rounds.notices] == ["lengths_dropped", "unmeasured", "unmeasured"]
    assert "400 tokens" in rounds.notices[0].detail


def test_nothing_is_measured_when_the_cheapest_length_does_not_fit(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=1.5)
    observer = measure_rounds(rounds, _source(clock), tmp_path, clock=clock)
    assert observer.rounds == []
    assert rounds.samples == []


def test_a_budget_that_ends_before_the_first_sample_says_so_and_what_would_do(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=10.0)
    clock.advance(8.5)  # preflight and files
    measure_rounds(rounds, _source(clock), tmp_path, clock=clock)
    (notice,) = rounds.notices
    assert (notice.kind, notice.suspect) == ("nothing_measured", True)
    assert notice.text == (
        "the budget of 10 s ended before the first sample: 8 s went by before the rounds, and 2 series at 100 tokens "
        "take about 2 s a round; try --budget 25s, or --layers fit"
    )


def _notices_of(sampled: set[str], tmp_path: Path) -> list[tuple[str, bool, str]]:
    """What is said when the budget ends after one sample of each of these series, of three that were asked for."""
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=10.0)
    rounds.series = (("recompute", "recompute"), ("load", "posix"), ("load", "uring"))
    rounds.samples = [
        Sample(0, 0, 0, 0.0, Case(arm, series, 100), Outcome(1.0))
        for arm, series in rounds.series
        if series in sampled
    ]
    clock.advance(9.5)
    measure_rounds(rounds, _source(clock), tmp_path, clock=clock)
    return [(notice.kind, notice.suspect, notice.text) for notice in rounds.notices]


def test_a_budget_that_ends_before_an_arm_was_measured_measured_nothing(tmp_path: Path) -> None:
    for sampled in ({"posix", "uring"}, {"recompute"}):
        ((code, suspect, message),) = _notices_of(sampled, tmp_path)
        assert (code, suspect) == ("nothing_measured", True)
        assert (
            "before the first sample of " + ("recompute:" if "posix" in sampled else "posix, uring:")
            in message
        )


def test_a_way_to_load_that_the_budget_left_out_is_named(tmp_path: Path) -> None:
    assert _notices_of({"recompute", "posix"}, tmp_path) == [
        ("unmeasured", True, "uring: the budget ended before its first sample")
    ]
    assert _notices_of({"recompute", "posix", "uring"}, tmp_path) == []


def _run_twice(rounds: Rounds, source: Source, folder: Path, clock: VirtualClock) -> list[tuple[str, ...]]:
    """Series that each of two rounds was to measure."""
    asked: list[tuple[str, ...]] = []

    def twice(progress: Progress) -> tuple[int, ...] | End:
        asked.append(tuple(name for _, name in rounds.series))
        return progress.allowed if len(asked) < 3 else End("enough")

    measure_rounds(rounds, source, folder, clock=clock, policy=twice)
    return asked


def test_a_way_to_load_that_breaks_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)
    rounds.series = (
        ("recompute", "recompute"),
        ("load", "posix/best"),
        ("load", "s3/best"),
        ("hybrid", "hybrid/s3/best"),
    )
    asked = _run_twice(
        rounds, ScriptedSource(SeriesFailed("hybrid/s3/best", "no answer"), JobDone()), tmp_path, clock
    )
    assert asked[1:] == [("recompute", "posix/best")] * 2
    assert [(notice.kind, notice.text) for notice in rounds.notices[:1]] == [
        (
            "series_failed",
            "s3/best: could not be read any more and was left out from then on: round 1: no answer",
        )
    ]


def test_when_the_last_way_to_load_breaks_the_sweep_ends(tmp_path: Path) -> None:
    clock = VirtualClock()
    source = ScriptedSource(SeriesFailed("load", "no answer"), JobDone())
    with pytest.raises(MeasureError, match="round 1: no answer"):
        _run_twice(make_rounds(clock, budget_s=60.0), source, tmp_path, clock)


class _Arm:
    """An arm that gives what it is told to."""

    def __init__(self, outcome: Outcome | KVIOError) -> None:
        self._outcome = outcome

    def warm_up(self, case: Case) -> None: ...

    def prepare(self, case: Case) -> None: ...

    def run(self, case: Case) -> Outcome:
        if isinstance(self._outcome, KVIOError):
            raise self._outcome
        return self._outcome

    def close(self) -> None: ...


def _job(num_ranks: int = 1) -> RoundJob:
    cases = Case("recompute", "recompute", 100), Case("load", "s3/best", 100), Case("load", "posix/best", 100)
    plan = Plan(model="m", tensor_parallel=num_ranks)
    return RoundJob(plan=plan, number=0, passes=(Pass((cases,)),), start_s=0.0, deadline_s=9.0, seed=0)


def test_a_read_that_fails_ends_the_round_and_names_its_series() -> None:
    arms = {"recompute": _Arm(Outcome(seconds=1.0)), "s3/best": _Arm(KVIOError("no answer"))}
    told = list(measure_passes(_job(), arms, clock=VirtualClock()))
    assert isinstance(told[0], SampleTaken)
    assert told[1:] == [SeriesFailed("s3/best", "no answer")]


def test_of_several_ranks_a_read_that_fails_is_the_end() -> None:
    arms = {"recompute": _Arm(Outcome(seconds=1.0)), "s3/best": _Arm(KVIOError("no answer"))}
    with pytest.raises(KVIOError, match="no answer"):
        list(measure_passes(_job(num_ranks=2), arms, clock=VirtualClock()))


class _LoggingArm:
    """Writes down what is asked of it; preparing takes 10 s, anything else 1 s."""

    def __init__(self, clock: VirtualClock, log: list[tuple[str, str]]) -> None:
        self._clock, self._log = clock, log

    def _note(self, what: str, case: Case, seconds: float) -> None:
        self._log.append((what, case.series))
        self._clock.advance(seconds)

    def warm_up(self, case: Case) -> None:
        self._note("warm_up", case, 1.0)

    def prepare(self, case: Case) -> None:
        self._note("prepare", case, 10.0)

    def run(self, case: Case) -> Outcome:
        self._note("run", case, 1.0)
        return Outcome(seconds=1.0)

    def close(self) -> None: ...


def test_every_case_is_warmed_up_once_a_round_and_prepared_before_its_clock_starts() -> None:
    clock, log = VirtualClock(), list[tuple[str, str]]()
    arm = _LoggingArm(clock, log)
    one_pass = Pass(((Case("recompute", "recompute", 100), Case("load", "s3/best", 100)),))
    job = replace(_job(), passes=(one_pass, one_pass), deadline_s=99.0)
    told = list(measure_passes(job, {"recompute": arm, "s3/best": arm}, clock=clock))
    timed = [(what, series) for series in ("recompute", "s3/best") for what in ("warm_up", "prepare", "run")]
    assert log == timed + [step for step in timed if step[0] != "warm_up"]
    assert [message.sample.started_s for message in told if isinstance(message, SampleTaken)] == [
        11.0,
        23.0,
        34.0,
        45.0,
    ]


def test_a_length_that_would_end_after_the_deadline_is_not_begun() -> None:
    clock, log = VirtualClock(), list[tuple[str, str]]()
    cases = [Case("recompute", "recompute", length) for length in (100, 400, 200)]
    job = replace(
        _job(),
        passes=(Pass(tuple((case,) for case in cases)),),
        expected_s={case: case.prefix_tokens / 10 for case in cases},
        deadline_s=36.0,
    )
    told = list(measure_passes(job, {"recompute": _LoggingArm(clock, log)}, clock=clock))
    # 12 s are over when the longest would begin, and 36 s are not when the other has begun
    assert [m.sample.case.prefix_tokens for m in told if isinstance(m, SampleTaken)] == [100, 200]


def test_every_round_has_an_order_of_its_own_and_the_same_seed_gives_it_again() -> None:
    def orders() -> list[tuple[Pass, ...]]:
        rounds = make_rounds(VirtualClock(), budget_s=600.0, num_samples=5)
        found = []
        for rounds.next_round in range(4):
            job = plan_round(rounds, (100, 200, 400), left_s=600.0)
            assert job is not None
            found.append(job.passes)
        return found

    assert len(set(orders())) == 4
    assert orders() == orders()


def _stopped_after(tmp_path: Path, *messages: Message) -> list[tuple[str, str, bool]]:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)

    def once(progress: Progress) -> tuple[int, ...] | End:
        return progress.allowed if progress.rounds_done == 0 else End("enough")

    source = ScriptedSource(*messages, JobStopped())
    measure_rounds(rounds, source, tmp_path, clock=clock, policy=once)
    return [(notice.kind, notice.text, notice.suspect) for notice in rounds.notices]


def test_a_round_that_had_to_be_ended_makes_the_run_suspect_and_says_where_it_was(tmp_path: Path) -> None:
    sample = Sample(
        round=0,
        order=0,
        sample=0,
        started_s=0.0,
        case=Case("load", "s3/best", 200),
        outcome=Outcome(seconds=1.0),
    )
    (code, message, suspect), *unmeasured = _stopped_after(tmp_path, SampleTaken(sample, 1.0))
    assert (code, suspect) == ("round_stopped", True)
    assert message.startswith("round 1: its process did not answer any more after the deadline and was ended")
    assert "samples that it had given: 1, the last of s3/best at 200 tokens" in message
    assert [(kind, text.partition(":")[0]) for kind, text, _ in unmeasured] == [
        ("unmeasured", "recompute"),
        ("unmeasured", "load"),
    ]


def test_a_round_that_never_gave_a_sample_is_said_to(tmp_path: Path) -> None:
    (code, message, _), *_ = _stopped_after(tmp_path)
    assert code == "round_stopped"
    assert (
        "had given: 0; a call far slower than before does that, as on a machine that is busy, or a drive"
        in message
    )
