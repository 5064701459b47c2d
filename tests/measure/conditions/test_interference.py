"""Others that come to a machine or a folder while a sweep measures there."""

from pathlib import Path

import pytest

from bench.machine.counters import SystemCounters
from bench.measure import sweep
from bench.measure.clock import VirtualClock
from bench.measure.conditions.interference import InterferenceMonitor, start_monitor
from bench.measure.rounds import Rounds
from bench.measure.session import MeasurementSession
from bench.measure.setup import resolve_plan
from bench.measure.sweep import resume_sweep
from bench.measure.sweep_state import SweepState
from bench.record.plan import LoadSpec, Plan, SimulationSpec
from bench.record.run import read_run, write_run
from kvio.evidence.io_counters import Traffic
from kvio.store.scratch import open_scratch
from tests.helpers.scripted_rounds import ScriptedSource, make_rounds
from tests.measure.test_resume import _hooks as hooks
from tests.measure.test_resume import _stopped as stopped


def _state(rounds: Rounds, session: MeasurementSession, folder: Path) -> SweepState:
    setup = resolve_plan(Plan(model="qwen3-8b"))
    return SweepState(setup, session, folder, rounds.run, rounds=rounds)


def test_a_sweep_says_that_another_came_after_it_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)
    written: list[int] = []
    monkeypatch.setattr(SweepState, "write_header", lambda self: written.append(len(rounds.notices)))

    def look(session: MeasurementSession) -> None:
        _state(rounds, session, tmp_path).check_interference(None)

    with open_scratch(tmp_path) as ours:
        session = MeasurementSession(clock, ScriptedSource(), ours, 0.0)
        look(session)
        assert written == []
        with open_scratch(tmp_path):
            look(session)
            look(session)
        look(session)
    assert [(notice.kind, notice.text) for notice in rounds.notices] == [
        ("another_run", "1 other sweep used the same folder when this one measured: each disturbs the other")
    ]
    assert written == [1, 1, 1]


def _moments(*others_s: float) -> list[SystemCounters]:
    """After rounds of 10 s on two cores in which others took so many processor seconds, and the sweep 5 s."""
    moments, busy_s = [SystemCounters(0.0, 100.0, 7.0, 2)], 100.0
    for number, seconds in enumerate(others_s, 1):
        busy_s += seconds + 5.0
        moments.append(SystemCounters(10.0 * number, busy_s, 7.0 + 5.0 * number, 2))
    return moments


def test_rounds_in_which_others_took_the_processor_are_named_in_one_notice(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = make_rounds(clock, budget_s=60.0)
    first, *others = _moments(5.0, 5.2, 12.0, 0.0, 8.0)  # a quarter of 20 s is not too much
    monitor = InterferenceMonitor(iter(others).__next__, first)
    said = []
    for number in range(5):
        rounds.next_round = number
        session = MeasurementSession(clock, ScriptedSource(), None, 0.0)
        _state(rounds, session, tmp_path).check_interference(monitor)
        said.append([(notice.kind, notice.text) for notice in rounds.notices])
    begin = "from round 2 on: other work took up to"
    assert said == [
        [],
        [("busy_machine", f"{begin} 26% of the processor in round 2; expect wide intervals")],
        [("busy_machine", f"{begin} 60% of the processor in rounds 2-3; expect wide intervals")],
        [("busy_machine", f"{begin} 60% of the processor in rounds 2-3; expect wide intervals")],
        [("busy_machine", f"{begin} 60% of the processor in rounds 2-3, 5; expect wide intervals")],
    ]


def _meet(backend: str, **settings: object) -> InterferenceMonitor | None:
    load = LoadSpec.model_validate({"backend": backend, **settings})
    setup = resolve_plan(Plan(model="qwen3-8b", tokens=(512,), loads=(load,)))
    return start_monitor(setup, MeasurementSession(VirtualClock(), ScriptedSource(), None, 0.0))


def test_the_processor_is_watched_unless_a_server_on_this_machine_works_for_the_sweep() -> None:
    alone = _meet("hostmem")
    assert alone is not None and alone.before.busy_s is not None
    assert alone.before.drive is None  # nothing is read from it
    served = _meet("s3", options={"endpoint": "http://127.0.0.1:9", "bucket": "kv"})
    assert served is not None and served.before.busy_s is None


def _told(traffic: list[Traffic | None]) -> list[tuple[str, str]]:
    """What is said after rounds that began and ended with these counts of the drive."""
    first, *others = [SystemCounters(10.0 * n, None, 0.0, 2, drive=drive) for n, drive in enumerate(traffic)]
    monitor = InterferenceMonitor(iter(others).__next__, first)
    said = [monitor.look(number) for number in range(1, len(traffic))]
    return [(notice.kind, notice.text) for notice in said[-1]]


def test_rounds_in_which_others_wrote_to_the_drive_are_named_in_one_notice() -> None:
    counts = [
        Traffic(0, 0),
        Traffic(1_000_000_000, 100_000_000),  # a tenth of what was read
        Traffic(2_000_000_000, 201_000_000),
        Traffic(2_000_000_000, 265_000_000),  # 64 MB while nothing was read
        Traffic(3_000_000_000, 765_000_000),
    ]
    assert _told(counts) == [
        (
            "drive_shared",
            "from round 2 on: 0.60 GB were written to the drive in rounds 2, 4, where the sweep only reads, while it "
            "gave 2.00 GB; that may have slowed it",
        )
    ]
    assert _told([*counts[:2], None, *counts[2:4]]) == []


def test_the_drive_below_the_files_is_watched_where_a_series_reads_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(
        "bench.measure.conditions.interference.find_block_device", lambda path: asked.append(path)
    )
    for backend in ("posix", "hostmem"):
        setup = resolve_plan(Plan(model="qwen3-8b", tokens=(512,), loads=(LoadSpec(backend=backend),)))
        assert (
            start_monitor(
                setup, MeasurementSession(VirtualClock(), ScriptedSource(), tmp_path / backend, 0.0)
            )
            is not None
        )
    assert asked == [tmp_path / "posix"]


def test_a_simulation_is_not_monitored() -> None:
    setup = resolve_plan(
        Plan(
            model="qwen3-8b",
            tokens=(512,),
            loads=(LoadSpec(backend="simulated"),),
            simulation=SimulationSpec(),
        )
    )
    assert start_monitor(setup, MeasurementSession(VirtualClock(), ScriptedSource(), None, 0.0)) is None


def test_what_disturbed_each_part_of_a_sweep_is_in_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meet(setup: object, session: object) -> InterferenceMonitor:
        first, *others = _moments(12.0)
        return InterferenceMonitor(iter(others).__next__, first)

    monkeypatch.setattr(sweep, "start_monitor", meet)
    folder = stopped(tmp_path)
    plan = read_run(folder).plan.model_copy(update={"num_rounds": 2})
    write_run(folder, read_run(folder).model_copy(update={"plan": plan}))
    resume_sweep(folder, data_dir=tmp_path, hooks=hooks())
    assert [notice.text for notice in read_run(folder).notices if notice.kind == "busy_machine"] == [
        f"from round {n} on: other work took up to 60% of the processor in round {n}; expect wide intervals"
        for n in (1, 2)
    ]
