"""`capacity` and `size` as a user meets them: options, files, and one line for what cannot be."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.resolve import read_catalogue, resolve_model
from bench.predict.machine_spec import MachineSpec, build_model
from tests.helpers.commands import ROOT, call_bench

TRACE = ROOT / "tests" / "traces" / "mooncake_conversation_400.jsonl"
SWEEP = next((ROOT / "results").glob("qwen3-8b/*/*/run.json")).parent
SIZE = "size --model llama-3.3-70b --throughput 12000 --measured-gpus 4 --requests-per-s 20"
WHOLE = f"{SIZE} --input-tokens 8000 --hit-ratio 0.6"
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run() -> Run:
    def run_command(command: str) -> tuple[int, str, str]:
        finished = call_bench(*command.split(), cwd=Path.cwd())
        return finished.returncode, finished.stdout, finished.stderr

    return run_command


def test_capacity_answers_for_a_model_as_json(run: Run) -> None:
    code, out, _ = run(
        "capacity --model llama-3.3-70b --users 10000 --context 10000,100000 --dram 2TB --json"
    )
    tables = json.loads(out)
    assert code == 0
    assert [row["kv_bytes"] for row in tables["users"]] == [32_768_000_000_000, 327_680_000_000_000]
    assert [row["users"] for row in tables["room"]] == [610, 61]
    assert "gpu" not in tables


def test_capacity_without_a_model_lists_the_catalogue(run: Run) -> None:
    code, out, _ = run("capacity --json")
    found = {row["model"]: row for row in json.loads(out)["models"]}
    assert code == 0
    assert set(found) == set(read_catalogue())
    assert (found["llama-3.3-70b"]["kv_bytes_per_token"], found["llama-3.3-70b"]["context_tokens"]) == (
        327_680,
        131_072,
    )


def test_capacity_takes_the_memory_of_a_gpu_from_the_catalogue(run: Run) -> None:
    _, named, _ = run("capacity --model llama-3.1-8b --gpu L40S --reserve 0 --json")
    _, given, _ = run("capacity --model llama-3.1-8b --gpu-memory 80GB --reserve 0 --dtype fp8 --json")
    assert json.loads(named)["gpu"][0]["memory_bytes"] == 46_068 * 2**20
    assert json.loads(given)["gpu"][0]["kv_bytes"] == 80 * 10**9 - 8_030_261_248


MINE = """
[gpus.my-gpu]
name = "My GPU"
bf16_flops_per_s = 5e14
memory_bytes = 100e9

