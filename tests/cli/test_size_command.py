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
from bench.sizing.size_scenario import read_scenario
from tests.helpers.commands import ROOT, call_bench
from tests.helpers.scenarios import make_scenario, write_scenario

TRACE = ROOT / "tests" / "traces" / "mooncake_conversation_400.jsonl"
SWEEP = next((ROOT / "results").glob("qwen3-8b/*/*/run.json")).parent
NO_RATE = {"input_tokens": 8000, "hit_ratio": 0.6}
QWEN = {"model": "qwen3-8b", "tokens_per_s": 9000}
Run = Callable[[str], tuple[int, str, str]]
Size = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run() -> Run:
    def run_command(command: str) -> tuple[int, str, str]:
        finished = call_bench(*command.split(), cwd=Path.cwd())
        return finished.returncode, finished.stdout, finished.stderr

    return run_command


@pytest.fixture
def size(run: Run, tmp_path: Path) -> Size:
    def run_size(flags: str = "", **parts: dict[str, object]) -> tuple[int, str, str]:
        path = write_scenario(tmp_path / "scenario.toml", make_scenario(**parts))
        return run(f"size {path} {flags}")

    return run_size


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
    scenarios = {}
    for drive in ("my-drive", "my-devices"):
        scenarios[drive] = write_scenario(tmp_path / f"{drive}.toml", make_scenario(drive={"ssd": drive}))
        scenarios[drive].write_text(f'catalogue = "{mine}"\n{scenarios[drive].read_text()}')
    tables = json.loads(run(f"size {scenarios['my-drive']} --json")[1])
    assert _value(tables, "drives", "read rate of a drive") == 5e9
    assert _value(tables, "drives", "rated drive writes per day") == 2
    rate = next(row for row in tables["drives"] if "read rate" in row["quantity"])
    assert rate["formula"] == "our drive, mine.toml"
    _, out, _ = run(
        f"predict machine --model qwen3-8b --gpu my-gpu --ssd dram --tokens 2k --catalogue {mine}"
    )
    assert "on My GPU with vLLM" in out
    for command in (
        f"capacity --model qwen3-8b --gpu my-devices --catalogue {mine}",
        f"size {scenarios['my-devices']}",
        f"predict machine --model qwen3-8b --ssd dram --gpu my-devices --catalogue {mine}",
    ):
        code, _, err = run(command)
        assert code == 2
        assert "is in no catalogue" in err
        assert " my-" in err


def test_size_leaves_out_bad_lines_of_a_trace_only_when_it_is_asked_to(size: Size, tmp_path: Path) -> None:
    lines = TRACE.read_text().splitlines()[:20]
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join([*lines[:5], "{broken", *lines[5:]]) + "\n")
    store = {"capacity": "1TB"}
    code, _, err = size(throughput=QWEN, requests={"trace": bad}, store=store)
    assert (code, "line 6: not JSON" in err) == (2, True)
    code, out, _ = size(throughput=QWEN, requests={"trace": bad, "skip_bad": True}, store=store)
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


def test_tables_and_figures_go_where_they_were_asked_for(run: Run, size: Size, tmp_path: Path) -> None:
    places = f"--csv {tmp_path}/all.csv --plot {tmp_path}/figure.svg"
    for code, out, _ in (run(f"capacity --model qwen3-8b {places}"), size(places)):
        assert code == 0
        assert out.splitlines()[-2:] == [f"{tmp_path}/all.csv", f"{tmp_path}/figure.svg"]
        assert set(pd.read_csv(tmp_path / "all.csv")["origin"]) <= {"arithmetic", "modelled"}
    size(f"--csv {tmp_path}/folder")
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {
        "demand.csv",
        "gpus.csv",
        "storage.csv",
        "hit_ratios.csv",
    }


def _value(tables: dict[str, list[dict[str, object]]], table: str, quantity: str) -> object:
    return next(row["value"] for row in tables[table] if row["quantity"] == quantity)


def test_size_takes_prompts_hits_and_rate_from_a_trace(size: Size) -> None:
    requests = [json.loads(line) for line in TRACE.read_text().splitlines()]
    span_s = (requests[-1]["timestamp"] - requests[0]["timestamp"]) / 1e3
    mean = sum(request["input_length"] for request in requests) / len(requests)
    rate, tokens = (len(requests) - 1) / span_s, mean
    tables, small = (
        json.loads(
            size("--json", throughput=QWEN, requests={"trace": TRACE}, store={"capacity": capacity})[1]
        )
        for capacity in ("10TB", "10GB")
    )
    assert _value(tables, "demand", "requests") == pytest.approx(rate)
    assert _value(tables, "demand", "prompt tokens") == pytest.approx(tokens)
    hits = [_value(found, "demand", "hit ratio") for found in (small, tables)]
    assert 0 < hits[0] < hits[1] < 1  # type: ignore[operator]


