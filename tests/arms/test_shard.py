"""A model divided among gloo ranks is the model that one process would build, and keeps the KV that the catalogue says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.arms.logits_check import AnswerCheck
from bench.arms.model.shard import held_elements
from bench.arms.prefill import prefill_over
from bench.arms.rank_arm import combine
from bench.catalog.models.geometry import Geometry
from bench.catalog.models.resolve import describe_config
from bench.record.sample import Outcome
from kvio.evidence.cold_evidence import ReadCounters, prove_cache_state
from kvio.loading.blocks import KVBlocks
from tests.helpers import tensor_parallel
from tests.helpers.architectures import CONFIGS, build_small
from tests.helpers.tensor_parallel import NUM_TOKENS, make_tokens, run_ranks

REFUSED = {
    "opt": "no tensor-parallel plan",
    "gpt_oss": "no tensor-parallel plan for its layers",
    "phi3": "keys and values whole on every rank",
    "qwen3_next": "linear-attention states whole",
}
DIVIDED = ["qwen3", "llama_mha", "gemma2", "qwen3_moe", "deepseek_v2", "deepseek_v3"]


def _geometry(name: str) -> Geometry:
    raw = CONFIGS[name] | ({"topk_method": "greedy"} if name == "deepseek_v2" else {})
    return describe_config(raw, "config.json", key=name, name=name, source="test").geometry


def _whole(name: str) -> tuple[np.ndarray[Any, Any], dict[Any, Any], int]:
    """Logits, KV and elements of the model in one process."""
    built = build_small(name, seed=3)
    layout = _geometry(name).layout("float32")
    blocks = KVBlocks(layout, NUM_TOKENS, torch.device("cpu"))
    logits = prefill_over(built, blocks).forward(make_tokens()).numpy()
    kv = {
        (plane.layer, plane.role): blocks.plane(plane.layer, plane.role).view(torch.float32).numpy()
        for plane in layout.planes
    }
    return logits, kv, held_elements(built.model)


def _require_same(name: str, ranks: list[dict[str, Any]]) -> None:
    """Every rank has the logits of the undivided model, and its part of the KV."""
    logits, kv, _ = _whole(name)
    assert float(logits.std()) > 0.3
    for number, rank in enumerate(ranks):
        np.testing.assert_allclose(rank["logits"], logits, atol=2e-5, rtol=1e-4)
        for key, own in rank["kv"].items():
            if key[1] in ("latent", "rope"):
                part = kv[key]
            else:
                heads = kv[key].shape[1] // 16
                first = number * heads // len(ranks) * 16
                part = kv[key][:, first : first + own.shape[1]]
            np.testing.assert_allclose(own, part, atol=2e-5, rtol=1e-4)


def _by_name(ranks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [rank[name] for rank in ranks] for name in ranks[0]}


@pytest.fixture(scope="module")
def two_ranks() -> dict[str, list[dict[str, Any]]]:
    """What each of two ranks got, by model."""
    cases = {name: (CONFIGS[name], _geometry(name).layout("float32", 2)) for name in DIVIDED}
    cases["uneven"] = (CONFIGS["qwen3"] | {"intermediate_size": 97}, _geometry("qwen3").layout("float32", 2))
    return _by_name(run_ranks(2, tensor_parallel.forward_each, cases))


@pytest.fixture(scope="module")
def answers() -> dict[str, list[AnswerCheck]]:
    """The logits check on each of two ranks, by model; in `mixed up` each loads what the other stored."""
    cases = {
        name: (CONFIGS[name], _geometry(name).layout("float32", 2), False)
        for name in ("qwen3", "qwen3_moe", "deepseek_v2")
    }
    cases["mixed up"] = (*cases["qwen3"][:2], True)
    return _by_name(run_ranks(2, tensor_parallel.answer_each, cases))


@pytest.fixture(scope="module")
def refusals() -> dict[str, list[str]]:
    """What each of two ranks says to models that cannot be divided."""
    raws = {name: CONFIGS[name] for name in REFUSED}
    return _by_name(run_ranks(2, tensor_parallel.try_each, raws))


@pytest.mark.parametrize("name", DIVIDED)
def test_two_ranks_give_the_logits_of_one_and_keep_their_part_of_its_kv(
    two_ranks: dict[str, list[dict[str, Any]]], name: str
) -> None:
    ranks = two_ranks[name]
    _require_same(name, ranks)
    assert all(rank["elements"] < _whole(name)[2] for rank in ranks)  # no rank holds the whole model
    assert ("attention_whole" in ranks[0]["notices"]) == (name == "deepseek_v3")


def test_more_ranks_than_kv_heads_keep_one_head_each_and_several_the_same() -> None:
    layout = _geometry("qwen3").layout("float32", 4)
    assert layout.bytes_per_token == 4 * 2 * 16 * 4  # layers, K and V, one head of 16, float32
    ranks = run_ranks(4, tensor_parallel.forward, CONFIGS["qwen3"], layout)
    _require_same("qwen3", ranks)
    np.testing.assert_array_equal(ranks[0]["kv"][0, "k"], ranks[1]["kv"][0, "k"])
    assert np.abs(ranks[1]["kv"][0, "k"] - ranks[2]["kv"][0, "k"]).max() > 0.1


def test_the_matrix_rate_is_taken_on_the_shapes_that_a_rank_multiplies(
    two_ranks: dict[str, list[dict[str, Any]]],
) -> None:
    geometry = _geometry("llama_mha")
    shapes = two_ranks["llama_mha"][0]["shapes"]
    assert set(geometry.gemm_shapes(geometry.layers[0], 2)) == shapes
    assert set(geometry.gemm_shapes(geometry.layers[0])) != shapes


def test_the_last_rank_has_less_where_a_width_does_not_divide_evenly(
    two_ranks: dict[str, list[dict[str, Any]]],
) -> None:
    first, last = two_ranks["uneven"]
    np.testing.assert_allclose(first["logits"], last["logits"], atol=2e-5)
    assert (49, 64) in first["shapes"] and (48, 64) in last["shapes"]


def test_saved_weights_are_read_by_each_rank_as_its_shard(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="transformers reads shards of saved weights by accelerate")
    built = build_small("qwen3", seed=9)
    built.model.lm_head.weight = torch.nn.Parameter(built.model.lm_head.weight.clone())
    built.model.save_pretrained(tmp_path)
    tokens = make_tokens()
    with torch.inference_mode():
        expected = built.model(input_ids=tokens).logits[0, -1].numpy()
    for num_ranks in (2, 4):
        layout = _geometry("qwen3").layout("float32", num_ranks)
        for rank in run_ranks(num_ranks, tensor_parallel.forward, CONFIGS["qwen3"], layout, str(tmp_path)):
            np.testing.assert_allclose(rank["logits"], expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_a_model_whose_kv_the_library_does_not_divide_is_refused_by_name(
    refusals: dict[str, list[str]], name: str, reason: str
) -> None:
    for said in refusals[name]:
        assert reason in said and said.startswith(str(CONFIGS[name]["model_type"]))


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "deepseek_v2"])
def test_the_answer_after_each_rank_loaded_its_own_store_is_that_of_recompute(
    answers: dict[str, list[AnswerCheck]], name: str
) -> None:
    for check in answers[name]:
        assert check.passed
        assert check.control_difference > 100 * check.tolerance  # one rank's chunks rotated alone are seen


def test_the_answer_with_the_shards_of_two_ranks_mixed_up_is_wrong(
    answers: dict[str, list[AnswerCheck]],
) -> None:
    for check in answers["mixed up"]:
        assert not check.passed
        assert check.max_difference > 100 * check.tolerance


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_gpus_give_the_right_answer_each_on_its_own() -> None:
    layout = _geometry("qwen3").layout("float32", 2)
    found = run_ranks(2, tensor_parallel.check_answer_on_gpu, CONFIGS["qwen3"], layout, device_type="cuda")
    assert found == [(True, "cuda:0"), (True, "cuda:1")]


FAST = Outcome(
    seconds=2.0,
    open_s=0.1,
    read_s=0.5,
    h2d_s=0.0,
    scatter_s=0.1,
    first_token_s=0.5,
    num_bytes=100,
    num_requests=4,
    request_bytes=25,
    queue_depth=8,
    achieved_queue_depth=3.5,
    cache_state="direct",
    data_path="posix-direct",
    device_bytes=100,
    process_bytes=104,
    verified=True,
    notices=("padded_chunk",),
)
SLOW = replace(
    FAST, seconds=2.25, open_s=0.2, read_s=1.2, scatter_s=0.3, num_bytes=60, process_bytes=64, notices=()
)


def test_seconds_and_split_are_those_of_the_slowest_rank_and_bytes_add_up() -> None:
    both = combine([FAST, SLOW], divided_flops=False)
    assert (both.seconds, both.open_s, both.read_s, both.scatter_s) == (2.25, 0.2, 1.2, 0.3)
    assert (both.num_bytes, both.process_bytes, both.num_requests, both.queue_depth) == (160, 168, 8, 16)
    assert both.achieved_queue_depth == 7.0
    assert both.request_bytes == 25
    assert both.notices == ("padded_chunk",)
    assert (both.cache_state, both.data_path, both.verified) == ("direct", "posix-direct", True)


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        (("cold", "unverified"), "unverified"),
        (("warm", "cold"), "warm"),
        (("warm", "unverified"), "warm"),
        (("direct", "cold"), "cold"),
        (("direct", None), None),
    ],
    ids=str,
)
def test_evidence_holds_only_where_it_holds_on_every_rank(
    states: tuple[str | None, ...], worst: str | None
) -> None:
    parts = [replace(FAST, cache_state=state) for state in states]
    assert combine(parts, divided_flops=False).cache_state == worst


def test_one_rank_with_wrong_or_unseen_bytes_or_another_path_is_not_hidden() -> None:
    other = replace(FAST, verified=None, data_path="posix-buffered", process_bytes=None)
    mixed = combine([FAST, other], divided_flops=False)
    assert mixed.verified is None
    assert mixed.data_path == "posix-buffered+posix-direct"
    assert mixed.process_bytes is None
    assert combine([FAST, replace(FAST, verified=False), other], divided_flops=False).verified is False


def test_operations_of_the_whole_model_count_once_and_those_of_divided_products_add_up() -> None:
    prefill = Outcome(seconds=2.0, flops=1e12)
    assert combine([prefill, prefill], divided_flops=False).flops == 1e12
    product = Outcome(seconds=2.0, flops=1e12, flops_per_s=5e11)
    slower = Outcome(seconds=2.5, flops=1e12, flops_per_s=4e11)
    rate = combine([product, slower], divided_flops=True)
    assert (rate.flops, rate.flops_per_s) == (2e12, 2e12 / 2.5)


def test_a_drive_that_counted_for_all_ranks_proves_each_only_its_share() -> None:
    moved = ReadCounters(
        process_bytes=100, device_bytes=150
    )  # the drive read 150 of the 200 bytes of two ranks
    own = moved.share(100, 200)
    assert own == ReadCounters(process_bytes=100, device_bytes=75)
    state, codes = prove_cache_state(asked_direct=True, payload_bytes=100, resident_before=0, moved=own)
    assert (state, codes) == ("unverified", ("below_page_cache",))
    assert moved.share(100, 100) == moved
    assert ReadCounters(5, None).share(1, 2) == ReadCounters(5, None)
