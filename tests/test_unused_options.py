"""What a calculation would not read is refused, so that nobody believes that it counted."""

import sys
from collections.abc import Callable

import pytest

from bench.__main__ import main
from tests.reference import find_plain

WHOLE = (
    "size --model llama-3.3-70b --throughput 12000 --measured-gpus 4 --requests-per-s 20"
    " --input-tokens 8000 --hit-ratio 0.6"
)
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
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
        (f"{WHOLE} --occupancy 0.5", "--occupancy is of a drive or of priced memory"),
        (f"{WHOLE} --reuse-per-day 2", "--reuse-per-day is of priced memory"),
        (f"{WHOLE} --lifetime-years 5", "--lifetime-years is of priced memory"),
        (f"{WHOLE} --catalogue no.toml", "--catalogue has devices, and none is named"),
        (f"{WHOLE} --tp 8", "--tp 8 needs as many GPUs: --measured-gpus 4 are fewer"),
        ("predict --model qwen3-8b check rows.csv", "--model is not read by `predict check`"),
        (
            "predict --model qwen3-8b --gpu H100 --ssd dram --series posix/best",
            "--series chooses a load series of --from",
        ),
    ],
    ids=lambda value: value[-40:],
)
def test_an_option_that_nothing_would_read_is_refused(run: Run, command: str, said: str) -> None:
    code, out, err = run(command)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert said in err


def test_the_options_count_where_something_reads_them(run: Run) -> None:
    assert run("capacity --model qwen3-8b --gpu L4 --dtype fp8 --reserve 0.1")[0] == 0
    assert run(f"{WHOLE} --price-ssd-gb 0.1 --lifetime-years 5 --reuse-per-day 2 --occupancy 0.5")[0] == 0
    assert run(f"predict --from {find_plain()} --series posix/best --bandwidth 1GB/s --tokens 512")[0] == 0


def test_a_kv_dtype_of_latents_is_refused_for_a_model_that_has_none(run: Run) -> None:
    code, _, err = run("capacity --model qwen3-8b --kv-dtype fp8_ds_mla")
    assert (code, "fp8_ds_mla packs the latents of MLA, and this model has none" in err) == (2, True)
    assert run("capacity --model deepseek-v3 --kv-dtype fp8_ds_mla")[0] == 0
