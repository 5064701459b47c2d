"""Opening cuFile's driver in a process that may hang, die, or close its input."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from kvio.backends.gds.driver_probe import judge, probe_driver, read_steps

LOADED = {"step": "loaded", "version": "1.20"}
SAY = "import json, os, signal, sys, time\ndef say(**said): print(json.dumps(said), flush=True)\n"


def _fake(body: str) -> tuple[str, ...]:
    return (sys.executable, "-c", SAY + body)


def test_a_process_that_spins_is_killed_at_the_limit_and_its_last_step_is_told() -> None:
    body = "say(step='loaded', version='1.20')\nsay(step='opening')\nwhile True: pass"
    probe = probe_driver(limit_s=0.5, command=_fake(body))
    assert (probe.outcome, probe.version) == ("hung", "1.20")
    assert probe.what == "cuFile was while opening for 0.5 s and was killed"


def test_a_process_that_is_killed_names_the_signal() -> None:
    body = "say(step='opening')\nos.kill(os.getpid(), signal.SIGSEGV)"
    probe = probe_driver(command=_fake(body))
    assert (probe.outcome, probe.what) == ("died", "killed by SIGSEGV while opening")


def test_a_process_that_ends_early_has_died_whatever_it_printed() -> None:
    probe = probe_driver(command=_fake("print('noise'); sys.exit(3)"))
    assert (probe.outcome, probe.what) == ("died", "exit code 3 while starting")
    assert probe_driver(command=_fake("say(step='opening')")).outcome == "died"


def test_our_own_input_survives_a_driver_that_closes_its_input() -> None:
    body = "os.close(0)\nsay(step='opened', closed_stdin=True, nvfs_version='2.27', supported=['nvme'])"
    before = os.fstat(0)
    probe = probe_driver(command=_fake(body))
    assert os.fstat(0) == before
    assert (probe.outcome, probe.closed_stdin) == ("opened", True)
    assert probe.facts["supported"] == ["nvme"]


def test_the_process_works_in_a_folder_of_its_own_and_its_log_goes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = (
        "open('cufile.log', 'w').close()\n"
        "say(step='refused', reason=os.getcwd() + ' ' + os.environ['CUFILE_LOGFILE_PATH'])"
    )
    folder, log = probe_driver(command=_fake(body)).what.split()
    assert log == f"{folder}/cufile.log"
    assert not Path(folder).exists() and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("steps", "returncode", "outcome"),
    [
        ([{"step": "absent", "reason": "no wheel"}], 0, "absent"),
        ([LOADED, {"step": "no context", "reason": "cuInit gives CUresult 3"}], 0, "no context"),
        ([LOADED, {"step": "opening"}, {"step": "refused", "reason": "5006"}], 0, "refused"),
        ([LOADED, {"step": "opening"}, {"step": "opened"}], 0, "opened"),
        ([LOADED, {"step": "opening"}, {"step": "opened"}], -signal.SIGABRT, "died"),
        ([LOADED], 0, "died"),
        ([], None, "hung"),
    ],
)
def test_how_a_process_ended_is_judged_by_its_steps_and_its_code(
    steps: list[dict[str, object]], returncode: int | None, outcome: str
) -> None:
    assert judge(steps, returncode=returncode, limit_s=1.0).outcome == outcome


def test_what_libraries_print_is_no_step() -> None:
    said = b'cuFile: warning\n{"step": "loaded"}\n[1]\n{"step": 3}\n"step"\n\xff\n'
    assert read_steps(said) == [{"step": "loaded"}]
    assert read_steps(json.dumps({"step": "opening"}).encode()) == [{"step": "opening"}]