[ssds.my-drive]
name = "our drive"
measured_read_bytes_per_s = 5e9
capacities_bytes = 4e12
dwpd = 2
"""


def test_devices_of_the_user_are_found_by_every_verb_that_names_one(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(MINE)
    _, out, _ = run(f"capacity --model qwen3-8b --gpu my-gpu --catalogue {mine} --json")
    assert json.loads(out)["gpu"][0]["memory_bytes"] == 100 * 10**9
    _, out, _ = run(f"{WHOLE} --ssd my-drive --catalogue {mine} --json")
    tables = json.loads(out)
    assert _value(tables, "drives", "read rate of a drive") == 5e9
    assert _value(tables, "drives", "rated drive writes per day") == 2
    assert (
        next(r["formula"] for r in tables["drives"] if "read rate" in r["quantity"]) == "our drive, mine.toml"
    )
    _, out, _ = run(
        f"predict machine --model qwen3-8b --gpu my-gpu --ssd dram --tokens 2k --catalogue {mine}"
    )
    assert "on My GPU with vLLM" in out
    for command in (
        "capacity --model qwen3-8b --gpu",
        f"{WHOLE} --ssd",
        "predict machine --model qwen3-8b --ssd dram --gpu",
    ):
        code, _, err = run(f"{command} my-devices --catalogue {mine}")
        assert code == 2
        assert "is in no catalogue" in err
        assert " my-" in err


def test_size_leaves_out_bad_lines_of_a_trace_only_when_it_is_told(run: Run, tmp_path: Path) -> None:
    lines = TRACE.read_text().splitlines()[:20]
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join([*lines[:5], "{broken", *lines[5:]]) + "\n")
    command = f"size --model qwen3-8b --throughput 9000 --trace {bad} --capacity 1TB"
    code, _, err = run(command)
    assert (code, "line 6: not JSON" in err) == (2, True)
    code, out, _ = run(f"{command} --skip-bad")
    assert code == 0
    assert "20 requests, from a cold start; 1 bad lines left out" in out


def test_capacity_answers_for_a_configuration_file(run: Run, tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 128,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
    }
    (tmp_path / "mine.json").write_text(json.dumps(config))
    code, out, err = run(f"capacity --model {tmp_path / 'mine.json'} --json")
    assert (code, err) == (0, "")
    (row,) = json.loads(out)["bytes_per_token"]
    assert (row["kv_bytes_per_token"], row["mha_formula_factor"]) == (2 * 3 * 64 * 2, 1.0)


def test_tables_and_figures_go_where_they_were_asked_for(run: Run, tmp_path: Path) -> None:
    for verb in ("capacity --model qwen3-8b", WHOLE):
        code, out, _ = run(f"{verb} --csv {tmp_path}/all.csv --plot {tmp_path}/figure.svg")
        assert code == 0
        assert out.splitlines()[-2:] == [f"{tmp_path}/all.csv", f"{tmp_path}/figure.svg"]
        assert set(pd.read_csv(tmp_path / "all.csv")["origin"]) <= {"arithmetic", "modelled"}
        (tmp_path / "all.csv").unlink()
        (tmp_path / "figure.svg").unlink()
    run(f"{WHOLE} --csv {tmp_path}/folder")
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {
        "demand.csv",
        "gpus.csv",
        "storage.csv",
        "hit_ratios.csv",
    }


def _value(tables: dict[str, list[dict[str, object]]], table: str, quantity: str) -> object:
    return next(row["value"] for row in tables[table] if row["quantity"] == quantity)


def test_size_takes_prompts_hits_and_rate_from_a_trace(run: Run) -> None:
    requests = [json.loads(line) for line in TRACE.read_text().splitlines()]
    span_s = (requests[-1]["timestamp"] - requests[0]["timestamp"]) / 1e3
    mean = sum(request["input_length"] for request in requests) / len(requests)
    rate, tokens = (len(requests) - 1) / span_s, mean
    _, out, _ = run(f"size --model qwen3-8b --throughput 9000 --trace {TRACE} --capacity 10TB --json")
    tables = json.loads(out)
    assert _value(tables, "demand", "requests") == pytest.approx(rate)
    assert _value(tables, "demand", "prompt tokens") == pytest.approx(tokens)
    _, small, _ = run(f"size --model qwen3-8b --throughput 9000 --trace {TRACE} --capacity 10GB --json")
    hits = [_value(found, "demand", "hit ratio") for found in (json.loads(small), tables)]
    assert 0 < hits[0] < hits[1] < 1  # type: ignore[operator]


def test_size_takes_model_and_throughput_from_a_sweep(run: Run) -> None:
    summary = pd.read_csv(SWEEP / "summary.csv").dropna(subset=["recompute_s"])
    seconds = dict(zip(summary["prefix_tokens"], summary["recompute_s"], strict=True))
    tokens = max(length for length in seconds if length / 2 in seconds)
    _, out, _ = run(f"size --from {SWEEP} --requests-per-s 1 --input-tokens {tokens} --hit-ratio 0.5 --json")
    tables = json.loads(out)
    assert _value(tables, "gpus", "measured throughput") == pytest.approx(tokens / seconds[tokens])
    share = 1 - seconds[tokens // 2] / seconds[tokens]
    assert _value(tables, "demand", "prefill work still done") == pytest.approx(share)


def test_size_takes_a_modelled_throughput_and_never_calls_it_measured(run: Run) -> None:
    asked = "--requests-per-s 20 --input-tokens 8000 --hit-ratio 0.5"
    code, said, _ = run(f"size --model llama-3.1-8b --gpu H100 {asked}")
    assert code == 0
    assert "measured throughput" not in said
    assert "nothing was measured; one request at a time: meta-llama/Llama-3.1-8B (bfloat16) on H100" in said
    assert "attention beyond 16,384 tokens runs at the rate measured there" in said
    _, out, _ = run(f"size --model llama-3.1-8b --gpu H100 {asked} --json")
    tables = json.loads(out)
    setting = MachineSpec("H100", bytes_per_s=1e9)
    cost = build_model(resolve_model("llama-3.1-8b"), setting, read_devices())
    whole_s = cost.recompute_s(8000)
    assert _value(tables, "gpus", "modelled throughput") == pytest.approx(8000 / whole_s)
    low, high = (_value(tables, "gpus", f"modelled throughput, {end} bound") for end in ("lower", "upper"))
    assert (low, high) == pytest.approx(
        (8000 / cost.recompute_s(8000, "high"), 8000 / cost.recompute_s(8000, "low"))
    )
    share = 1 - cost.recompute_s(4000) / whole_s
    assert _value(tables, "demand", "prefill work still done") == pytest.approx(share)


def test_a_modelled_group_of_gpus_is_the_tensor_parallel_one(run: Run) -> None:
    command = f"size --model llama-3.3-70b --gpu H100 --num-gpus 4 --trace {TRACE} --capacity 1TB --json"
    tables = json.loads(run(command)[1])
    assert _value(tables, "gpus", "GPUs modelled") == 4
    assert _value(tables, "storage", "KV of a stored token") == 327_680


def test_a_drive_given_by_hand_wins_over_the_catalogue(run: Run) -> None:
    _, out, _ = run(f"{WHOLE} --capacity 100TB --ssd pm1743 --drive-capacity 7.68TB --tbw 14.016PB --json")
    drives = json.loads(out)["drives"]
    assert _value({"drives": drives}, "drives", "capacity of a drive") == 7.68e12
    assert _value({"drives": drives}, "drives", "rated drive writes per day") == pytest.approx(1.0)
    assert _value({"drives": drives}, "drives", "read rate of a drive") == 13.829e9
    formulas = {row["quantity"]: row["formula"] for row in drives}
    assert formulas["capacity of a drive"] == "as given"
    assert "as given" in formulas["rated drive writes per day"]
    assert "glovepuppetry" in formulas["read rate of a drive"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("capacity --tp 4", "--tp needs a model"),
        ("capacity --context 5", "--context needs a model"),
        ("capacity --model qwen3-8b --tp 64", "tensor parallelism 64"),
        ("capacity --model qwen3-8b --users 1,x", "not whole numbers"),
        ("capacity --model qwen3-8b --gpu L4 --gpu-memory 24GB", "not both"),
        ("capacity --model qwen3-8b --gpu nope", "in no catalogue"),
        ("capacity --model qwen3-8b --gpu L4 --dtype int3", "weight dtype 'int3'"),
        ("capacity --model qwen3-8b --dram 5x", "not a size"),
        ("capacity --model qwen3-8b, ", "model '' is no catalogue key"),
        (f"capacity --model qwen3-8b --lengths {'9' * 400}", "at most 1,000,000,000,000,000"),
        ("capacity --model qwen3-8b --csv /proc/x.csv", "cannot be written: No such file"),
        (
            "predict machine --model qwen3-8b --gpu H100 --ssd dram --catalogue no.toml",
            "no.toml: No such file",
        ),
        ("capacity --plot x.svg", "--plot needs a model"),
        ("capacity --model qwen3-8b --plot x.gif", ".png or .svg"),
        ("capacity --csv no/such/place", "no folder"),
        ("size", "--throughput"),
        (
            f"{SIZE} --input-tokens 5 --hit-ratio 0.5 --capacity 1TB --ssd pm9a3",
            "capacity of pm9a3 is not known",
        ),
        (f"{SIZE} --hit-ratio 0.5", "--input-tokens"),
        (f"{SIZE} --input-tokens 5 --hit-ratio 2", "between 0 and 1"),
        (f"{SIZE} --trace {TRACE}", "--capacity"),
        (f"{SIZE} --trace {TRACE} --capacity 1TB --policy mru", "unknown policy"),
        (f"{SIZE} --trace {TRACE} --capacity 1TB --hit-ratio 0.5", "leave"),
        (f"{SIZE} --trace no.jsonl --capacity 1TB", "no such file"),
        (f"{SIZE} --trace {ROOT / 'README.md'} --capacity 1TB", "line 1"),
        (f"{WHOLE} --target 5", "not both"),
        (f"{WHOLE} --utilisation 1.5", "at most 1"),
        (f"{WHOLE} --measured-gpus 0", "measured GPUs"),
        (f"{WHOLE} --capacity 1TB --retention 1h", "not both"),
        (f"{WHOLE} --dwpd 1", "--drive-capacity"),
        (f"{WHOLE} --drive-capacity 1TB --dwpd 1 --tbw 1PB", "not both"),
        (f"{WHOLE} --drive-capacity 1TB --dwpd 0", "DWPD must be above 0"),
        (f"{WHOLE} --ssd ethernet-100g", "not a drive"),
        (f"{WHOLE} --drive-capacity 1TB --write-amplification 0.5", "1 or more"),
        (f"{WHOLE} --ssd pm1743 --write-amplification nan", "1 or more"),
        (f"{WHOLE} --write-amplification 2", "--write-amplification is of a drive"),
        (f"{WHOLE} --warranty-years nan", "--warranty-years is of a drive"),
        (f"{WHOLE} --skip-bad", "--skip-bad is of --trace"),
        (f"{WHOLE} --policy lfu", "--policy is of --trace"),
        (f"{WHOLE} --ssd pm1743 --occupancy 0", "occupancy must be above 0"),
        (
            f"{WHOLE} --price-dram-gb 4 --lifetime-years 5 --reuse-per-day nan",
            "reuses per day must be above 0",
        ),
        (f"{SIZE} --input-tokens {'9' * 30} --hit-ratio 0.5", "input tokens must be above 0 and at most"),
        (f"{SIZE} --trace {TRACE} --capacity 900000000PB", "at most 1e+18 tokens"),
        (f"{SIZE} --trace {TRACE} --capacity 1TB --block-tokens 0", "--block-tokens must be at least 1"),
        (
            "size --model qwen3-8b --throughput 1e-300 --requests-per-s 1 --input-tokens 5 --hit-ratio 0",
            "between 1e-24 and 1e+24",
        ),
        (f"{WHOLE} --price-dram-gb 4", "--lifetime-years"),
        (f"{WHOLE} --price-dram-gb 4 --lifetime-years 5 --occupancy 0.5", "--reuse-per-day"),
        (f"{WHOLE} --kept-output-tokens -1", "0 or more"),
        (f"{WHOLE} --from {SWEEP}", "leave --model"),
        (f"{SIZE} --gpu H100 --input-tokens 5 --hit-ratio 0.5", "--measured-gpus is what --num-gpus says"),
        ("size --model qwen3-8b --gpu H100 --throughput 9", "one of the three"),
        (f"size --gpu H100 --from {SWEEP}", "one of the three"),
        ("size --gpu H100", "--gpu needs the model"),
        ("size --model qwen3-8b --throughput 9 --num-gpus 2", "--num-gpus describes the machine of --gpu"),
        ("size --model llama-3.3-70b --gpu H100", "do not fit into its 86 GB: 2 such GPUs hold them"),
        ("size --model llama-3.3-70b --gpu H100 --num-gpus 3", "cannot be divided among 3 ranks"),
        (
            "capacity --model llama-3.1-8b --tp 3",
            "(8 of K and V) cannot be divided among 3 ranks; 1, 2, 4, 8",
        ),
        ("size --from no/such --requests-per-s 1 --input-tokens 5 --hit-ratio 0", "no run.json"),
        ("size --model qwen3-8b --throughput 1 --input-tokens 5 --hit-ratio 0", "--requests-per-s"),
    ],
    ids=lambda value: value[:60] if value.startswith(("capacity", "size", "predict")) else "",
)
def test_what_cannot_be_calculated_is_said_in_one_line(run: Run, command: str, said: str) -> None:
    code, out, err = run(command)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err


def test_neither_verb_needs_torch() -> None:
    program = (
        "import sys\nfrom bench.__main__ import main\n"
        "sys.argv = ['bench', 'capacity']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "False"
