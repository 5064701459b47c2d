"""Real short sweeps by the command line through S3, NIXL and Mooncake, and what is left of them however they end."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.report.run_facts import format_cache, storage_name
from kvio.backends import find_backend
from kvio.backends.mooncake.mooncake_client import read_mooncake, shared_client
from kvio.backends.mooncake.mooncake_placement import Keys
from kvio.backends.s3.bucket import Bucket, read_address
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.commands import ROOT, run_bench
from tests.helpers.servers import S3Server, require_mooncake, require_s3, shared_mooncake, shared_s3

pytestmark = pytest.mark.slow

SETTINGS = ("--dtype", "float32", "--tokens", "64,128", "--samples", "1", "--working-set", "32MiB")


@pytest.fixture
def server() -> S3Server:
    require_s3()
    return shared_s3()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return path


def _arguments(tiny: Path, backend: str, server: S3Server, prefix: str) -> list[str]:
    options = {**server.options, "prefix": prefix}
    chosen = [part for name, value in options.items() for part in ("--option", f"{name}={value}")]
    return ["sweep", str(tiny), *SETTINGS, "--budget", "300s", "--backend", backend, *chosen]


def _keys(server: S3Server, prefix: str) -> list[str]:
    return Bucket(read_address(server.options)).list_keys(prefix)


def _loads(folder: Path) -> set[tuple[str, str, str, str]]:
    with (folder / "samples.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["arm"] == "load"]
    return {(row["series"], row["data_path"], row["cache_state"], row["verified"]) for row in rows}


def test_a_sweep_through_s3_says_what_it_cannot_know_and_leaves_nothing(
    tiny: Path, tmp_path: Path, server: S3Server
) -> None:
    arguments = _arguments(tiny, "s3,hostmem", server, "sweep")
    finished = run_bench(*arguments, "--rounds", "1", cwd=tmp_path)
    assert finished.returncode == 3, finished.stderr
    folder = tmp_path / finished.stdout.strip().splitlines()[-1]
    assert _loads(folder) == {
        ("s3/best", "s3-whole", "unverified", "true"),
        ("hostmem/best", "hostmem", "", "true"),
    }
    run = read_run(folder)
    assert run.checks["answer:s3/best"]["passed"] is True
    assert run.checks["answer:s3/best"]["control_difference"] > 1
    of = {notice.kind: notice.series for notice in run.notices}
    assert (of["server_caches_unknown"], of["link_rate_unknown"]) == ("s3/best", "s3/best")
    assert storage_name(run, "s3/best") == f"bucket {server.bucket} at {server.endpoint}"
    assert format_cache(run, [], series="s3/best") is None
    for secret in (os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_ACCESS_KEY_ID"]):
        assert all(secret.encode() not in path.read_bytes() for path in folder.iterdir())
    assert (_keys(server, "sweep"), list((tmp_path / "results" / "scratch").iterdir())) == ([], [])


def test_a_sweep_through_nixl_is_proved_by_the_kernels_counters(
    tiny: Path, tmp_path: Path, server: S3Server
) -> None:
    why = find_backend("nixl").probe(tmp_path, {})
    if why is not None:
        pytest.skip(f"{why.reason}; try: {why.remedy}")
    arguments = _arguments(tiny, "nixl,nixl-obj", server, "nixl")
    finished = run_bench(*arguments, "--option", "queue=uring", "--rounds", "1", cwd=tmp_path)
    assert finished.returncode in {0, 3}, finished.stderr
    folder = tmp_path / finished.stdout.strip().splitlines()[-1]
    found = _loads(folder)
    assert ("nixl-obj/best", "nixl-obj", "unverified", "true") in found
    (files,) = (row for row in found if row[0] == "nixl/best")
    assert files[1].startswith("nixl-posix-uring-")
    assert files[3] == "true"
    assert _keys(server, "nixl") == []


MOONCAKE = ("--budget", "300s", "--backend", "mooncake", "--chunk-tokens", "32")


def test_a_sweep_through_a_store_of_its_own_reads_chunks_as_objects_and_leaves_nothing(
    tiny: Path, tmp_path: Path
) -> None:
    require_mooncake()
    arguments = ("sweep", str(tiny), *SETTINGS, *MOONCAKE, "--layout", "best,mooncake", "--rounds", "1")
    finished = run_bench(*arguments, cwd=tmp_path)
    assert finished.returncode == 3, finished.stderr
    assert not re.findall(r"^[IWE]\d{4} |Logging before", finished.stderr, re.MULTILINE)  # Mooncake's own log
    folder = tmp_path / finished.stdout.strip().splitlines()[-1]
    assert _loads(folder) == {
        ("mooncake/best", "mooncake-tcp-whole", "unverified", "true"),
        ("mooncake/mooncake", "mooncake-tcp-whole", "unverified", "true"),
    }
    run = read_run(folder)
    assert run.checks["answer:mooncake/mooncake"]["passed"] is True
    assert run.checks["answer:mooncake/mooncake"]["control_difference"] > 1
    assert run.series["mooncake/mooncake"].settings["queue_depth"] == 32
    assert storage_name(run, "mooncake/best") == "Mooncake store of this run"
    with (folder / "samples.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["series"] == "mooncake/mooncake"]
    # a request for each chunk of 32 tokens, in files that hold all of them
    assert {(row["prefix_tokens"], row["num_requests"]) for row in rows} == {("64", "2"), ("128", "4")}
    assert list((tmp_path / "results" / "scratch").iterdir()) == []


def test_kill_9_of_a_sweep_ends_the_store_that_it_started(tiny: Path, tmp_path: Path) -> None:
    require_mooncake()
    arguments = ["sweep", str(tiny), *SETTINGS, *MOONCAKE, "--rounds", "50"]
    with _begun(arguments, tmp_path) as process:
        programs = psutil.Process(process.pid).children(recursive=True)
        assert any("mooncake_master" in " ".join(one.cmdline()) for one in programs)
        process.kill()
        process.communicate(timeout=60)
    assert psutil.wait_procs(programs, timeout=20)[1] == []


def test_ctrl_c_leaves_a_users_store_as_it_was(tiny: Path, tmp_path: Path) -> None:
    store = shared_mooncake()
    client = shared_client(read_mooncake(store.options), store.master)
    arguments = ["sweep", str(tiny), *SETTINGS, *MOONCAKE, "--option", f"master={store.master}"]
    with _begun([*arguments, "--option", f"prefix={tmp_path.name}", "--rounds", "50"], tmp_path) as process:
        (placed,) = (tmp_path / "results" / "scratch").glob("*/store-0/chunk-000000.kv")
        key = Keys(tmp_path.name, None).find(placed, 0, size_bytes=placed.stat().st_size).key
        assert client.size_bytes(key) == placed.stat().st_size
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert client.remove_below(tmp_path.name) == 0
    (folder,) = (path.parent for path in (tmp_path / "results").glob("*/*/*/run.json"))
    run = read_run(folder)
    assert (run.state, storage_name(run, "mooncake/best")) == (
        "interrupted",
        f"Mooncake store at {store.master}",
    )


@pytest.fixture
def running(
    tiny: Path, tmp_path: Path, server: S3Server
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A sweep that has placed its objects and begun to measure."""
    arguments = _arguments(tiny, "s3", server, tmp_path.name)
    with _begun([*arguments, "--rounds", "50"], tmp_path) as process:
        yield process, arguments


