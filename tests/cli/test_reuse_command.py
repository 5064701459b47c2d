"""The verb `reuse` as a user meets it."""

import csv
import gzip
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.__main__ import main
from tests.helpers.commands import ROOT
from tests.helpers.sweeps import find_limited, read_crossover

SLICES = ROOT / "tests" / "traces"
SYNTHETIC = SLICES / "mooncake_synthetic_400.jsonl"
CONVERSATION = SLICES / "mooncake_conversation_400.jsonl"
REFERENCE = find_limited()
GOOD = b'{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 9]}\n'
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, standard output and standard error of `python -m bench reuse ...`."""

    def run_verb(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bench", "reuse", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run_verb


def cells(text: str, column: str) -> list[str]:
    """A column of the first table that has it; columns end where their headings end."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if column in re.split(" {2,}", line.strip()))
    found = re.search(rf"(^|  ){re.escape(column)}(?=  |$)", lines[start])
    assert found is not None
    rows = itertools.takewhile(lambda line: "  " in line.strip(), lines[start + 1 :])
    return [line[: found.end()].rsplit("  ", 1)[-1].strip() for line in rows]


def test_the_table_gives_hit_ratio_and_share_of_the_maximum(run: Run) -> None:
    code, said, _ = run(SYNTHETIC, "--capacity", "1e5,3e6", "--policy", "lru,optimal")
    assert code == 0
    assert "400 requests, 5,163,196 input tokens, 10,346 blocks of 512 tokens" in said
    assert "maximum (one pool that never drops a block): hit ratio 0.054" in said
    assert cells(said, "policy") == ["LRU", "LRU", "optimal (Belady)", "optimal (Belady)"]
    assert cells(said, "capacity [tokens]") == ["100,000", "3,000,000"] * 2
    assert cells(said, "hit ratio") == ["0.008", "0.054", "0.049", "0.054"]
    assert cells(said, "of the maximum") == ["15.5%", "100.0%", "90.6%", "100.0%"]


def test_without_a_capacity_a_series_up_to_the_whole_trace_is_simulated(run: Run) -> None:
    code, said, _ = run(SYNTHETIC)
    assert (code, len(cells(said, "hit ratio"))) == (0, 10)
    assert cells(said, "of the maximum")[-1] == "100.0%"


def test_csv_and_plot_are_written_and_say_modelled(run: Run, tmp_path: Path) -> None:
    table, figure = tmp_path / "reuse.csv", tmp_path / "reuse.svg"
    code, said, _ = run(SYNTHETIC, "--capacity", "1e5,3e6", "--csv", table, "--plot", figure)
    assert (code, said.splitlines()[-2:]) == (0, [str(table), str(figure)])
    rows = list(csv.DictReader(table.open()))
    assert [row["capacity_tokens"] for row in rows] == ["100000", "3000000"]
    assert float(rows[0]["hit_ratio"]) == 43520 / 5163196
    assert {row["origin"] for row in rows} == {"modelled"}
    content = figure.read_bytes()
    assert content.startswith(b"<?xml")
    assert run(SYNTHETIC, "--capacity", "1e5,3e6", "--plot", figure)[0] == 0
    assert figure.read_bytes() == content


def test_a_capacity_in_bytes_needs_the_bytes_of_a_token(run: Run) -> None:
    code, said, _ = run(SYNTHETIC, "--capacity", "147456MB,1e6", "--model", "qwen3-8b")
    assert code == 0
    assert cells(said, "capacity [tokens]") == ["1,000,000"]  # 147,456 bytes per token: both are the same
    code, said, _ = run(SYNTHETIC, "--capacity", "1GB", "--bytes-per-token", "1000")
    assert (code, cells(said, "capacity [tokens]")) == (0, ["1,000,000"])
    code, _, error = run(SYNTHETIC, "--capacity", "100GB")
    assert code == 2
    assert "'100GB' is in bytes: say how many a token takes with --model or --bytes-per-token" in error


