"""`fio` as a user meets it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.record.run import read_run
from bench.report.fio_match import reading_of
from tests.helpers.commands import ROOT, call_bench, run_bench
from tests.report.test_fio_match import OUTPUT

RESULT = next((ROOT / "results").glob("qwen3-0.6b/*/*/run.json")).parent


def test_fio_prints_a_job_and_nothing_else(tmp_path: Path) -> None:
    finished = run_bench("fio", "--model", "qwen3-8b", "--layout", "vllm-fs", cwd=tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "bs=2359296" in finished.stdout.splitlines()  # 16 tokens of 147,456 bytes
    assert "numjobs=16" in finished.stdout.splitlines()
    (directory,) = (line for line in finished.stdout.splitlines() if line.startswith("directory="))
    assert Path(directory.partition("=")[2]).is_absolute()  # fio may be run from anywhere


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed: apt-get install fio")
def test_the_job_runs_and_its_output_is_compared_with_a_sweep(tmp_path: Path) -> None:
    asked = [
        "--layout",
        "lmcache",
        "--chunk-tokens",
        "16",
        "--working-set",
        "32MiB",
        "--data-dir",
        str(tmp_path),
    ]
    job = call_bench("fio", "--model", "qwen3-8b", *asked, cwd=tmp_path).stdout
    _run_fio(job, tmp_path)
    finished = call_bench("fio", "compare", "out.json", str(RESULT), cwd=tmp_path)
    assert finished.returncode == 3, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[1].split()[:3] == ["fio", "kv-lmcache", "psync"]
    assert "model: Qwen/Qwen3-8B, here Qwen/Qwen3-0.6B; layout: lmcache, here best" in lines[2]
    assert "[" in lines[2] and lines[2].split("]")[1].split()[0] == "—"  # no share of fio's rate


def _run_fio(job: str, folder: Path) -> None:
    (folder / "job.fio").write_text(job)
    fio = ["fio", "--output-format=json", "--output=out.json", "job.fio"]
    subprocess.run(fio, cwd=folder, check=True, timeout=60)


def test_the_newest_conclusive_sweep_is_taken_and_a_rate_is_a_share_where_settings_agree(
    tmp_path: Path,
) -> None:
    reading = reading_of(read_run(RESULT), "posix/best")
    job = {**OUTPUT["jobs"][0], "job options": {"numjobs": str(reading.in_flight)}}  # type: ignore[index]
    size = int(reading.read_bytes or 0)
    job["read"] = {**job["read"], "io_bytes": 8 * size, "total_ios": 8}
    for name, run_id in (("old", RESULT.name), ("new", "29991231T000000Z-000000")):
        shutil.copytree(RESULT, tmp_path / "results" / name / "machine" / run_id)
    newer = tmp_path / "results/new/machine/29991231T000000Z-000000/run.json"
    newer.write_text(newer.read_text().replace('"state": "complete"', '"state": "interrupted"'))
    (tmp_path / "fio.json").write_text(json.dumps({**OUTPUT, "jobs": [job]}))
    finished = call_bench("fio", "compare", "fio.json", cwd=tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.splitlines()[-1] == f"sweep: results/old/machine/{RESULT.name}"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "no model is named"),
        (["--model", "qwen3-8b", "--layout", "nope"], "unknown preset 'nope'"),
        (["--model", "qwen3-8b", "--engine", "mmap"], "unknown fio engine"),
        (["--model", "qwen3-8b", "--working-set", "1MiB"], "does not hold an object"),
        (["compare", "none.json"], "none.json: No such file"),
    ],
    ids=["no model", "no layout", "no engine", "no room", "no file"],
)
def test_what_is_wrong_is_one_line_and_exit_2(tmp_path: Path, asked: list[str], said: str) -> None:
    finished = call_bench("fio", *asked, cwd=tmp_path)
    assert finished.returncode == 2
    assert said in finished.stderr
    assert finished.stderr.count("\n") == 1


def test_compare_without_a_sweep_says_so(tmp_path: Path) -> None:
    (tmp_path / "fio.json").write_text(json.dumps(OUTPUT))
    finished = call_bench("fio", "compare", "fio.json", cwd=tmp_path)
    assert finished.returncode == 2
    assert "no sweep here yet" in finished.stderr


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["--queue-depth", "16"], {"iodepth=4", "numjobs=4"}),
        (["--queue-depth", "4", "--threads", "1"], {"iodepth=4", "numjobs=1"}),
        (["--queue-depth", "4", "--engine", "psync"], {"iodepth=1", "numjobs=4"}),
        (["--queue-depth", "6", "--engine", "psync"], {"iodepth=1", "numjobs=6"}),
    ],
)
def test_a_queue_depth_counts_reads_over_all_threads(
    tmp_path: Path, asked: list[str], expected: set[str]
) -> None:
    finished = call_bench("fio", "--model", "qwen3-8b", "--engine", "libaio", *asked, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert expected <= set(finished.stdout.splitlines())


@pytest.mark.parametrize(
    ("layout", "asked", "direct"),
    [
        ("lmcache", [], 0),
        ("lmcache", ["--no-buffered"], 1),
        ("best", [], 1),
        ("best", ["--buffered"], 0),
    ],
)
def test_the_page_cache_is_the_layouts_unless_asked(
    tmp_path: Path, layout: str, asked: list[str], direct: int
) -> None:
    finished = call_bench("fio", "--model", "qwen3-8b", "--layout", layout, *asked, cwd=tmp_path)
    assert f"direct={direct}" in finished.stdout.splitlines()


def test_a_sweep_that_read_no_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fio.json").write_text(json.dumps(OUTPUT))
    swept = call_bench(
        "sweep", "qwen3-8b", "--backend", "simulated", "--budget", "5s", "--rounds", "3", cwd=tmp_path
    )
    finished = call_bench("fio", "compare", "fio.json", cwd=tmp_path)
    assert finished.returncode == 2, swept.stderr
    assert "simulated/best (simulated drive)" in finished.stderr
    assert finished.stderr.count("\n") == 1
