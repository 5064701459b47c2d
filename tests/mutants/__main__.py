"""Run each mutation's test on a mutated copy of the tree; every one must fail (`make mutants`)."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.table import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
NEEDED = ("bench", "kvio", "tests", "pyproject.toml")
TIMEOUT_S = 300  # a mutation may make its test hang
PASSED, FAILED = 0, 1  # exit codes of pytest; every other one means that no test was run


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one mutation."""

    mutation: Mutation
    caught: bool
    seconds: float
    said: str  # "caught", or what went wrong


def copy_tree(target: Path) -> None:
    """Copy what the tests need from this checkout."""
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / name)


def is_stale(mutation: Mutation) -> bool:
    """True when the text that it replaces does not occur exactly once."""
    return (ROOT / mutation.file).read_text().count(mutation.before) != 1


def run_tests(folder: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run these tests in a copy of the tree."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),  # before the checkout that the environment has installed
        "PYTHONDONTWRITEBYTECODE": "1",  # a mutated file may have the size and the second of the original
    }
    command = [sys.executable, "-m", "pytest", "-x", "--tb=line", "-o", "addopts=-p no:cacheprovider", *tests]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )


def try_mutation(mutation: Mutation, folder: Path) -> Trial:
    """Apply a mutation to a copy of the tree in `folder`, which is empty, and run its test."""
    if is_stale(mutation):
        return Trial(mutation, False, 0.0, "mutation is stale")
    copy_tree(folder)
    mutated = folder / mutation.file
    mutated.write_text(mutated.read_text().replace(mutation.before, mutation.after))
    start_s = time.monotonic()
    try:
        code = run_tests(folder, (mutation.test,)).returncode
    except subprocess.TimeoutExpired:
        code = FAILED
    said = {PASSED: "NOT CAUGHT", FAILED: "caught"}.get(code, f"no test was run (pytest exit code {code})")
    return Trial(mutation, code == FAILED, time.monotonic() - start_s, said)


def find_unmutated_failure() -> str:
    """What pytest prints when the named tests do not all pass, or are skipped, without a mutation; else nothing."""
    with TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        done = run_tests(Path(folder), sorted({mutation.test for mutation in MUTATIONS}))
    ran_all = done.returncode == PASSED and " skipped" not in done.stdout.splitlines()[-1]
    return "" if ran_all else done.stdout


def _try_in_new_folder(mutation: Mutation) -> Trial:
    with TemporaryDirectory() as folder:
        return try_mutation(mutation, Path(folder))


def main() -> int:
    """Print one line for each mutation; exit code 1 unless all are caught."""
    if failure := find_unmutated_failure():
        print(f"without any mutation the tests do not all pass:\n{failure}")
        return FAILED
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        trials = []
        for trial in workers.map(_try_in_new_folder, MUTATIONS):
            trials.append(trial)
            print(f"{trial.mutation.name:<50} {trial.said} in {trial.seconds:.1f} s by {trial.mutation.test}")
    num_caught = sum(trial.caught for trial in trials)
    print(f"{num_caught} of {len(trials)} mutations are caught")
    return PASSED if num_caught == len(trials) else FAILED


if __name__ == "__main__":
    sys.exit(main())
