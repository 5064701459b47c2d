"""Readers of vLLM and LMCache: the real packages, in a child process of the environment that `make peers` makes."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path

from tests.perf.fileset import FileSet

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
CHILD = Path(__file__).with_name("peer_readers.py")
LOGS = ROOT / "results" / "scratch"
INSTALL = "make peers"
_CHILDREN: dict[str, "Child"] = {}


class Child:
    """One process of a package: asked in lines of JSON, it answers in lines of JSON; what it logs is kept."""

    def __init__(self, package: str) -> None:
        self._log = LOGS / f"peer-{package}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [PYTHON, CHILD, package],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd="/",
                env={**os.environ, "LMCACHE_LOG_LEVEL": "ERROR", "VLLM_LOGGING_LEVEL": "ERROR"},
            )
        self.version = self._next()["version"]

    def _next(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = self._log.read_text().strip().splitlines()[-1:]
            raise AssertionError(f"the child process ended with {self._process.wait()}: {last}; {self._log}")
        found: dict[str, object] = json.loads(line)
        return found

    def ask(self, **question: object) -> dict[str, object]:
        """The answer to one question."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._next()

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


@cache
def explain_no_package(package: str) -> str | None:
    """Why it cannot be used; None where it can."""
    if not PYTHON.exists():
        return f"{package} is not installed: {INSTALL}"
    tried = subprocess.run(
        [PYTHON, CHILD, package], input="", capture_output=True, text=True, check=False, cwd="/"
    )
    if tried.returncode:
        return f"{package} cannot be loaded ({tried.stderr.strip().splitlines()[-1][:200]}): {INSTALL}"
    return None


def child_of(package: str) -> Child:
    """The process of this package, begun once."""
    if package not in _CHILDREN:
        _CHILDREN[package] = Child(package)
    return _CHILDREN[package]


def close_children() -> dict[str, object]:
    """End them all; their versions."""
    versions = {package: child.version for package, child in _CHILDREN.items()}
    while _CHILDREN:
        _CHILDREN.popitem()[1].close()
    return versions


def read_by_package(package: str, reader: str, files: FileSet, depth: int) -> float:
    """Seconds that the package's reader took for all files."""
    answer = child_of(package).ask(
        reader=reader,
        folder=str(files.store.directory / f"{package}-{reader}"),
        paths=[str(path) for path in files.paths],
        marks=files.marks,
        request_bytes=files.request_bytes,
        depth=depth,
    )
    assert answer["num_bytes"] == files.num_bytes
    seconds = answer["seconds"]
    assert isinstance(seconds, float)
    return seconds
