"""Versions, commit and settings: by allow-list, and absent rather than guessed."""

import os
import subprocess
from pathlib import Path

import numpy
import pytest

from bench.machine.software import (
    ENVIRONMENT,
    SoftwareFacts,
    describe_software,
    read_environment,
    read_git,
    read_versions,
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "code.py").write_text("one\n")
    git("add", "code.py")
    git("commit", "-m", "Start")
    return tmp_path


def test_a_clean_checkout_has_its_commit(checkout: Path) -> None:
    facts = read_git(checkout)
    assert facts is not None
    assert len(facts.commit) == 40
    assert not facts.dirty


def test_a_changed_file_makes_it_dirty_and_a_new_result_does_not(checkout: Path) -> None:
    (checkout / "samples.csv").write_text("new\n")
    facts = read_git(checkout)
    assert facts is not None
    assert not facts.dirty
    (checkout / "code.py").write_text("two\n")
    facts = read_git(checkout)
    assert facts is not None
    assert facts.dirty


def test_below_somebody_elses_checkout_there_is_no_commit(checkout: Path) -> None:
    (checkout / "site-packages").mkdir()
    assert read_git(checkout / "site-packages") is None


def test_outside_git_there_is_no_commit(tmp_path: Path) -> None:
    assert read_git(tmp_path) is None


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    assert read_git(checkout) is None


def test_only_listed_variables_are_read() -> None:
    environment = {
        "OMP_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_TOKEN": "secret",
        "HOME": "/home/a",
        "CUFILE_ENV_PATH_JSON": "/home/a/cufile.json",
        "MKL_SECRET": "secret",
    }
    assert read_environment(environment) == {"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0"}


def test_no_listed_variable_holds_a_path_or_a_secret() -> None:
    assert len(ENVIRONMENT) == len(set(ENVIRONMENT))
    for word in ("PATH", "TOKEN", "KEY", "SECRET", "PASS", "USER", "HOST", "HOME", "_DIR_", "PROXY"):
        assert not [name for name in ENVIRONMENT if word in name], word


def test_versions_are_those_installed_and_nothing_else() -> None:
    versions = read_versions()
    assert versions["numpy"] == numpy.__version__
    assert "pytest" not in versions


def test_the_software_of_this_process_survives_json() -> None:
    facts = describe_software()
    assert SoftwareFacts.model_validate_json(facts.model_dump_json()) == facts
    assert set(facts.environment) <= set(ENVIRONMENT) & set(os.environ)
