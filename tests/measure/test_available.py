"""A backend that cannot be used here is skipped with its reason; the others are measured."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bench.cli.options import parse_options
from bench.machine.doctor.examine import try_backend
from bench.measure.setup import drop_unavailable_backends
from bench.record.plan import LoadSpec, Plan, PlanError
from kvio.backends import BACKENDS
from kvio.backends.selftest_process import run_trial
from kvio.errors import UserError
from kvio.protocol import Unavailable

WHY = Unavailable("its package is not installed", "pip install tape")


@pytest.fixture(autouse=True)
def _broken_backend(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Mapping[str, str]]]:
    """`tape`, which is never available; what its probe was asked."""
    asked: list[tuple[Path, Mapping[str, str]]] = []

    def probe(directory: Path, options: Mapping[str, str]) -> Unavailable:
        asked.append((directory, options))
        return WHY

    tape = replace(BACKENDS["posix"], probe=probe, options={"speed": "of the tape"})
    monkeypatch.setitem(BACKENDS, "tape", tape)
    return asked


def _plan(*loads: LoadSpec) -> Plan:
    return Plan(model="qwen3-8b", loads=loads)


def test_what_cannot_be_used_is_left_out_and_said(
    tmp_path: Path, _broken_backend: list[tuple[Path, Mapping[str, str]]]
) -> None:
    lmcache = LoadSpec(backend="tape", preset="lmcache", options={"speed": "9"})
    plan, notices = drop_unavailable_backends(
        _plan(LoadSpec(), LoadSpec(backend="tape", options={"speed": "9"}), lmcache), tmp_path
    )
    assert plan.loads == (LoadSpec(),)
    (notice,) = notices  # once, however many layouts
    assert notice.text == "tape: unavailable: its package is not installed; try: pip install tape"
    assert (notice.kind, notice.suspect) == ("backend_unavailable", False)
    assert _broken_backend == [(tmp_path, {"speed": "9"})]


def test_what_reads_into_a_gpu_is_skipped_where_the_cpu_was_asked_for(tmp_path: Path) -> None:
    loads = (LoadSpec(), LoadSpec(backend="hostmem-pinned"))
    plan = Plan(model="qwen3-8b", device="cpu", loads=loads)
    left, (notice,) = drop_unavailable_backends(plan, tmp_path)
    assert left.loads == (LoadSpec(),)
    assert notice.text == (
        "hostmem-pinned: unavailable: it reads into a GPU, and the device asked for is the CPU; try: --device cuda"
    )


def test_nothing_left_to_measure_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nothing is left to measure: tape: .*; try: pip install tape"):
        drop_unavailable_backends(_plan(LoadSpec(backend="tape")), tmp_path)


def test_a_plan_of_which_all_works_stays_as_it_is(tmp_path: Path) -> None:
    plan = _plan(LoadSpec(), LoadSpec(backend="hostmem"))
    assert drop_unavailable_backends(plan, tmp_path) == (plan, ())


def test_nothing_is_tried_in_a_folder_that_is_not_there(
    tmp_path: Path, _broken_backend: list[tuple[Path, Mapping[str, str]]]
) -> None:
    plan = _plan(LoadSpec(backend="tape"))
    assert drop_unavailable_backends(plan, tmp_path / "gone") == (plan, ())
    assert _broken_backend == []


def test_the_doctor_names_reason_and_remedy(tmp_path: Path) -> None:
    finding = try_backend("tape", BACKENDS["tape"], tmp_path)
    assert (finding.topic, finding.status) == ("tape", "skipped")
    assert (finding.what, finding.remedy) == (WHY.reason, WHY.remedy)
    assert try_backend("posix", BACKENDS["posix"], tmp_path).status == "ok"


def _trial(script: str, limit_s: float = 20.0) -> Unavailable | None:
    return run_trial([sys.executable, "-c", script], remedy="another drive", limit_s=limit_s)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("print('null')", None),
        (f"print({json.dumps({'reason': 'no', 'remedy': None})!r})", Unavailable("no", "another drive")),
        (f"print({json.dumps({'reason': 'no', 'remedy': 'yes'})!r})", Unavailable("no", "yes")),
        (
            "import os; os.kill(os.getpid(), 4)",
            Unavailable("a trial read died of SIGILL", "another drive"),
        ),
        ("raise ValueError('odd')", Unavailable("a trial read failed: ValueError: odd", "another drive")),
        ("import sys; sys.exit(3)", Unavailable("a trial read failed: no message", "another drive")),
    ],
    ids=["works", "refused", "refused with remedy", "killed", "raised", "silent"],
)
def test_a_trial_is_judged_by_how_its_process_ends(script: str, expected: Unavailable | None) -> None:
    assert _trial(script) == expected


def test_a_trial_that_hangs_is_ended() -> None:
    assert _trial("while True: pass", limit_s=0.5) == Unavailable(
        "a trial read did not end within 0.5 s", "another drive"
    )


def test_options_are_given_to_the_backend_they_name() -> None:
    assert parse_options(["tape.speed=9", "tape.where=a=b"], ["posix", "tape"]) == {
        "posix": {},
        "tape": {"speed": "9", "where": "a=b"},
    }


def test_an_option_goes_to_every_backend_that_knows_its_name() -> None:
    assert parse_options(["bucket=kv", "queue=aio", "s3.region=eu"], ["s3", "nixl", "nixl-obj"]) == {
        "s3": {"bucket": "kv", "region": "eu"},
        "nixl": {"queue": "aio"},
        "nixl-obj": {"bucket": "kv"},
    }
    with pytest.raises(PlanError, match="option bucket of s3 is given twice"):
        parse_options(["bucket=kv", "s3.bucket=other"], ["s3"])


def test_a_size_is_given_with_its_unit_and_kept_in_bytes() -> None:
    found = parse_options(["tape.task_bytes=4MiB", "tape.room_bytes=8192"], ["tape"])
    assert found == {"tape": {"task_bytes": "4194304", "room_bytes": "8192"}}
    with pytest.raises(UserError, match="much"):
        parse_options(["tape.task_bytes=much"], ["tape"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed=9", "no option 'speed' of nixl; there are: queue"),
        ("nixl.queue", "has no value"),
        ("nixl.=9", "names no option"),
        ("tape.speed=9", "which is not measured"),
    ],
)
def test_an_option_that_cannot_be_placed_is_refused(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        parse_options([text], ["nixl"])