def test_whole_blocks_hit_less_than_tokens_where_a_partial_block_matters(run: Run) -> None:
    arguments = (SYNTHETIC, "--capacity", "1e5", "--policy", "optimal", "--csv", "/dev/null")
    assert run(*arguments[:5])[1] != run(*arguments[:5], "--unit", "blocks")[1]


def test_bad_lines_stop_with_their_number_or_are_counted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD + b'{"timestamp": -1}\n' + GOOD + b"nonsense\n"))
    code, said, error = run(path, "--capacity", "1e3")
    assert (code, error.startswith(f"kvcross: {path}, line 2: ")) == (2, True)
    code, said, error = run(path, "--capacity", "1e3", "--skip-bad")
    assert (code, error) == (0, "")
    assert "2 requests" in said
    assert "notice: 2 bad lines left out" in said


def test_a_line_of_gigabytes_is_refused_without_memory_for_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with path.open("wb") as file:
        file.write(GOOD)
        file.truncate(3_000_000_000)  # sparse zeros: one line that never ends
    code, _, error = run(path)
    assert (code, "line 2: longer than 16777216 bytes" in error) == (2, True)


def test_pools_per_instance_stand_beside_the_shared_one(run: Run) -> None:
    code, said, _ = run(SYNTHETIC, "--capacity", "1e6", "--instances", "4", "--route", "round-robin")
    assert (code, cells(said, "pool")) == (0, ["shared", "per-instance"])
    shared, apart = map(float, cells(said, "hit ratio"))
    assert shared > apart
    assert "4 instances, routed by round-robin; a capacity is that of all together" in said


