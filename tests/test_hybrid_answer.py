"""The right answer after recompute from the front and loading from the back, through real files."""

import time
from pathlib import Path

import pytest
import torch

from bench.arms.logits_check import check_answer
from bench.measure.setup import LoadSeries
from bench.measure.worker.logits_checks import HybridExchange, Planned
from bench.record.plan import LoadSpec
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks
from kvio.loading.loader import ChunkLoader
from tests.architectures import CONFIGS, build_small, layout_of

CHUNK_TOKENS = 4
PROMPT_TOKENS = 4 * CHUNK_TOKENS + 1


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
    geometry = ChunkGeometry(layout, adapt_preset(find_preset(preset), chunk_tokens=CHUNK_TOKENS))
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

    def _bring(
        self, loader: ChunkLoader, target: KVBlocks, planned: Planned, *, prompt: torch.Tensor
    ) -> None:
        super()._bring(loader, target, planned, prompt=prompt)
        first = planned.num_tokens - prompt.shape[1]
        for group in target.groups:
            group[:, first : first + CHUNK_TOKENS].fill_(0xA5)


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_a_piece_that_neither_side_brought_is_seen(name: str, tmp_path: Path) -> None:
    built = build_small(name)
    layout = layout_of(name, built)
    geometry = ChunkGeometry(layout, adapt_preset(find_preset("best"), chunk_tokens=CHUNK_TOKENS))
    exchange = OneChunkLess(
        tmp_path, geometry, _from_memory(geometry), now_s=time.monotonic, built=built, kv_dtype=torch.float32
    )
    assert not check_answer(built, layout, PROMPT_TOKENS, store_and_load=exchange).passed