def test_size_takes_model_and_throughput_from_a_sweep(size: Size) -> None:
    summary = pd.read_csv(SWEEP / "summary.csv").dropna(subset=["recompute_s"])
    seconds = dict(zip(summary["prefix_tokens"], summary["recompute_s"], strict=True))
    tokens = max(length for length in seconds if length / 2 in seconds)
    requests = {"per_s": 1, "input_tokens": tokens, "hit_ratio": 0.5}
    _, out, _ = size(f"--from {SWEEP} --json", throughput={}, requests=requests)
    tables = json.loads(out)
    assert _value(tables, "gpus", "measured throughput") == pytest.approx(tokens / seconds[tokens])
    share = 1 - seconds[tokens // 2] / seconds[tokens]
    assert _value(tables, "demand", "prefill work still done") == pytest.approx(share)


def test_size_takes_a_modelled_throughput_and_never_calls_it_measured(size: Size) -> None:
    requests = {"per_s": 20, "input_tokens": 8000, "hit_ratio": 0.5}
    code, said, _ = size("--model llama-3.1-8b --gpu H100", throughput={}, requests=requests)
    assert code == 0
    assert "measured throughput" not in said
    assert "nothing was measured; one request at a time: meta-llama/Llama-3.1-8B (bfloat16) on H100" in said
    assert "attention beyond 16,384 tokens runs at the rate measured there" in said
    _, out, _ = size("--model llama-3.1-8b --gpu H100 --json", throughput={}, requests=requests)
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


def test_a_modelled_group_of_gpus_is_the_tensor_parallel_one(size: Size) -> None:
    machine = {"model": "llama-3.3-70b", "gpu": "H100", "num_gpus": 4}
    _, out, _ = size("--json", throughput=machine, requests={"trace": TRACE}, store={"capacity": "1TB"})
    tables = json.loads(out)
    assert _value(tables, "gpus", "GPUs modelled") == 4
    assert _value(tables, "storage", "KV of a stored token") == 327_680


def test_a_drive_given_by_hand_wins_over_the_catalogue(size: Size) -> None:
    drive = {"ssd": "pm1743", "capacity": "7.68TB", "tbw": "14.016PB"}
    _, out, _ = size("--json", store={"capacity": "100TB"}, drive=drive)
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
        ("size", "scenario"),
        ("size no.toml", "no.toml: No such file"),
        (
            "capacity --model llama-3.1-8b --tp 3",
            "(8 of K and V) cannot be divided among 3 ranks; 1, 2, 4, 8",
        ),
    ],
    ids=lambda value: value[:60] if value.startswith(("capacity", "size", "predict")) else "",
)
def test_what_cannot_be_calculated_is_said_in_one_line(run: Run, command: str, said: str) -> None:
    code, out, err = run(command)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err