def test_a_measured_sweep_prices_the_hits_beside_the_bound_of_free_ones(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "reuse.csv"
    code, said, _ = run(CONVERSATION, "--capacity", "3e6", "--from", REFERENCE, "--csv", table)
    assert code == 0
    assert "if a hit is free [s]" in said
    assert f"load from C* = {round(read_crossover(REFERENCE).tokens):,} tokens [s]" in said
    assert "prefill seconds, modelled without queueing or batching, from" in said
    assert "extrapolated: up to" in said
    assert "ttft" not in said.lower()
    (row,) = csv.DictReader(table.open())
    free, all_, beyond, faster = (
        float(row[f"{name}_saved_s"])
        for name in ("free_hit", "always_load", "beyond_crossover", "where_faster")
    )
    assert free > faster >= beyond >= all_
    assert "load where faster [s]" in said
    assert float(row["free_hit_gpu_saved_s"]) == pytest.approx(free)  # one rank measured it


def test_a_curve_of_the_user_s_own_prices_the_hits(run: Run, tmp_path: Path) -> None:
    curve = tmp_path / "curve.csv"
    curve.write_text("prefix_tokens,recompute_s,load_s\n512,0.1,0.2\n131072,30,5\n")
    code, said, _ = run(CONVERSATION, "--capacity", "3e6", "--curve", curve)
    assert (code, "load where faster [s]" in said) == (0, True)
    curve.write_text("prefix_tokens,recompute_s,load_s\n512,0.1,zero\n")
    assert run(CONVERSATION, "--curve", curve)[2].startswith(
        f"kvcross: {curve}, line 2: load_s must be a number"
    )


LLAMA = ("--model", "llama-3.1-8b", "--gpu", "H100")


def test_a_described_machine_prices_the_hits_beside_the_bound_of_free_ones(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "reuse.csv"
    code, said, _ = run(
        CONVERSATION, "--capacity", "0,3e6,10e6", *LLAMA, "--ssd", "pm9a3", "--gpus", "2", "--csv", table
    )
    assert code == 0
    assert "from the cost model, nothing was measured: meta-llama/Llama-3.1-8B (bfloat16) on 2x H100" in said
    assert "loading from Samsung PM9A3" in said
    assert re.search(r"load from modelled C\* = [\d,]+ tokens \[s\]", said)
    assert "supposed: Samsung PM9A3: 6 GB/s is measured" in said
    assert "extrapolated" not in said
    none, some, most = csv.DictReader(table.open())
    assert float(none["free_hit_saved_s"]) == 0
    for row in (some, most):
        free, beyond = float(row["free_hit_saved_s"]), float(row["beyond_crossover_saved_s"])
        assert free > beyond > 0
        assert float(row["free_hit_gpu_saved_s"]) == pytest.approx(2 * free)
        assert row["origin"] == "modelled"


def test_a_described_machine_prices_tiers_and_host_memory_and_devices_of_the_user(
    run: Run, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("[gpus.x1]\nname = 'X1'\nbf16_flops_per_s = 1e15\nlink_bytes_per_s = 5e10\n")
    code, said, _ = run(
        *(SYNTHETIC, "--tier", "gpu=1e5", "--tier", "ssd=1e7:5GB/s", "--model", "llama-3.1-8b"),
        *("--gpu", "x1", "--ssd", "dram", "--catalogue", mine),
    )
    assert code == 0
    assert "on X1 with vLLM, loading from host memory" in said
    assert "load where faster [s]" in said


def test_made_up_conversations_get_a_row_per_round_and_stack_of_tiers(run: Run, tmp_path: Path) -> None:
    curve, figure = tmp_path / "curve.csv", tmp_path / "rounds.png"
    curve.write_text("prefix_tokens,recompute_s,load_s\n512,0.1,0.02\n131072,30,5\n")
    code, said, _ = run(
        *("--generate", "users=10,rounds=3,history=4000", "--tier", "L1=2e4", "--tier", "L2=3e4:back:10GB/s"),
        *("--tier", "L3=1e7", "--bytes-per-token", "1e5", "--curve", curve, "--plot", figure),
    )
    assert code == 0
    assert cells(said, "tiers") == ["L1"] * 3 + ["L1+L2"] * 3 + ["L1+L2+L3"] * 3
    assert cells(said, "round") == ["1", "2", "3"] * 3
    ratios = list(map(float, cells(said, "hit ratio")[:9]))
    assert ratios[8] > ratios[5] > ratios[2]
    seconds = list(map(float, cells(said, "load where faster [s]")))
    assert seconds[8] < seconds[5] < seconds[2]
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_tiers_of_a_trace_say_what_each_further_one_adds_and_is_written(run: Run) -> None:
    tiers = ["--tier", "gpu=1e5", "--tier", "dram=5e5:selective", "--tier", "pool=5e6:shared"]
    code, said, _ = run(SYNTHETIC, *tiers, "--instances", "2")
    assert (code, cells(said, "tiers")) == (0, ["gpu", "gpu+dram", "gpu+dram+pool"])
    assert "a capacity is that of each instance, or of the one pool when shared" in said
    first, second, third = (int(text.replace(",", "")) for text in cells(said, "written [tokens]"))
    assert second < first  # written on second use only
    assert third > second


BAD = {
    "neither a trace nor a workload": ([], "name a TRACE or make one with --generate"),
    "both": ([SYNTHETIC, "--generate", "users=1,rounds=1"], "not both"),
    "a missing file": (["/nowhere.jsonl"], "/nowhere.jsonl: cannot be read: No such file"),
    "a folder": (["/"], "cannot be read: Is a directory"),
    "a negative capacity": ([SYNTHETIC, "--capacity=-1"], "a capacity must be finite and not negative"),
    "an endless capacity": ([SYNTHETIC, "--capacity", "inf"], "must be finite"),
    "a capacity that is no size": ([SYNTHETIC, "--capacity", "much"], "'much' is not a size"),
    "an empty capacity": ([SYNTHETIC, "--capacity", "1e6,"], "'' is not a size"),
    "an unknown policy": ([SYNTHETIC, "--policy", "arc"], "choose from lru, lfu, fifo, optimal"),
    "an unknown unit": ([SYNTHETIC, "--unit", "bytes"], "--unit must be tokens or blocks"),
    "blocks of nothing": ([SYNTHETIC, "--block-tokens", "0"], "must be at least 1"),
    "blocks of another size": ([SYNTHETIC, "--block-tokens", "16"], "line 1: "),
    "no instance": ([SYNTHETIC, "--instances", "0"], "--instances must be between 1 and"),
    "an unknown route": (
        [SYNTHETIC, "--instances", "2", "--route", "best"],
        "--route must be session or round-robin",
    ),
    "an unknown model": ([SYNTHETIC, "--model", "qwen3-9b"], "qwen3-8b"),
    "a model and bytes": ([SYNTHETIC, "--model", "qwen3-8b", "--bytes-per-token", "1"], "not both"),
    "a token of no bytes": ([SYNTHETIC, "--bytes-per-token", "0"], "must be positive"),
    "a sweep that is not there": ([SYNTHETIC, "--from", "/nowhere"], "/nowhere"),
    "another model than the sweep's": (
        [SYNTHETIC, "--from", REFERENCE, "--model", "qwen3-8b"],
        "--model qwen3-8b is not what",
    ),
    "more conversations than memory": (
        ["--generate", "users=1e9,rounds=1e6"],
        "more than 200000000: fewer users or rounds",
    ),
    "a described machine and a sweep": (
        [SYNTHETIC, *LLAMA, "--ssd", "dram", "--from", REFERENCE],
        "give one of the three",
    ),
    "a GPU without a model": ([SYNTHETIC, "--gpu", "H100", "--ssd", "dram"], "add --model"),
    "a GPU without a storage": ([SYNTHETIC, *LLAMA], "name the storage that hits are loaded from"),
    "two storages": ([SYNTHETIC, *LLAMA, "--ssd", "pm9a3", "--bandwidth", "1GB/s"], "two storages"),
    "an unknown GPU": ([SYNTHETIC, *LLAMA[:3], "H10", "--ssd", "dram"], "near it: h100-sxm"),
    "an unknown drive": ([SYNTHETIC, *LLAMA, "--ssd", "pm9a4"], "near it: pm9a3"),
    "a drive without a name": ([SYNTHETIC, *LLAMA, "--ssd", ""], "storage '' is in no catalogue"),
    "a rate that is none": ([SYNTHETIC, *LLAMA, "--bandwidth=-1"], "'-1' is not a rate"),
    "more ranks than heads": ([SYNTHETIC, *LLAMA, "--ssd", "dram", "--gpus", "64"], "parallelism 64"),
    "a storage of no machine": ([SYNTHETIC, "--ssd", "pm9a3"], "--ssd describes the machine of --gpu"),
    "GPUs without prices": ([SYNTHETIC, "--gpus", "4"], "--gpus counts GPU-seconds, which need prices"),
    "a series without a sweep": ([SYNTHETIC, "--series", "a"], "--series chooses a load series of --from"),
    "a KV dtype of no model": ([SYNTHETIC, "--kv-dtype", "fp8"], "--kv-dtype is of --model"),
    "a capacity beyond all": ([SYNTHETIC, "--capacity", "1e300"], "at most 1e+18 tokens"),
    "nothing to draw": ([SYNTHETIC, "--capacity", "0", "--plot", "x.png"], "ask for one above 0"),
    "a place that cannot be": (
        [SYNTHETIC, "--capacity", "1e5", "--csv", "/proc/x.csv"],
        "/proc/x.csv: cannot be written",
    ),
    "other GPUs than the sweep's": (
        [SYNTHETIC, "--from", REFERENCE, "--gpus", "2"],
        "was measured with, one rank: leave it out",
    ),
    "a route of one instance": ([SYNTHETIC, "--route", "round-robin"], "is of several instances"),
    "bad lines of no file": (["--generate", "users=1,rounds=1", "--skip-bad"], "is of a trace in a file"),
    "a sweep and a curve": ([SYNTHETIC, "--from", "/a", "--curve", "/b"], "not both"),
    "no GPU": ([SYNTHETIC, "--gpus", "0", "--curve", "/b"], "--gpus must be at least 1"),
    "a tier without capacity": ([SYNTHETIC, "--tier", "gpu"], "write NAME=CAPACITY"),
    "a tier with an unknown word": ([SYNTHETIC, "--tier", "gpu=1:fast"], "'fast' is none of through, back"),
    "a private tier below a shared one": (
        [SYNTHETIC, "--tier", "a=1:shared", "--tier", "b=2"],
        "tier b belongs to one instance but lies below shared a",
    ),
    "a rate without prices": (
        [SYNTHETIC, "--tier", "a=1", "--tier", "b=1:1GB/s"],
        "add --from, --curve or --gpu",
    ),
    "tiers and a capacity": (
        [SYNTHETIC, "--tier", "a=1", "--capacity", "1"],
        "leave --capacity or --tier out",
    ),
    "tiers and a policy": ([SYNTHETIC, "--tier", "a=1", "--policy", "lfu"], "tiers are LRU caches"),
    "tiers without rounds drawn": ([SYNTHETIC, "--tier", "a=1", "--plot", "x.png"], "leave --plot out"),
    "an unknown word of a workload": (
        ["--generate", "users=1,rounds=1,tokens=5"],
        "'tokens=5' is not one of",
    ),
    "a workload without rounds": (["--generate", "users=1"], "--generate needs rounds="),
    "a workload of no users": (
        ["--generate", "users=0,rounds=1"],
        "--generate: users must be at least 1, got 0",
    ),
    "a workload that is no number": (
        ["--generate", "users=few,rounds=1"],
        "'users=few' is not a whole number",
    ),
    "a workload of half a user": (["--generate", "users=1.5,rounds=1"], "'users=1.5' is not a whole number"),
    "a workload of a negative seed": (["--generate", "users=1,rounds=1,seed=-1"], "seed must be at least 0"),
    "a workload of no duration": (["--generate", "users=1,rounds=1,gap=-1s"], "is not a duration such as"),
    "a figure of unknown form": ([SYNTHETIC, "--plot", "x.jpg"], "must end in one of .png, .svg, .pdf"),
    "a table without a folder": ([SYNTHETIC, "--csv", "/nowhere/x.csv"], "its folder is missing"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_one_clear_line_and_exit_code_2(run: Run, name: str) -> None:
    arguments, says = BAD[name]
    code, _, error = run(*arguments)
    assert (code, len(error.splitlines())) == (2, 1), error
    assert error.startswith("kvcross: ")
    assert says in error


def test_a_byte_order_mark_before_a_trace_is_no_part_of_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD + GOOD)
    code, said, _ = run(path, "--capacity", "1e3")
    assert (code, "2 requests" in said) == (0, True)


@pytest.mark.parametrize(
    "content", [b"", b"[1, 2]\n", b'{"input_length": -3}\n', b"\x1f\x8bbroken", b"\xff\n", GOOD[:40]]
)
def test_a_broken_trace_is_one_line_that_names_it(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    code, _, error = run(path)
    assert (code, len(error.splitlines()), str(path) in error) == (2, 1, True)


def test_a_process_ends_with_code_2_and_no_traceback() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "bench", "reuse", "/nowhere.jsonl"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.stderr == "kvcross: /nowhere.jsonl: cannot be read: No such file or directory\n"
    assert finished.returncode == 2


# Hit ratios of the whole published traces at 1, 3, 10 and 50 million tokens
FULL = {
    ("conversation", "tokens"): ["0.055", "0.142", "0.294", "0.371"],
    ("conversation", "blocks"): ["0.054", "0.139", "0.291", "0.371"],
    ("synthetic", "tokens"): ["0.148", "0.317", "0.584", "0.651"],
}


@pytest.mark.parametrize(("name", "unit"), list(FULL))
def test_the_whole_published_traces_give_the_known_figures(run: Run, name: str, unit: str) -> None:
    folder = os.environ.get("KVCROSS_TRACES")
    if folder is None:
        pytest.skip("KVCROSS_TRACES does not name a folder with the whole Mooncake traces")
    path = Path(folder) / f"{name}_trace.jsonl"
    code, said, _ = run(path, "--capacity", "1e6,3e6,10e6,50e6", "--unit", unit)
    assert (code, cells(said, "hit ratio")) == (0, FULL[name, unit])
    assert f"hit ratio {'0.374' if name == 'conversation' else '0.651'}" in said
