"""The command line as a user meets it."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from bench.record.notices import KINDS
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from tests.helpers.commands import ROOT, call_bench, run_bench
from tests.helpers.places import avoid_memory

TINY = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = avoid_memory(tmp_path) / "tiny.json"
    path.write_text(json.dumps(TINY))
    return path


def _sweep_of(tiny: Path, *more: str) -> list[str]:
    settings = ["--dtype", "float32", "--tokens", "64,128,256", "--samples", "2", "--working-set", "64MiB"]
    return ["sweep", str(tiny), *settings, *more]


def _result(finished: subprocess.CompletedProcess[str], cwd: Path) -> Path:
    assert finished.returncode in {0, 3}, finished.stderr
    return cwd / finished.stdout.strip().splitlines()[-1]


def _leftovers(cwd: Path) -> list[Path]:
    return list((cwd / "results" / "scratch").iterdir())


@pytest.mark.slow
def test_a_real_sweep_leaves_an_answer_and_no_kv_files(tiny: Path, tmp_path: Path) -> None:
    finished = run_bench(*_sweep_of(tiny, "--budget", "300s", "--rounds", "2"), cwd=tmp_path)
    folder = _result(finished, tmp_path)
    run, (samples, notices) = read_run(folder), read_samples(folder)
    assert (run.state, notices, _leftovers(tmp_path)) == ("complete", (), [])
    assert {sample.round for sample in samples} == {0, 1}
    loads = [sample.outcome for sample in samples if sample.case.arm == "load"]
    assert all(outcome.verified for outcome in loads)
    assert run.checks["answer:posix/best"]["passed"] is True
    assert run.checks["answer:posix/best"]["control_difference"] > 1
    assert run.searches["posix/best"].chosen is None
    assert run.searches["posix/best"].reason.startswith("256 tokens are 0.5 MB")
    assert {path.name for path in folder.iterdir()} == {
        "run.json",
        "samples.csv",
        "summary.csv",
        "crossover.csv",
        "crossover.png",
        "crossover.svg",
        "report.html",
    }
    rows = list(csv.DictReader((folder / "summary.csv").open()))
    assert [row["prefix_tokens"] for row in rows] == ["64", "128", "256"]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = run_bench("report", folder, cwd=tmp_path)
    assert again.returncode == finished.returncode
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.slow
def test_a_sweep_with_hybrid_checks_its_answer_and_measures_it_at_every_length(
    tiny: Path, tmp_path: Path
) -> None:
    arguments = ("--budget", "300s", "--rounds", "1", "--hybrid", "--layers", "all")
    finished = run_bench(*_sweep_of(tiny, *arguments), cwd=tmp_path)
    folder = _result(finished, tmp_path)
    run, (samples, _) = read_run(folder), read_samples(folder)
    check = run.checks["answer:hybrid/posix/best"]
    assert (check["passed"], check["load_fraction"]) == (True, 0.5)
    hybrids = [sample for sample in samples if sample.case.arm == "hybrid"]
    assert {sample.case.prefix_tokens for sample in hybrids} == {64, 128, 256}
    assert all(s.outcome.verified for s in hybrids if s.outcome.load_fraction)
    rows = list(csv.DictReader((folder / "summary.csv").open()))
    assert all(row["hybrid_s"] and row["load_fraction"] for row in rows)
    assert "better/hybrid" in finished.stdout
    assert "Hybrid by posix, best layout surely beats the better arm alone at " in finished.stdout


@pytest.mark.slow
def test_a_hybrid_of_a_few_layers_is_skipped_with_the_reason_and_the_rest_is_measured(
    tiny: Path, tmp_path: Path
) -> None:
    tiny.write_text(json.dumps({**TINY, "num_hidden_layers": 6}))
    finished = run_bench(
        *_sweep_of(tiny, "--budget", "300s", "--rounds", "1", "--hybrid", "--layers", "fit"), cwd=tmp_path
    )
    folder = _result(finished, tmp_path)
    run, (samples, _) = read_run(folder), read_samples(folder)
    reason = run.series["hybrid/posix/best"].skipped
    assert reason is not None
    assert "4 of 6 layers are built" in reason and "--layers all" in reason
    assert f"Hybrid by posix, best layout: skipped: {reason}" in finished.stdout
    assert {sample.case.arm for sample in samples} == {"recompute", "load", "gemm"}


@pytest.fixture
def running(tiny: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep that has begun its first round."""
    command = [sys.executable, "-u", "-m", "bench", *_sweep_of(tiny, "--budget", "300s", "--rounds", "4")]
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