@contextmanager
def _begun(arguments: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that has come to its second round, and is ended where it still runs."""
    command = [sys.executable, "-u", "-m", "bench", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "round 2" in line:
                break
        yield process
        if process.poll() is None:
            process.kill()


def test_ctrl_c_removes_the_objects(
    running: tuple[subprocess.Popen[str], list[str]], server: S3Server, tmp_path: Path
) -> None:
    process, _ = running
    assert _keys(server, tmp_path.name)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert _keys(server, tmp_path.name) == []


def test_after_kill_9_the_next_sweep_removes_the_objects(
    running: tuple[subprocess.Popen[str], list[str]], server: S3Server, tmp_path: Path
) -> None:
    process, arguments = running
    process.kill()
    process.communicate(timeout=60)
    assert _keys(server, tmp_path.name)
    finished = run_bench(*arguments, "--rounds", "1", cwd=tmp_path)
    assert finished.returncode == 3, finished.stderr
    assert _keys(server, tmp_path.name) == []


def test_a_missing_bucket_is_one_line_and_exit_code_2(tiny: Path, tmp_path: Path, server: S3Server) -> None:
    wrong = S3Server(server.endpoint, "kvcross-none")
    finished = run_bench(*_arguments(tiny, "s3", wrong, "none"), cwd=tmp_path)
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert "there is no such bucket" in line
    assert not list(tmp_path.glob("results/*/*/*"))


def test_a_store_that_dies_in_mid_sweep_is_left_out_and_the_files_are_measured_on(
    tiny: Path, tmp_path: Path
) -> None:
    require_mooncake()
    ways = ("--backend", "mooncake,posix", "--layout", "mooncake", "--chunk-tokens", "32")
    arguments = ["sweep", str(tiny), *SETTINGS, "--budget", "300s", *ways, "--rounds", "4"]
    with _begun(arguments, tmp_path) as process:
        (master,) = (
            one
            for one in psutil.Process(process.pid).children(recursive=True)
            if "mooncake_master" in one.cmdline()[0]
        )
        master.kill()
        _, said = process.communicate(timeout=120)
    assert process.returncode == 3, said
    (folder,) = (path.parent for path in (tmp_path / "results").glob("*/*/*/run.json"))
    run, (samples, _) = read_run(folder), read_samples(folder)
    assert run.state == "complete"
    (notice,) = (one for one in run.notices if one.kind == "series_failed")
    assert notice.text.startswith("mooncake/mooncake: could not be read any more and was left out")
    assert {s.case.series for s in samples if s.round == 3 and s.case.arm == "load"} == {"posix/mooncake"}
    assert list((tmp_path / "results" / "scratch").iterdir()) == []
