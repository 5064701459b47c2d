"""The language model inside a multimodal configuration."""

from collections.abc import Mapping

from bench.catalog.fields import CatalogError

# model_type of a file with a text_config -> model_type of the text model when text_config does not say
WRAPPERS = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "kimi_k25": "kimi_k2",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
READ_OUTSIDE = frozenset({"text_config", "tie_word_embeddings", "vision_config"})


def find_text_fields(
    config: Mapping[str, object], place: str
) -> tuple[str, dict[str, object], dict[str, object] | None]:
    """model_type and fields of the language model; then those of the wrapper around it, None for none."""
    model_type = _model_type(config, place)
    text = config.get("text_config")
    if model_type not in WRAPPERS and text is None:
        return model_type, dict(config), None
    if model_type not in WRAPPERS:
        raise CatalogError(f"{place}: field model_type: {model_type!r:.60} around a text_config is unknown")
    if not isinstance(text, Mapping):
        raise CatalogError(f"{place}: field text_config: {model_type} needs it, as an object")
    inner = dict(text)
    if "tie_word_embeddings" not in inner and "tie_word_embeddings" in config:
        inner["tie_word_embeddings"] = config["tie_word_embeddings"]
    outer = {name: value for name, value in config.items() if name not in READ_OUTSIDE}
    return _model_type({"model_type": WRAPPERS[model_type], **inner}, place), inner, outer


def _model_type(config: Mapping[str, object], place: str) -> str:
    value = config.get("model_type")
    if not isinstance(value, str):
        raise CatalogError(f"{place}: field model_type: missing or not a word, so no counts")
    return value
