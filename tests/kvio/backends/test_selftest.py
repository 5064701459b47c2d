"""A trial of a backend leaves nothing behind, even when it is killed for taking too long."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kvio.backends import BACKENDS, selftest
from kvio.backends import selftest_process as trial
from kvio.backends.selftest import main
from kvio.backends.selftest_process import try_reading
from kvio.protocol import Unavailable
from kvio.store.scratch import clean_stale, count_live


def test_what_a_killed_trial_wrote_lies_in_a_directory_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Unavailable("a trial read did not end within 30 s", "--backend posix")

    def hang(command: Sequence[str], *, remedy: str) -> Unavailable:
        folder = Path(command[-2])
        (folder / "file").write_bytes(b"kv")
        assert (folder.parent, count_live(tmp_path), clean_stale(tmp_path)) == (tmp_path, 0, [])
        return killed

    monkeypatch.setattr(trial, "run_trial", hang)
    assert try_reading("uring", tmp_path, {}, remedy="--backend posix") == killed
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_takes_no_files_is_named(tmp_path: Path) -> None:
    why = try_reading("uring", tmp_path / "gone", {}, remedy="--backend posix")
    assert why is not None
    assert "gone: no such directory" in why.reason
    assert why.remedy == "another --data-dir"


def test_a_trial_writes_into_the_directory_that_it_is_given_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main("posix", str(tmp_path), "{}")
    assert json.loads(capsys.readouterr().out) is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_trial_fails_where_other_bytes_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selftest, "_content", lambda target: b"other")
    main("posix", str(tmp_path), "{}")
    assert json.loads(capsys.readouterr().out)["reason"].startswith(trial.TRIAL_FAILED)


class _Placement:
    """Says what is asked of it."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def open(self) -> None:
        self._told.append("open")

    def upload(self, paths: Sequence[Path]) -> None:
        self._told.append("upload")

    def remove(self) -> None:
        self._told.append("remove")


def test_the_object_of_a_trial_has_a_mark_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def make(options: Mapping[str, str], root: Path) -> _Placement:
        return _Placement(told)

    monkeypatch.setitem(BACKENDS, "posix", replace(BACKENDS["posix"], placement=make))
    main("posix", str(tmp_path), "{}")
    assert told == ["open", "upload", "remove"]
