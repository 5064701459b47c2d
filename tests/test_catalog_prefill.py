"""What the catalogue counts of an architecture is where a model of it really keeps its KV."""

import pytest
import torch

from bench.arms.model.build import build_model
from bench.arms.prefill import draw_tokens, prefill_over
from bench.catalog.models.resolve import describe_config
from kvio.loading.blocks import KVBlocks
from tests.tiny_configs import TINY_CONFIGS

CPU = torch.device("cpu")
BUILT = ("ministral", "qwen2_vl_text", "nemotron", "exaone4", "hunyuan_v1_dense", "internlm3", "ernie4_5")


@pytest.mark.parametrize("model_type", BUILT)
def test_a_prefill_into_blocks_of_the_counted_layout_gives_the_librarys_logits(model_type: str) -> None:
    config = {"model_type": model_type, **TINY_CONFIGS[model_type]}
    model = describe_config(config, "config.json", key="tiny", name="tiny", source="test")
    built = build_model(model.config, dtype=torch.float32, device=CPU)
    blocks = KVBlocks(model.geometry.layout("float32"), 40, CPU)
    blocks.poison()
    tokens = draw_tokens(built, 33, seed=1)
    with torch.inference_mode():
        expected = built.model(input_ids=tokens, use_cache=False).logits[0, -1]
    prefill = prefill_over(built, blocks)
    prefill.forward(tokens[:, :32])
    torch.testing.assert_close(prefill.forward(tokens[:, 32:], 32), expected, atol=5e-5, rtol=1e-4)
