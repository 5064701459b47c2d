"""The counts against the model classes themselves."""

import warnings

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from bench.arms.model.build import build_model
from bench.arms.prefill import draw_tokens, prefill_over
from bench.catalog.models.architectures import ARCHITECTURES
from bench.catalog.models.resolve import Model, describe_config, read_catalogue
from kvio.loading.blocks import KVBlocks
from tests.helpers.tiny_configs import TINY_CONFIGS

NUM_TOKENS = 40


def _checkpoint_elements(model: PreTrainedModel) -> int:
    """Parameters, and the balancing biases of routers: buffers in transformers, part of checkpoints."""
    buffers = (buffer for name, buffer in model.named_buffers() if "e_score_correction_bias" in name)
    return sum(tensor.numel() for tensor in (*model.parameters(), *buffers))


def _tiny(model_type: str) -> Model:
    config = {"model_type": model_type, **TINY_CONFIGS[model_type]}
    return describe_config(config, "config.json", key="tiny", name="tiny", source="test")


def _build(model: Model) -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(**model.config))


@pytest.mark.parametrize("key", read_catalogue())
def test_parameters_of_a_catalogue_entry_are_those_of_the_model_that_it_builds(key: str) -> None:
    model = read_catalogue()[key]
    with torch.device("meta"):
        built = _build(model)
    assert _checkpoint_elements(built) == model.geometry.params_total


@pytest.mark.parametrize("model_type", TINY_CONFIGS)
def test_parameters_and_cache_of_an_architecture_are_those_of_a_model_that_ran(model_type: str) -> None:
    model = _tiny(model_type)
    built = _build(model).to(torch.float32)
    assert _checkpoint_elements(built) == model.geometry.params_total
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = built(torch.arange(3, 3 + NUM_TOKENS)[None], use_cache=True)
    layout = model.geometry.layout("float32")
    # transformers keeps window - 1 tokens of a full window: the next one makes it whole
    spare = sum(
        plane.token_bytes
        for plane in layout.planes
        if plane.window_tokens and plane.window_tokens <= NUM_TOKENS
    )
    kept = sum(
        tensor.nbytes
        for layer in output.past_key_values.layers
        for name in ("keys", "values", "indexer_keys")
        if isinstance(tensor := getattr(layer, name, None), torch.Tensor)
    )
    assert kept == layout.bytes_at(NUM_TOKENS) - layout.state_bytes - spare


@pytest.mark.parametrize("model_type", TINY_CONFIGS)
def test_a_configuration_saved_by_transformers_is_read_back_alike(model_type: str) -> None:
    model = _tiny(model_type)
    saved = AutoConfig.for_model(**model.config).to_dict()
    for name in ("rope_scaling", "rope_parameters"):  # the class's YaRN would lengthen a tiny context
        saved.pop(name, None)
    again = describe_config(saved, "config.json", key="tiny", name="tiny", source="test")
    assert again.geometry == model.geometry


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_defaults_are_those_of_the_class(model_type: str) -> None:
    architecture = ARCHITECTURES[model_type]
    saved = AutoConfig.for_model(architecture.builds)
    for name, value in architecture.defaults.items():
        if hasattr(type(saved), name):
            assert getattr(type(saved), name) == value, name
    assert getattr(type(saved), "tie_word_embeddings", False) == architecture.defaults.get(
        "tie_word_embeddings", False
    )


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
