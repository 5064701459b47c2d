"""What is planned from a sweep by two ranks: bytes, GPUs and cost are those of both."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.catalog.models.resolve import resolve_model
from bench.predict.bounded import Spread
from bench.predict.sweep_model import fit_sweep
from tests.tier_sweeps import Way, make_tier_run, make_tier_samples
from tests.written_sweeps import write_sweep

WAY = Way("posix", bytes_per_s=2e9, fixed_s=0.02)
GEOMETRY = resolve_model("qwen3-8b").geometry
RANK_TOKEN_BYTES = GEOMETRY.layout("bfloat16", 2).bytes_per_token
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    run = make_tier_run([WAY], tensor_parallel=2)
    return write_sweep(tmp_path / "run", run, make_tier_samples([WAY]))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_verb(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run_verb


def test_the_model_of_a_sweep_moves_the_bytes_of_all_ranks() -> None:
    samples = make_tier_samples([WAY])
    one, two = (fit_sweep(make_tier_run([WAY], tensor_parallel=n), samples, GEOMETRY) for n in (1, 2))
    assert two.num_bytes(1001) == 2 * 1000 * RANK_TOKEN_BYTES == one.num_bytes(1001)
    assert "(bfloat16, 2 ranks)" in two.label
    other = two.with_storage("another", Spread(2e9))
    assert other.move_s(1001) == pytest.approx(2 * 1000 * RANK_TOKEN_BYTES / 2e9)
    assert two.move_s(4000) == pytest.approx(one.move_s(4000))  # as measured, however its bytes are counted


def test_ranks_that_share_a_head_each_move_theirs() -> None:
    samples = make_tier_samples([WAY])
    sixteen = fit_sweep(make_tier_run([WAY], tensor_parallel=16), samples, GEOMETRY)
    assert sixteen.num_bytes(1001) == 2 * 1000 * GEOMETRY.layout("bfloat16").bytes_per_token


def test_predict_prints_the_bytes_of_both_ranks(run: Run, sweep: Path) -> None:
    code, out, _ = run("predict", "--from", sweep, "--bandwidth", "2GB/s", "--tokens", "1001", "--json")
    (point,) = json.loads(out)["points"]
    assert (code, point["num_bytes"]) == (0, 2 * 1000 * RANK_TOKEN_BYTES)


ASKED = ("--requests-per-s", "20", "--input-tokens", "4000", "--hit-ratio", "0.5", "--json")


def test_size_counts_the_gpus_and_the_stores_of_all_ranks(run: Run, sweep: Path) -> None:
    code, out, _ = run("size", "--from", sweep, *ASKED)
    tables = json.loads(out)
    gpus = {row["quantity"]: row["value"] for row in tables["gpus"]}
    storage = {row["quantity"]: row["value"] for row in tables["storage"]}
    assert (code, gpus["GPUs measured"]) == (0, 2)
    assert gpus["GPUs without reuse, unrounded"] == pytest.approx(20 * 0.4 * 2, rel=0.01)
    assert storage["KV of a stored token"] == 2 * RANK_TOKEN_BYTES
    assert run("size", "--from", sweep, "--tp", "2", "--measured-gpus", "2", *ASKED)[1] == out


@pytest.mark.parametrize("flag", ["--tp", "--measured-gpus"])
def test_size_refuses_other_ranks_than_those_of_the_sweep(run: Run, sweep: Path, flag: str) -> None:
    code, out, err = run("size", "--from", sweep, flag, "1", *ASKED)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{flag} 1 is not what {sweep} was measured with, 2 ranks together: leave it out" in err


def test_size_takes_as_many_measured_gpus_as_ranks(run: Run) -> None:
    asked = ("size", "--model", "llama-3.3-70b", "--throughput", "12000", "--tp", "4", *ASKED)
    gpus = {row["quantity"]: row["value"] for row in json.loads(run(*asked)[1])["gpus"]}
    assert gpus["GPUs measured"] == 4


def test_reuse_counts_the_gpu_seconds_of_all_ranks(run: Run, sweep: Path, tmp_path: Path) -> None:
    made = ("reuse", "--generate", "users=2,rounds=2,history=2000", "--capacity", "1e6", "--from", sweep)
    table = tmp_path / "reuse.csv"
    code, _, err = run(*made, "--csv", table)
    assert code in {0, 3}, err
    names, values = (line.split(",") for line in table.read_text().splitlines()[:2])
    row = dict(zip(names, values, strict=True))
    assert float(row["free_hit_gpu_saved_s"]) == pytest.approx(2 * float(row["free_hit_saved_s"]))
    code, _, err = run(*made, "--gpus", "1")
    assert (code, "--gpus 1 is not what" in err) == (2, True)
