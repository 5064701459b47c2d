"""A sweep by two ranks as a user meets it: the answer, what it says of the ranks, and what a lost rank leaves behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bench.arms.file_cursor import CursorPosition
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import describe_config
from bench.measure.setup import resolve_plan
from bench.measure.stores import count_reads, create_stores, most_tokens, plan_stores, rank_directory
from bench.measure.worker.model_session import DeviceError, pick_device
from bench.record.plan import Plan
from bench.record.run import read_run
from bench.record.samples_csv import read_samples
from bench.report.run_facts import device_name
from kvio.store.chunk_store import ChunkStore
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.architectures import CONFIGS
from tests.helpers.commands import ROOT, call_bench, run_bench
from tests.helpers.places import avoid_memory


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = avoid_memory(tmp_path) / "tiny.json"
    path.write_text(json.dumps(TINY))
    return path


def _sweep_of(tiny: Path, *more: str) -> list[str]:
    settings = ["--dtype", "float32", "--tokens", "64,128", "--samples", "1", "--working-set", "32MiB"]
    return ["sweep", str(tiny), "--tp", "2", *settings, *more]


@pytest.mark.slow
def test_a_sweep_by_two_ranks_counts_the_bytes_of_both_and_says_so_everywhere(
    tiny: Path, tmp_path: Path
) -> None:
    finished = run_bench(*_sweep_of(tiny, "--budget", "300s", "--rounds", "1"), cwd=tmp_path)
    assert finished.returncode in {0, 3}, finished.stderr
    folder = tmp_path / finished.stdout.strip().splitlines()[-1]
    run, (samples, _) = read_run(folder), read_samples(folder)
    assert run.state == "complete"
    shown = run_bench("model", tiny, "--tp", "2", "--kv-dtype", "float32", "--json", cwd=tmp_path)
    of_rank = json.loads(shown.stdout)["kv_bytes_per_token"]
    assert of_rank == 2 * 2 * 1 * 64 * 4  # layers, K and V, one head of 64, float32
    assert run.kv_bytes_per_token == 2 * of_rank
    loads = [sample for sample in samples if sample.case.arm == "load"]
    assert len(loads) == 2
    for load in loads:
        assert load.outcome.num_bytes == 2 * of_rank * (load.case.prefix_tokens - 1)
        assert load.outcome.verified is True
    assert run.checks["group"]["ranks"] == 2
    assert run.checks["group"]["kv_token_bytes_of_rank"] == of_rank
    assert run.checks["answer:posix/best"]["passed"] is True
    assert run.checks["answer:posix/best"]["control_difference"] > 1
    assert {info.settings["tensor_parallel"] for info in run.series.values()} == {2}
    gemms = [sample.outcome for sample in samples if sample.case.arm == "gemm"]
    assert all(gemm.flops == 2 * gemm.seconds * gemm.flops_per_s / 2 for gemm in gemms)
    assert "tensor parallel over 2 ranks" in finished.stdout  # the sentence
    assert "tiny.json over 2 ranks" in finished.stdout  # the table
    assert "2 ranks, each with its shard" in (folder / "report.html").read_text()
    assert "tensor parallel over 2 ranks" in (folder / "crossover.svg").read_text().replace("\n", " ")
    assert list((tmp_path / "results" / "scratch").iterdir()) == []
    assert device_name(run)


@pytest.mark.slow
def test_a_rank_killed_in_mid_round_fails_the_round_in_one_line_and_leaves_nothing(
    tiny: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-u", "-m", "bench", *_sweep_of(tiny, "--budget", "300s", "--rounds", "50")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "round 2" in line)
        ranks: list[int] = []
        while len(ranks) < 2:  # the fork server is our child's child, and the ranks are its children
            family = psutil.Process(process.pid).children(recursive=True)
            ranks = sorted(child.pid for child in family if child.ppid() != process.pid)
        os.kill(ranks[1], signal.SIGKILL)
        output, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    (said,) = [line for line in output.splitlines() if line.startswith("notice: round")]
    assert said.endswith("rank 1 of 2: the measuring process was killed (out of memory?)")
    assert errors == ""
    gone, alive = psutil.wait_procs(family, timeout=30)
    assert (len(gone), alive) == (len(family), [])
    assert list((tmp_path / "results" / "scratch").iterdir()) == []
    folder = tmp_path / output.strip().splitlines()[-1]
    assert read_run(folder).state == "failed"
    assert {sample.round for sample in read_samples(folder)[0]} <= {0, 1}


BAD = {
    "heads that do not divide": (
        ["qwen3-0.6b", "--tp", "3"],
        "16 attention heads (8 of K and V) cannot be divided among 3 ranks; 1, 2, 4, 8, 16 can",
    ),
    "a simulation": (["qwen3-0.6b", "--tp", "2", "--backend", "simulated"], "simulated sweep has no ranks"),
    "one named GPU": (["qwen3-0.6b", "--tp", "2", "--device", "cuda:1"], "--device cuda:1 is one GPU"),
    "no ranks": (["qwen3-0.6b", "--tp", "0"], "--tp 0: it should be greater than 0"),
    "no plan for keys and values": (["phi3.json", "--tp", "2"], "leaves keys and values whole on every rank"),
}


NEEDS_RANKS = pytest.param("no plan for keys and values", marks=pytest.mark.slow)  # two processes find it out


@pytest.mark.parametrize("name", [*(name for name in BAD if "plan" not in name), NEEDS_RANKS])
def test_what_cannot_be_divided_is_refused_in_one_line_with_exit_code_2(name: str, tmp_path: Path) -> None:
    small = {key: value for key, value in TINY.items() if key != "head_dim"}
    phi3 = small | {"model_type": "phi3", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    (tmp_path / "phi3.json").write_text(json.dumps(phi3))
    arguments, says = BAD[name]
    finished = call_bench("sweep", *arguments, cwd=avoid_memory(tmp_path))
    assert finished.returncode == 2, finished.stdout + finished.stderr
    (line,) = finished.stderr.splitlines()
    assert line.startswith("kvcross: ") and says in line
    assert not list(tmp_path.glob("results/*/*/*"))


def test_every_rank_has_a_store_of_its_own_and_all_share_the_working_set(tiny: Path, tmp_path: Path) -> None:
    def plan(ranks: int) -> Plan:
        return Plan(model=str(tiny), tensor_parallel=ranks, working_set_bytes=4 * 2**20, num_samples=1)

    one, two = resolve_plan(plan(1)), resolve_plan(plan(2))
    assert two.bytes_at(100) == one.bytes_at(100)  # two heads of K and V, one on each rank
    assert 2 * two.layout.bytes_at(100) == one.layout.bytes_at(100)
    assert most_tokens(two, tmp_path) == most_tokens(one, tmp_path)  # half of the room for half of the bytes
    (directory,) = set(create_stores(two, plan_stores(two, tmp_path, longest=256)).values())
    stores = [ChunkStore.open(rank_directory(directory, rank, 2)) for rank in range(2)]
    assert stores[0].geometry.layout == two.layout
    assert not (stores[0].read_payload(0) == stores[1].read_payload(0)).all()
    held = sum(store.num_chunks * store.geometry.padded_bytes for store in stores)
    assert held <= 4 * 2**20
    (reads,) = count_reads(two, tmp_path, {directory: CursorPosition(stores[0].num_chunks + 1)})
    assert (reads.held_bytes, reads.again) == (held, True)
    assert reads.read_bytes == held + 2 * stores[0].geometry.padded_bytes
    assert rank_directory(directory, 0, 1) == directory


def test_kv_heads_that_several_ranks_need_are_counted_for_each(tiny: Path) -> None:
    four = resolve_plan(Plan(model=str(tiny), tensor_parallel=4))
    assert four.bytes_per_token == 2 * resolve_plan(Plan(model=str(tiny))).bytes_per_token


def test_latents_are_whole_on_every_rank() -> None:
    raw = CONFIGS["deepseek_v3"]
    model = describe_config(raw, "config.json", key="k", name="n", source="test")
    assert model.geometry.layout("bfloat16", 4) == model.geometry.layout("bfloat16")


def test_ranks_that_do_not_divide_the_heads_are_refused_before_any_process_is_started(tiny: Path) -> None:
    with pytest.raises(CatalogError, match="4 attention heads"):
        resolve_plan(Plan(model=str(tiny), tensor_parallel=3))


def test_ranks_on_a_cpu_share_it_and_on_gpus_have_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(pick_device("cpu", 1, 2)) == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [str(pick_device("auto", rank, 2)) for rank in range(2)] == ["cuda:0", "cuda:1"]
    assert str(pick_device("auto")) == "cuda"
    with pytest.raises(DeviceError, match="4 ranks need as many GPUs, torch sees 2"):
        pick_device("cuda", 0, 4)
