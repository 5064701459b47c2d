"""What a kill must not take: the header is written before what may take long, and after rounds that leave notices."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

import bench.measure.sweep
from bench.measure.clock import VirtualClock
from bench.measure.processes.messages import CaseRefused, JobDone, Message
from bench.measure.rounds import run_rounds
from bench.measure.setup import work_out
from bench.measure.sweep import _Held
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan
from bench.record.progress import End
from bench.record.run import read_run
from bench.record.sample import Case
from bench.record.samples_csv import SampleWriter
from kvio.backends.mooncake import mooncake_master as mooncake_server
from kvio.backends.mooncake.mooncake_master import Segment
from kvio.child_process import start_child
from kvio.protocol import KVIOError
from tests.sweeps import make_run
from tests.test_runner import Scripted, Silent, _rounds

SETUP = work_out(Plan(model="qwen3-0.6b", dtype="float32", num_samples=1, loads=(LoadSpec(chunk_tokens=1),)))


class SlowDepots:
    """Remembers which header a kill in the middle of the withdrawal would leave."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.left: list[tuple[str, list[str]]] = []

    def withdraw(self) -> tuple[Notice, ...]:
        run = read_run(self._folder)
        self.left.append((run.state, [notice.code for notice in run.notices]))
        return (Notice(code="objects_left", message="no answer", suspect=False),)


def test_a_server_that_hangs_when_its_objects_are_removed_holds_back_no_header(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measure(*args: object, held: _Held, **more: object) -> None:
        held.writer = SampleWriter(tmp_path)
        held.rounds = _rounds(VirtualClock(), budget_s=60.0)
        held.rounds.notices.append(Notice(code="files_cut", message="fewer"))

    monkeypatch.setattr(bench.measure.sweep, "_measure", measure)
    depots = SlowDepots(tmp_path)
    site: Any = SimpleNamespace(depots=depots, scratch=None)
    run = make_run(plan=SETUP.plan, state="running")
    hands: Any = SimpleNamespace()
    bench.measure.sweep._carry_out(
        SETUP, site, tmp_path, held=bench.measure.sweep._Held(run), samples=[], hands=hands
    )
    assert depots.left == [("complete", ["files_cut"])]
    ended = read_run(tmp_path)
    assert (ended.state, [notice.code for notice in ended.notices]) == (
        "complete",
        ["files_cut", "objects_left"],
    )


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ((JobDone(),), []),
        ((CaseRefused(Case("recompute", "recompute", 400), "out of memory"), JobDone()), ["lengths_dropped"]),
    ],
    ids=["nothing to say", "a length is dropped"],
)
def test_what_a_round_has_to_say_is_written_down_when_it_ends(
    messages: tuple[Message, ...], kept: list[str], tmp_path: Path
) -> None:
    clock = VirtualClock()
    rounds = _rounds(clock, budget_s=60.0)
    asked = iter([(100, 200, 400), End("enough")])
    written: list[str] = []
    writer = SampleWriter(tmp_path)
    run_rounds(
        rounds,
        source=Scripted(*messages),
        policy=lambda progress: next(asked),
        writer=writer,
        observer=Silent(),
        clock=clock,
        between=lambda: written.extend(notice.code for notice in rounds.notices),
    )
    writer.close()
    assert written == kept


def test_a_process_that_gives_no_memory_and_says_nothing_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(
        command: Sequence[str], *, folder: Path, log: IO[bytes], talks: bool
    ) -> subprocess.Popen[bytes]:
        # waits for input that never comes, as a stopped process does
        return start_child(["/bin/cat"], folder=folder, log=log, talks=talks)

    monkeypatch.setattr(mooncake_server, "start_child", start)
    monkeypatch.setattr(mooncake_server, "READY_LIMIT_S", 0.05)
    with pytest.raises(
        KVIOError, match="no memory could be given to the Mooncake store: it says nothing for"
    ):
        Segment("127.0.0.1:1", 1, folder=tmp_path)
