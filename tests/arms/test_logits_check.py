"""The right answer after recompute from the front and loading from the back, through real files."""

import time
from pathlib import Path

import pytest
import torch

from bench.arms.logits_check import AnswerCheckError, check_answer, require_answer
from bench.arms.prefill import draw_tokens, prefill_over
from bench.measure.setup import LoadSeries
from bench.measure.worker.logits_checks import HybridExchange, Planned
from bench.record.plan import LoadSpec
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import ChunkLoader
from tests.helpers.architectures import CONFIGS, build_small, layout_of

CHUNK_TOKENS = 8


class MemoryStore:
    """Chunks in memory: an old chunk brings nothing for a window that has passed, as files do."""

    def __init__(self, *, lose_chunk: int | None = None) -> None:
        self.lose_chunk = lose_chunk

    def __call__(
        self, source: KVBlocks, target: KVBlocks, *, num_tokens: int, rotate: bool, prompt: torch.Tensor
    ) -> None:
        starts = list(range(0, num_tokens - CHUNK_TOKENS + 1, CHUNK_TOKENS))
        for number, start in enumerate(starts):
            origin = starts[number - 1] if rotate else start
            if number != self.lose_chunk:
                self._copy(source, target, origin, start, CHUNK_TOKENS, num_tokens)
        rest = num_tokens % CHUNK_TOKENS
        self._copy(source, target, num_tokens - rest, num_tokens - rest, rest, num_tokens)
        target.state.copy_(source.state)

    def _copy(
        self, source: KVBlocks, target: KVBlocks, origin: int, place: int, count: int, num_tokens: int
    ) -> None:
        for plane in source.layout.planes:
            first = num_tokens - plane.tokens_kept(num_tokens)
            if place + count > first:
                chunk = source.plane(plane.layer, plane.role)[origin : origin + count]
                target.plane(plane.layer, plane.role)[place : place + count] = chunk


@pytest.mark.parametrize("name", CONFIGS)
def test_a_right_load_passes_and_rotated_chunks_fail(name: str) -> None:
    built = build_small(name)
    check = check_answer(built, layout_of(name, built), 22, store_and_load=MemoryStore())
    assert check.max_difference < 1e-4
    assert check.same_token
    assert check.control_difference > 20 * check.tolerance
    assert check.passed
    require_answer(check)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "deepseek_v3", "gemma3", "qwen3_next"])
def test_half_precision_stays_within_its_tolerance(name: str, dtype: torch.dtype) -> None:
    built = build_small(name, dtype=dtype)
    for seed in range(2):
        check = check_answer(built, layout_of(name, built), 22, store_and_load=MemoryStore(), seed=seed)
        assert check.passed, check


@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3", "gpt_oss"])
def test_a_chunk_that_never_arrives_is_seen(name: str) -> None:
    built = build_small(name)
    store = MemoryStore(lose_chunk=4)
    check = check_answer(built, layout_of(name, built), 22, store_and_load=store)
    assert not check.passed
    with pytest.raises(AnswerCheckError, match="differ from recompute by"):
        require_answer(check)


def test_weights_near_zero_make_the_check_blind_and_it_says_so() -> None:
    built = build_small("qwen3")
    for layer in built.model.model.layers:
        layer.self_attn.v_proj.weight.mul_(1e-7)
    check = check_answer(built, layout_of("qwen3", built), 22, store_and_load=MemoryStore())
    assert check.max_difference <= check.tolerance
    assert check.blind and not check.passed
    with pytest.raises(AnswerCheckError, match="the check sees nothing"):
        require_answer(check)


def test_one_prompts_own_chunks_may_be_permuted_unseen_which_is_why_two_are_stored() -> None:
    built = build_small("llama")
    blocks = KVBlocks(layout_of("llama", built), 33, torch.device("cpu"))
    rotated = KVBlocks(layout_of("llama", built), 33, torch.device("cpu"))
    prefill = prefill_over(built, blocks)
    tokens = draw_tokens(built, 33, seed=0)
    expected = prefill.forward(tokens)
    MemoryStore()(blocks, rotated, num_tokens=32, rotate=True, prompt=tokens[:, :32])
    logits = prefill_over(built, rotated).forward(tokens[:, 32:], 32)
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_a_prompt_within_one_chunk_leaves_nothing_to_rotate_and_the_check_is_blind() -> None:
    built = build_small("qwen3", layers=[0])
    check = check_answer(built, layout_of("qwen3", built), 4, store_and_load=MemoryStore())
    assert check.blind


CHUNK_TOKENS_HYBRID_ANSWER = 4
PROMPT_TOKENS = 4 * CHUNK_TOKENS_HYBRID_ANSWER + 1


def _from_memory(geometry: ChunkGeometry) -> LoadSeries:
    return LoadSeries("hostmem/best", LoadSpec(backend="hostmem"), geometry, in_flight=1)


@pytest.mark.parametrize(
    ("name", "preset"),
    [*((name, "best") for name in CONFIGS), ("gemma3", "lmcache"), ("qwen3", "lmcache-layerwise")],
)
def test_half_recomputed_and_half_loaded_gives_the_logits_of_recompute(
    name: str, preset: str, tmp_path: Path
) -> None:
    built = build_small(name)
    layout = layout_of(name, built)
    geometry = ChunkGeometry(
        layout, adapt_preset(find_preset(preset), chunk_tokens=CHUNK_TOKENS_HYBRID_ANSWER)
    )
    exchange = HybridExchange(
        tmp_path, geometry, _from_memory(geometry), now_s=time.monotonic, built=built, kv_dtype=torch.float32
    )
    check = check_answer(built, layout, PROMPT_TOKENS, store_and_load=exchange)
    assert check.max_difference < 1e-4
    assert check.same_token
    assert check.control_difference > 20 * check.tolerance
    assert check.passed
    assert exchange.load_fraction is not None
    assert 0 < exchange.load_fraction < 1


class OneChunkLess(HybridExchange):
    """Loads all that it was told to, and says that it had loaded the chunk before as well."""

    def _load_chunks(
        self, loader: ChunkLoader, target: KVBlocks, planned: Planned, *, prompt: torch.Tensor
    ) -> None:
        super()._load_chunks(loader, target, planned, prompt=prompt)
        first = planned.num_tokens - prompt.shape[1]
        for group in target.groups:
            group[:, first : first + CHUNK_TOKENS_HYBRID_ANSWER].fill_(0xA5)


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_a_piece_that_neither_side_brought_is_seen(name: str, tmp_path: Path) -> None:
    built = build_small(name)
    layout = layout_of(name, built)
    geometry = ChunkGeometry(
        layout, adapt_preset(find_preset("best"), chunk_tokens=CHUNK_TOKENS_HYBRID_ANSWER)
    )
    exchange = OneChunkLess(
        tmp_path, geometry, _from_memory(geometry), now_s=time.monotonic, built=built, kv_dtype=torch.float32
    )
    assert not check_answer(built, layout, PROMPT_TOKENS, store_and_load=exchange).passed