DRIVE = {"capacity": "1TB", "dwpd": 1}
LIFE = {"dram_gb": 4, "lifetime_years": 5}
GIVEN = {"model": "llama-3.3-70b", "tokens_per_s": 12_000}
STORED = {"requests": {"trace": TRACE}, "store": {"capacity": "1TB"}}
H100 = {"model": "llama-3.3-70b", "gpu": "H100"}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"throughput": {}}, "throughput: give one of tokens_per_s"),
        ({"throughput": {"tokens_per_s": 9}}, "throughput.model: is needed"),
        ({"throughput": {"gpu": "H100"}}, "throughput.model: is needed"),
        ({"throughput": {**GIVEN, "gpu": "H100"}}, "throughput: give one of"),
        ({"throughput": {"sweep": SWEEP, "gpu": "H100"}}, "throughput: give one of"),
        ({"throughput": {"sweep": SWEEP, "model": "qwen3-8b"}}, "throughput.model: is not a field"),
        ({"throughput": {**GIVEN, "num_gpus": 2}}, "throughput.num_gpus: is not a field"),
        ({"throughput": {**H100, "tp": 2}}, "throughput.tp: is not a field"),
        ({"throughput": H100}, "do not fit into its 86 GB: 2 such GPUs hold them"),
        ({"throughput": {**H100, "num_gpus": 3}}, "cannot be divided among 3 ranks"),
        ({"throughput": {"sweep": "no/such"}}, "no run.json"),
        ({"throughput": {**GIVEN, "tp": 8, "measured_gpus": 4}}, "throughput.measured_gpus 4 are fewer"),
        ({"throughput": {**GIVEN, "measured_gpus": 0}}, "measured GPUs"),
        ({"throughput": {**GIVEN, "utilisation": 1.5}}, "at most 1"),
        ({"throughput": {**GIVEN, "tokens_per_s": 1e-300}}, "between 1e-24 and 1e+24"),
        (
            {"throughput": {**GIVEN, "tokens_per_s": "fast"}},
            "throughput.tokens_per_s: must be a valid number",
        ),
        ({"requests": {"per_s": 1, "hit_ratio": 0.5}}, "requests.input_tokens: is needed"),
        ({"requests": NO_RATE}, "requests.per_s or requests.target"),
        ({"requests": {**NO_RATE, "hit_ratio": 2, "per_s": 1}}, "between 0 and 1"),
        ({"requests": {**NO_RATE, "per_s": 1, "target": 5}}, "requests: give per_s or target, not both"),
        ({"requests": {**NO_RATE, "per_s": 1, "policy": "lfu"}}, "requests.policy: is not a field"),
        ({"requests": {**NO_RATE, "per_s": 1, "kept_output_tokens": -1}}, "0 or more"),
        (
            {"requests": {**NO_RATE, "per_s": 1, "input_tokens": int("9" * 18)}},
            "input tokens must be above 0",
        ),
        ({"requests": {"trace": TRACE}}, "store.capacity is needed"),
        ({**STORED, "requests": {"trace": TRACE, "hit_ratio": 0.5}}, "requests.hit_ratio: is not a field"),
        ({**STORED, "requests": {"trace": TRACE, "policy": "mru"}}, "unknown policy"),
        ({**STORED, "requests": {"trace": TRACE, "block_tokens": 0}}, "block_tokens must be at least 1"),
        ({**STORED, "requests": {"trace": "no.jsonl"}}, "no such file"),
        ({**STORED, "requests": {"trace": ROOT / "README.md"}}, "line 1"),
        ({**STORED, "store": {"capacity": "900000000PB"}}, "at most 1e+18 tokens"),
        ({**STORED, "store": {"capacity": 3000}}, "store.capacity: '3000' is not a size"),
        ({"store": {"capacity": "1TB", "retention": "1h"}}, "store: give capacity or retention, not both"),
        ({"store": {"retention": 24}}, "store.retention: '24' is not a duration"),
        ({"store": {"occupancy": 0.5}}, "store.occupancy needs a drive"),
        ({"store": {"occupancy": 0.0}, "drive": DRIVE}, "occupancy must be above 0"),
        ({"store": {"capacity": "1TB"}, "drive": {"ssd": "pm9a3"}}, "capacity of pm9a3 is not known"),
        ({"drive": {"dwpd": 1}}, "drive.capacity"),
        ({"drive": {**DRIVE, "tbw": "1PB"}}, "drive: give dwpd or tbw, not both"),
        ({"drive": {**DRIVE, "dwpd": 0}}, "DWPD must be above 0"),
        ({"drive": {**DRIVE, "read": 12}}, "drive.read: '12' is not a rate"),
        ({"drive": {"ssd": "ethernet-100g"}}, "not a drive"),
        ({"drive": {**DRIVE, "write_amplification": 0.5}}, "1 or more"),
        ({"drive": {**DRIVE, "write_amplification": float("nan")}}, "1 or more"),
        ({"drive": {**DRIVE, "warranty_years": float("nan")}}, "warranty must be above 0"),
        ({"prices": {"dram_gb": 4}}, "prices: lifetime_years is needed"),
        ({"prices": {"lifetime_years": 5}}, "prices: lifetime_years and reuse_per_day need"),
        ({"prices": LIFE}, "prices.reuse_per_day"),
        ({"prices": {**LIFE, "reuse_per_day": float("nan")}}, "reuses per day must be above 0"),
        ({"price": LIFE}, "price: is not a field"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_scenario_that_cannot_be_used_is_refused_in_one_line(
    size: Size, parts: dict[str, dict[str, object]], said: str
) -> None:
    code, out, err = size(**parts)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize("text", ["[requests\n", "throughput = 3\n", "catalogue = 'no.toml'\n"])
def test_a_file_that_is_no_scenario_is_refused_in_one_line(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    code, out, err = run(f"size {path}")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert str(path) in err


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "examples").glob("size*.toml")), ids=lambda path: path.stem
)
def test_the_committed_scenarios_can_be_read(path: Path) -> None:
    flags = {"model": "qwen3-8b", "gpu": "H100"} if path.stem == "size_requests" else {}
    assert read_scenario(path, **flags).requests is not None


def _drives(size: Size, amplification: int) -> dict[str, dict[str, object]]:
    drive = {"capacity": "7.68TB", "dwpd": 1, "write_amplification": amplification}
    return {row["quantity"]: row for row in json.loads(size("--json", drive=drive)[1])["drives"]}


def test_what_the_host_writes_is_told_from_what_counts_against_the_rating(size: Size) -> None:
    once, twice = _drives(size, 1), _drives(size, 2)
    per_day = 20 * 3200 * 327_680 * 86_400 / 7.68e12
    assert once["drives"]["value"] == 236
    assert once["drive writes per day"]["value"] == pytest.approx(per_day / 236)
    assert "counted against the rating" not in once
    assert twice["drives"]["value"] == 472
    assert twice["drive writes per day"]["value"] == pytest.approx(per_day / 472)
    assert "by the host" in str(twice["drive writes per day"]["formula"])
    assert twice["counted against the rating"]["value"] == pytest.approx(2 * per_day / 472)
    assert "write amplification of 2" in str(twice["counted against the rating"]["formula"])
    assert twice["years to the rated writes"]["value"] == pytest.approx(5 / (2 * per_day / 472))


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
