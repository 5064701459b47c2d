"""Reading threads share the descriptors that the process may have: however many there are, none runs out."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvio.backends.local.file_handles import Descriptors, OpenedFiles
from kvio.evidence.cold_evidence import ReadCounters, read_counters
from tests.helpers.commands import ROOT


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"chunk-{number:06d}.kv" for number in range(40)]
    for path in made:
        path.write_bytes(b"kv")
    return made


def _files(descriptors: Descriptors, most: int = 32) -> OpenedFiles:
    return OpenedFiles(direct=False, most=most, descriptors=descriptors)


def _num_open(files: OpenedFiles, paths: list[Path]) -> int:
    found = 0
    for path in paths:
        try:
            files.descriptor(path)
        except KeyError:
            continue
        found += 1
    return found


def test_each_thread_keeps_its_share_of_what_the_process_may_have(paths: list[Path]) -> None:
    descriptors = Descriptors(12)
    threads = [_files(descriptors) for _ in range(3)]
    for path in paths:
        for files in threads:
            files.open(path)
    assert [_num_open(files, paths) for files in threads] == [4, 4, 4]
    threads[0].close()
    threads[0].close()
    assert descriptors.share == 6


def test_where_there_is_plenty_a_thread_keeps_its_own_most(paths: list[Path]) -> None:
    files = _files(Descriptors(1000), most=32)
    for path in paths:
        files.open(path)
    assert _num_open(files, paths) == 32
    files.close()


def test_a_thread_that_comes_late_takes_no_more_than_is_left(paths: list[Path]) -> None:
    descriptors = Descriptors(8)
    first = _files(descriptors)
    for path in paths[:10]:
        first.open(path)
    second = _files(descriptors)
    for path in paths[:10]:
        second.open(path)
    assert (_num_open(first, paths), _num_open(second, paths)) == (8, 1)  # one, or it could not read at all
    for path in paths[10:20]:
        first.open(path)
        second.open(path)
    assert (_num_open(first, paths), _num_open(second, paths)) == (4, 4)
    first.close()
    second.close()


def test_a_file_that_is_being_read_is_not_closed_to_make_room(paths: list[Path]) -> None:
    files = _files(Descriptors(2))
    for path in paths[:3]:
        files.open(path)
        files.hold(path)
    assert _num_open(files, paths) == 3
    for path in paths[:3]:
        files.let_go(path)
    files.open(paths[3])
    assert _num_open(files, paths) == 2
    files.close()


def _run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


MANY = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from kvio.backends import find_backend
from kvio.backends.config import BackendConfig
threads = [find_backend(sys.argv[1]).make(BackendConfig()) for _ in range(64)]
for path in sorted(Path(sys.argv[2]).glob("*.kv")):
    for backend in threads:
        backend.open(path)
print("all read")
"""


@pytest.mark.parametrize("backend", ["posix", "uring"])
def test_64_threads_with_40_files_each_get_by_with_200_descriptors(
    tmp_path: Path, paths: list[Path], backend: str
) -> None:
    assert _run(MANY, backend, str(tmp_path)) == "all read"


RAISE = """
import resource
from kvio.backends.local.file_handles import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
told = [raise_limit(400), raise_limit(300), raise_limit()]
print(*told, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_as_far_as_it_may_be_and_never_lowered() -> None:
    assert _run(RAISE) == "400 400 512 512 512"


WORK = """
import os, resource
from bench.measure.worker import worker_main as worker
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
def tell(pipe):
    print(*resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
    os._exit(0)
worker._receive = tell
worker.serve_job(None)
"""


def test_a_measuring_process_raises_its_own_limit_before_it_takes_a_job() -> None:
    assert _run(WORK) == "512 512"


def test_a_counter_that_cannot_be_opened_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "proc/self/io").mkdir(parents=True)  # as without descriptors, opening it is an OSError
    assert read_counters(None, tmp_path) == ReadCounters(None, None)
