"""What a user asks for and cannot have: one clear line, exit code 2, and nothing left behind."""

import signal
import sys
from pathlib import Path

import pytest

from bench.__main__ import main
from kvio.backends.s3.s3_backend import probe_objects
from tests.commands import ROOT, call_bench, run_bench

BAD = {
    "unknown model": (["sweep", "qwen3-9b"], "qwen3-8b"),
    "no model": (["sweep"], "no model is named"),
    "unsorted tokens": (["sweep", "qwen3-8b", "--tokens", "512,256"], "256 follows 512"),
    "negative tokens": (["sweep", "qwen3-8b", "--tokens=-64"], "-64 is not positive"),
    "tokens beyond the maximum": (["sweep", "qwen3-8b", "--tokens", "64,50000"], "40960"),
    "tokens that are no numbers": (["sweep", "qwen3-8b", "--tokens", "many"], "not whole numbers"),
    "chunk larger than the prefix": (
        ["sweep", "qwen3-8b", "--tokens", "64,128", "--chunk-tokens", "256"],
        "chunk of layout best (256 tokens) is larger than the prefix of 64",
    ),
    "the chunk of a layout larger than the prefix": (
        ["sweep", "qwen3-8b", "--tokens", "64,128", "--layout", "best,lmcache"],
        "chunk of layout lmcache (256 tokens) is larger than the prefix of 64",
    ),
    "an option that there is not": (["sweep", "qwen3-8b", "--bogus"], "No such option: --bogus"),
    "the model as an option": (
        ["sweep", "--budget", "9s", "--model", "qwen3-0.6b"],
        "No such option: --model: it is given without one: python -m bench sweep qwen3-0.6b; try",
    ),
    "the model as an option of the verb of its name": (
        ["model", "--model=qwen3-0.6b"],
        "without one: python -m bench model qwen3-0.6b; try",
    ),
    "the model as an option without a value": (["sweep", "--model"], "python -m bench sweep MODEL; try"),
    "an option that is only nearly spelt": (
        ["sweep", "qwen3-8b", "--tokns", "64"],
        "No such option: --tokns; near it: --tokens; try",
    ),
    "an option that resembles none": (
        ["sweep", "qwen3-8b", "--modle"],
        "No such option: --modle; try python -m bench sweep --help",
    ),
    "files in memory": (["sweep", "qwen3-8b", "--data-dir", "/dev/shm"], "/dev/shm is on tmpfs"),
    "files where there can be none": (
        ["sweep", "qwen3-8b", "--data-dir", "/proc/sys"],
        "/proc/sys: cannot make a scratch directory: No such file or directory",
    ),
    "an option that is no number": (["sweep", "qwen3-8b", "--rounds", "x"], "'--rounds'"),
    "an option without its value": (["sweep", "qwen3-8b", "--samples"], "'--samples' requires"),
    "a verb that there is not": (["measure"], "No such command 'measure'"),
    "an impossible number": (["sweep", "qwen3-8b", "--threads", "0"], "--threads 0: it should be greater"),
    "an unknown device": (["sweep", "qwen3-8b", "--device", "tpu"], "--device tpu: it should be auto, cpu"),
    "an unknown attention": (["sweep", "qwen3-8b", "--attention", "mine"], "--attention mine: it should be"),
    "a negative seed": (["sweep", "qwen3-8b", "--seed=-1"], "--seed -1: it should be"),
    "samples without end": (["sweep", "qwen3-8b", "--samples", "99999999999999999999"], "--samples"),
    "too many threads": (["sweep", "qwen3-8b", "--threads", "10000"], "--threads 10000: it should be"),
    "no precision": (["sweep", "qwen3-8b", "--precision", "0"], "--precision 0.0: it should be greater"),
    "a suffix beyond the maximum": (["sweep", "qwen3-8b", "--suffix-tokens", "50000"], "maximum of 40960"),
    "simulated beside real": (
        ["sweep", "qwen3-8b", "--backend", "simulated,posix"],
        "cannot be measured beside posix",
    ),
    "an option of another backend": (
        ["sweep", "qwen3-8b", "--option", "queue=aio"],
        "it is one of nixl: try --backend nixl",
    ),
    "missing directory": (["sweep", "qwen3-8b", "--data-dir", "/nowhere/at/all"], "/nowhere/at/all"),
    "a file as directory": (["sweep", "qwen3-8b", "--data-dir", "/etc/hostname"], "/etc/hostname"),
    "unknown backend": (["sweep", "qwen3-8b", "--backend", "tape"], "posix"),
    "unknown layout": (["sweep", "qwen3-8b", "--layout", "mine"], "lmcache"),
    "unknown dtype": (["sweep", "qwen3-8b", "--dtype", "int3"], "--dtype int3: it should be"),
    "budget that is no time": (["sweep", "qwen3-8b", "--budget", "soon"], "soon"),
    "limit that is no rate": (["sweep", "qwen3-8b", "--limit", "100"], "100"),
    "report of nothing": (["report", "/nowhere"], "/nowhere"),
    "compare of nothing": (["compare", "/nowhere", "/nor/here"], "/nowhere"),
    "compare of one": (["compare", "/nowhere", "/nowhere"], "two result folders"),
    "limit on memory": (
        ["sweep", "qwen3-8b", "--backend", "hostmem", "--limit", "50MB/s"],
        "hostmem reads none",
    ),
    "hybrid of a suffix": (["sweep", "qwen3-8b", "--hybrid", "--suffix-tokens", "64"], "leave out one"),
    "resume of nothing": (["sweep", "--resume", "/nowhere"], "/nowhere"),
    "resume of something else": (
        ["sweep", "--resume", "/nowhere", "--backend", "uring"],
        "/nowhere: no run.json here",
    ),
    "results beside resume": (
        ["sweep", "--resume", "/nowhere", "--results", "elsewhere"],
        "/nowhere: no run.json here",
    ),
    "unknown model's geometry": (["model", "nothing"], "nothing"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_clear_line_and_exit_code_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, says = BAD[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    monkeypatch.setattr(signal, "signal", lambda number, action: None)  # Ctrl-C stays the tests' own
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kvcross: ")
    assert says in line
    assert not list(tmp_path.glob("results/*/*/*"))


NO_PLACE = {
    "a sweep": (
        ["sweep", "qwen3-8b", "--backend", "simulated"],
        "results/scratch",
        "with --data-dir and --results",
    ),
    "results of a sweep": (
        ["sweep", "qwen3-8b", "--backend", "simulated", "--data-dir", "."],
        "results",
        "another folder with --results",
    ),
    "doctor": (["doctor"], "results/scratch", "with --data-dir"),
}


@pytest.mark.parametrize("name", NO_PLACE)
def test_where_no_folder_can_be_made_one_line_says_which_and_how_to_name_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, place, says = NO_PLACE[name]
    (tmp_path / "results").write_text("a file")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    monkeypatch.setattr(signal, "signal", lambda number, action: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kvcross: {place}: cannot ")
    assert "Not a directory" in line or "File exists" in line
    assert says in line


@pytest.mark.parametrize("more", [["--backend", "uring"], ["--results", "elsewhere"]])
def test_what_a_sweep_that_is_gone_on_with_keeps_cannot_be_given(more: list[str], tmp_path: Path) -> None:
    folder = next((ROOT / "results").glob("qwen3-0.6b/*/*/run.json")).parent
    finished = call_bench("sweep", "--resume", str(folder), *more, cwd=tmp_path)
    assert finished.returncode == 2
    assert finished.stderr == (
        f"kvcross: {more[0]} stays as it was in a sweep that is gone on with; leave it out\n"
    )


def test_a_data_directory_that_is_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finished = call_bench("sweep", "qwen3-8b", "--data-dir", "file", cwd=tmp_path)
    assert (finished.returncode, finished.stderr) == (
        2,
        "kvcross: file: a file, not a directory; name a directory\n",
    )


def test_a_backend_without_its_options_is_told_the_remedy_once(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install -e '.[s3]'")
    missing = probe_objects(tmp_path, {})
    assert missing is not None
    assert (missing.reason, missing.remedy.count("bucket=")) == ("no bucket is named", 1)


def test_one_length_is_said_to_give_no_crossover_before_it_is_measured(tmp_path: Path) -> None:
    asked = ["--backend", "simulated", "--budget", "5s", "--rounds", "3", "--tokens", "256"]
    lines = call_bench("sweep", "qwen3-8b", *asked, cwd=tmp_path).stdout.splitlines()
    assert lines[0] == "one length gives times, but no crossover: name two lengths or more for one"
    assert any("at 256 tokens recompute was faster" in line for line in lines)


def test_bad_input_ends_the_process_without_a_traceback(tmp_path: Path) -> None:
    finished = run_bench("sweep", "qwen3-9b", cwd=tmp_path)
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert line.startswith("kvcross: ")
