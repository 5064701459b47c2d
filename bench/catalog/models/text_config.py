"""The language model inside a multimodal configuration."""

from collections.abc import Mapping

from bench.catalog.models.fields import CatalogError

# model_type of a file with a text_config -> model_type of the text model when text_config does not say
WRAPPERS = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "kimi_k25": "kimi_k2",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "cohere2_vision": "cohere2",
}
FLAT = frozenset({"qwen2_vl", "qwen2_5_vl"})  # whose public files have the text model's fields outside
READ_OUTSIDE = frozenset({"text_config", "tie_word_embeddings", "vision_config"})
ROTARY = ("rope_scaling", "rope_parameters")


def find_text_fields(
    config: Mapping[str, object], place: str
) -> tuple[str, dict[str, object], dict[str, object] | None]:
    """model_type and fields of the language model; then those of the wrapper around it, None for none."""
    model_type = _model_type(config, place)
    text = config.get("text_config")
    if model_type in FLAT and text is None:
        inner = {name: value for name, value in config.items() if name != "vision_config"}
        return WRAPPERS[model_type], _of_text_alone(inner), None
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
    found = _model_type({"model_type": WRAPPERS[model_type], **inner}, place)
    return found, _of_text_alone(inner) if model_type in FLAT else inner, outer


def _of_text_alone(fields: dict[str, object]) -> dict[str, object]:
    """The fields with plain rotary positions: text has the same position in all three sections of mrope."""
    found = dict(fields)
    for name in ROTARY:
        rotary = found.get(name)
        if isinstance(rotary, Mapping) and ("mrope_section" in rotary or "mrope" in rotary.values()):
            kept = {key: value for key, value in rotary.items() if key != "mrope_section"}
            found[name] = {key: "default" if value == "mrope" else value for key, value in kept.items()}
    return found


def _model_type(config: Mapping[str, object], place: str) -> str:
    value = config.get("model_type")
    if not isinstance(value, str):
        raise CatalogError(f"{place}: field model_type: missing or not a word, so no counts")
    return value