def _only_result(cwd: Path) -> Path:
    (path,) = (cwd / "results").glob("*/*/*/run.json")
    return path.parent


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_measured_and_removes_the_files(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    folder = _only_result(tmp_path)
    assert running.returncode == 1
    *_, said, last = output.strip().splitlines()
    assert last == str(folder.relative_to(tmp_path))
    assert said.endswith(f"make sweep RESUME={last}")
    assert read_run(folder).state == "interrupted"
    assert read_samples(folder)[0]
    assert _leftovers(tmp_path) == []


@pytest.mark.slow
def test_a_terminal_that_closes_ends_a_sweep_as_an_interrupt_does(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    running.send_signal(signal.SIGHUP)
    output, _ = running.communicate(timeout=60)
    folder = _only_result(tmp_path)
    assert (running.returncode, read_run(folder).state) == (1, "interrupted")
    assert output.strip().splitlines()[-1] == str(folder.relative_to(tmp_path))
    assert _leftovers(tmp_path) == []


@pytest.mark.slow
def test_ctrl_c_reaches_the_measuring_processes_too_and_none_of_them_says_a_word(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    for process in psutil.Process(running.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGHUP)
            blocked = int(re.findall(r"SigBlk:\s*(\w+)", _status(process.pid))[0], 16)
            ignored = int(re.findall(r"SigIgn:\s*(\w+)", _status(process.pid))[0], 16)
            assert (blocked | ignored) >> (signal.SIGINT - 1) & 1  # from its first moment on, not only now
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (1, "")
    assert read_run(_only_result(tmp_path)).state == "interrupted"


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        raise psutil.NoSuchProcess(pid) from None


@pytest.mark.slow
def test_a_sweep_that_nobody_listens_to_any_more_is_measured_to_its_end(tiny: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", *_sweep_of(tiny, "--budget", "300s", "--rounds", "1")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        code = process.wait(timeout=60)
    folder = _only_result(tmp_path)
    assert (code, errors, read_run(folder).state) == (3, "", "complete")  # one round decides nothing
    assert (folder / "report.html").exists()


def test_an_output_that_knows_ascii_alone_gets_the_answer_too(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    finished = subprocess.run(
        [sys.executable, "-m", "bench", "sweep", "qwen3-8b", "--backend", "simulated", "--rounds", "2"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (finished.returncode in {0, 3}, finished.stderr) == (True, b"")
    assert b"\\xd7" in finished.stdout  # rounds x samples


@pytest.mark.slow
def test_a_killed_sweep_is_readable_and_resumed_and_the_next_run_cleans_up(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    running.kill()
    running.communicate(timeout=60)
    folder = _only_result(tmp_path)
    before, _ = read_samples(folder)
    assert before
    assert _leftovers(tmp_path) != []
    assert run_bench("report", folder, cwd=tmp_path).returncode == 1  # it never came to its end
    resumed = run_bench("sweep", "--resume", folder, cwd=tmp_path)
    assert _result(resumed, tmp_path) == folder
    after, _ = read_samples(folder)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert read_run(folder).state == "complete"
    assert _leftovers(tmp_path) == []
    refused = run_bench("sweep", "--resume", folder, cwd=tmp_path)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "complete" in refused.stderr


def test_a_simulated_sweep_finds_its_known_crossover(tmp_path: Path) -> None:
    finished = call_bench("sweep", "qwen3-8b", "--backend", "simulated", cwd=tmp_path)
    folder = _result(finished, tmp_path)
    (row,) = (
        row
        for row in csv.DictReader((folder / "crossover.csv").open())
        if (row["kind"], row["statistic"]) == ("whole", "p50")
    )
    assert row["verdict"] == "crossover"
    assert 1500 < float(row["crossover_tokens"]) < 2100  # 1760 without noise
    assert "simulated" in finished.stdout
    assert read_run(folder).checks["truth"] == {"crossover_tokens": [1760.4]}


def test_a_config_of_an_unknown_architecture_is_refused_by_its_field(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY, "model_type": "abacus"}))
    finished = call_bench("model", path, cwd=tmp_path)
    assert finished.returncode == 2
    assert "model_type" in finished.stderr
    assert "abacus" in finished.stderr


@pytest.mark.slow
def test_a_budget_too_small_to_measure_anything_says_what_it_takes(tiny: Path, tmp_path: Path) -> None:
    finished = run_bench(*_sweep_of(tiny, "--budget", "0.2s"), cwd=tmp_path)
    assert finished.returncode == 2
    assert "budget" in finished.stderr.splitlines()[-1]
    assert not list(tmp_path.glob("results/*/*/*/run.json"))
    assert _leftovers(tmp_path) == []


def test_the_geometry_of_a_model_is_printed_as_json(tmp_path: Path) -> None:
    finished = call_bench("model", "llama-3.3-70b", "--json", cwd=tmp_path)
    described = json.loads(finished.stdout)
    assert described["kv_bytes_per_token"] == 327_680
    assert described["kv_bytes_at"]["8192"] == 327_680 * 8192


@pytest.mark.slow
def test_the_doctor_says_what_can_be_measured(tmp_path: Path) -> None:
    finished = run_bench("doctor", "--json", cwd=tmp_path)
    assert finished.returncode == 0
    found = {finding["topic"]: finding for finding in json.loads(finished.stdout)}
    assert all(f["status"] in {"ok", "skipped", "warning", "missing"} for f in found.values())
    assert all(f["remedy"] for f in found.values() if f["status"] == "skipped")


def test_the_marginal_question_gets_the_marginal_answer(tmp_path: Path) -> None:
    arguments = ["qwen3-8b", "--backend", "simulated", "--suffix-tokens", "64", "--rounds", "8"]
    finished = call_bench("sweep", *arguments, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "P*" in finished.stdout.strip().splitlines()[-2]
    assert "nothing measured" not in finished.stdout
    (folder,) = tmp_path.glob("results/*/*/*/")
    run, (samples, _) = read_run(folder), read_samples(folder)
    assert {s.outcome.num_bytes for s in samples if s.case.arm == "load"} == {64 * 147_456}
    assert list(run.checks["truth"]) == ["marginal_crossover_tokens"]


@pytest.mark.slow
def test_a_resumed_sweep_goes_back_to_the_drive_it_began_on(tiny: Path, tmp_path: Path) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    arguments = _sweep_of(tiny, "--budget", "300s", "--rounds", "1", "--data-dir", str(drive))
    folder = _result(run_bench(*arguments, cwd=tmp_path), tmp_path)
    assert read_run(folder).plan.data_dir == drive
    header = folder / "run.json"
    header.write_text(header.read_text().replace('"state": "complete"', '"state": "interrupted"'))
    drive.rmdir()
    refused = run_bench("sweep", "--resume", folder, cwd=tmp_path)
    assert refused.returncode == 2
    assert str(drive) in refused.stderr


def test_the_closing_text_says_what_each_suspect_code_means(tmp_path: Path) -> None:
    reference = next((ROOT / "results").glob("qwen3-0.6b/*/*/run.json")).parent
    folder = tmp_path / "copy"
    shutil.copytree(reference, folder)
    header = json.loads((folder / "run.json").read_text())
    header["notices"] = [{"code": "busy_machine", "message": "half of it", "suspect": True}]
    (folder / "run.json").write_text(json.dumps(header))
    said = call_bench("report", str(folder), cwd=tmp_path).stdout
    assert said.count(f"suspect: busy_machine: {KINDS['busy_machine'].meaning}\n") == 1
