"""What a user asks for and cannot have: one clear line, exit code 2, and nothing left behind."""

import signal
import sys
from pathlib import Path

import pytest

from bench.__main__ import main
from tests.test_cli import run_bench

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
        "--backend stays as it was",
    ),
    "results beside resume": (
        ["sweep", "--resume", "/nowhere", "--results", "elsewhere"],
        "--results stays as it was",
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


def test_bad_input_ends_the_process_without_a_traceback(tmp_path: Path) -> None:
    finished = run_bench("sweep", "qwen3-9b", cwd=tmp_path)
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert line.startswith("kvcross: ")
