"""What a user asks for and cannot have: one clear line, exit code 2, and nothing left behind."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.__main__ import main
from kvio.backends.s3.s3_backend import probe_objects
from tests.helpers.commands import ROOT, call_bench, run_bench
from tests.helpers.sweeps import find_plain

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
        "No such option: --model",
    ),
    "an option that is only nearly spelt": (
        ["sweep", "qwen3-8b", "--tokns", "64"],
        "--tokens",
    ),
    "an option that resembles none": (
        ["sweep", "qwen3-8b", "--modle"],
        "No such option: --modle",
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
        "cannot be measured with posix",
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
    "compare of one": (["compare", "/nowhere", "/nowhere"], "two"),
    "limit on memory": (
        ["sweep", "qwen3-8b", "--backend", "hostmem", "--limit", "50MB/s"],
        "hostmem reads none",
    ),
    "hybrid of a suffix": (["sweep", "qwen3-8b", "--hybrid", "--suffix-tokens", "64"], "use one of the two"),
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
    assert finished.stderr.startswith(f"kvcross: {more[0]} cannot be changed")


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
    assert "no crossover" in lines[0]
    assert any("at 256 tokens recompute was faster" in line for line in lines)


def test_bad_input_ends_the_process_without_a_traceback(tmp_path: Path) -> None:
    finished = run_bench("sweep", "qwen3-9b", cwd=tmp_path)
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert line.startswith("kvcross: ")


TRACE = ROOT / "tests" / "traces" / "mooncake_conversation_400.jsonl"
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run() -> Run:
    def run_command(command: str) -> tuple[int, str, str]:
        finished = call_bench(*command.split(), cwd=Path.cwd())
        return finished.returncode, finished.stdout, finished.stderr

    return run_command


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("capacity --model qwen3-8b --dram 64", "'64' is not a size: it has no unit"),
        ("capacity --model qwen3-8b --gpu-memory 80", "'80' is not a size: it has no unit"),
        ("predict machine --model qwen3-8b --gpu H100 --bandwidth 10", "'10' is not a rate"),
        ("sweep qwen3-8b --budget 180", "'180' is not a duration: it has no unit"),
        ("sweep qwen3-8b --request 4096", "'4096' is not a size: it has no unit"),
        ("sweep qwen3-8b --working-set 8", "'8' is not a size: it has no unit"),
        ("sweep qwen3-8b --limit 100", "'100' is not a rate"),
        (f"reuse {TRACE} --tier gpu=1e6 --tier ssd=1e7:3", "or a rate like 3GB/s"),
        ("reuse --generate users=1,rounds=1,gap=1", "is not a duration such as 500ms or 1s"),
    ],
    ids=lambda value: value[:40],
)
def test_a_bare_number_is_no_size_rate_or_duration_of_any_verb(run: Run, command: str, said: str) -> None:
    code, out, err = run(command)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err


def test_a_rate_in_bits_is_an_eighth_in_bytes(run: Run) -> None:
    predicted = [
        run(f"predict machine --model qwen3-8b --gpu H100 --bandwidth {rate}")
        for rate in ("80Gbps", "10GB/s")
    ]
    assert predicted[0] == predicted[1]
    assert predicted[0][0] == 0


@pytest.fixture
def run_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(command: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", *command.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run_command


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("capacity --model qwen3-8b --dtype fp8", "--dtype is of a GPU's memory"),
        ("capacity --model qwen3-8b --reserve 0.1", "--reserve is of a GPU's memory"),
        ("capacity --model qwen3-8b --catalogue no.toml", "--catalogue has GPUs, and none is named"),
    ],
    ids=lambda value: value[-40:],
)
def test_an_option_that_nothing_would_read_is_refused(run_whole: Run, command: str, said: str) -> None:
    code, out, err = run_whole(command)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert said in err


def test_the_options_count_where_something_reads_them(run_whole: Run) -> None:
    assert run_whole("capacity --model qwen3-8b --gpu L4 --dtype fp8 --reserve 0.1")[0] == 0
    assert (
        run_whole(f"predict sweep {find_plain()} --series posix/best --bandwidth 1GB/s --tokens 512")[0] == 0
    )


def test_a_kv_dtype_of_latents_is_refused_for_a_model_that_has_none(
    run_whole: Run,
) -> None:
    code, _, err = run_whole("capacity --model qwen3-8b --kv-dtype fp8_ds_mla")
    assert (code, "fp8_ds_mla packs the latents of MLA, and this model has none" in err) == (2, True)
    assert run_whole("capacity --model deepseek-v3 --kv-dtype fp8_ds_mla")[0] == 0
