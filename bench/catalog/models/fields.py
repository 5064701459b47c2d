"""Strict reading of a model configuration: its text model, its fields, and refusal of unknown fields that may matter."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from kvio.errors import UserError

# words that say: what is kept per token, or the weights around it, may depend on me
RELEVANT = re.compile(
    r"""(?x) (?:^|_) (?:
    kv | cache | keys? | values? | attn | attention | heads? | layers? | window | sliding | latent | lora
    | rank | mla | indexer | index | topk | experts? | moe | ssm | mamba | conv | states? | linear | recurrent
    | recurrence | chunk | chunked | block | shared? | sharing | compress | compressed | compression
    | compressor | cross | sinks? | memory | hybrid | pattern | sparse | qk | qkv | nope | gqa | mqa | yoco
    | ngram | loops? | per | bidirectional | bias
    ) \d* (?:_|$)"""
)
# names with such a word that change neither the bytes nor the weights of the decoder
INERT = re.compile(
    r"""(?x)
    use_cache | cache_implementation | attention_dropout | attn_pdrop | attn_logit_softcapping
    | attn_implementation | attn_implementation_internal | attn_scale | attn_temperature_tuning
    | attention_multiplier | layerdrop | experts_implementation | output_attentions
    | layer_?norm_(?:eps|epsilon) | query_pre_attn_scalar | scale_attn_weights | sliding_window_size
    | norm_topk_prob | topk_group | topk_method | output_router_logits | experts_per_token
    | num_nextn_predict_layers | chunk_size_feed_forward
    | mamba_ssm_dtype | mamba_ssm_cache_dtype | use_mamba_kernels | mamba_chunk_size | chunk_size
    | moe_shared_expert_overlap | mm_tokens_per_image | no_rope_layers | no_rope_layer_interval
    | max_window_layers | dual_chunk_attention_config | index_skip_topk_offset | indexer_rope_interleave | ignore_index
    | (?:rope|quantization|boi|eoi|mm|projection|projector|time_step)_.* | .*_token_id | .*_act | .*_dtype
    | (?:.*_)?(?:vision|image|video|audio|mtp)(?:_.*)?
    """
)


def is_relevant(name: str) -> bool:
    """Whether an unread field of this name may change the KV cache or the weights."""
    bare = re.sub(r"\W+", "_", name.lower()).strip("_")
    return INERT.fullmatch(bare) is None and RELEVANT.search(bare) is not None


MAX_COUNT = 2**31  # a dimension above this is a typing error, and would only exhaust memory
MAX_LAYERS = 10_000
Entry = TypeVar("Entry")


class CatalogError(UserError, ValueError):
    """A file or name cannot be understood; one line with place and field."""


class Fields:
    """The fields of one configuration; remembers which were read, so that the rest can be judged.

    Args:
        place: file or table entry, for messages.
        defaults: what the architecture's class assumes for absent fields.
    """

    def __init__(
        self, values: Mapping[str, object], place: str, *, defaults: Mapping[str, object] | None = None
    ) -> None:
        self.place = place
        self._values = values
        self._defaults = dict(defaults or {})
        self._read: set[str] = set()

    def error(self, name: str, problem: str) -> CatalogError:
        """The error of one field."""
        return CatalogError(f"{self.place}: field {name}: {problem}")

    def raw(self, name: str) -> Any:  # noqa: ANN401  the outside may have put anything there
        """The value as it stands: null stays None, the class's default only fills in what is left out."""
        self._read.add(name)
        return self._values[name] if name in self._values else self._defaults.get(name)

    def optional_count(self, name: str, *, low: int = 1) -> int | None:
        """A whole number of at least `low`, or None."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"{value!r:.60} is not a whole number")
        if not low <= value <= MAX_COUNT:
            raise self.error(name, f"{value} is not between {low} and {MAX_COUNT}")
        return value

    def count(self, name: str, *, low: int = 1) -> int:
        """A whole number of at least `low`; its absence is an error."""
        value = self.optional_count(name, low=low)
        if value is None:
            raise self.error(name, "missing")
        return value

    def flag(self, name: str) -> bool:
        """True or false; false when left out without a default."""
        value = self.raw(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(name, f"{value!r:.60} is neither true nor false")
        return value

    def names(self, name: str, length: int) -> list[str] | None:
        """A list of `length` words, or None."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self.error(name, f"{value!r:.60} is not a list of words")
        return self._of_length(name, value, length)

    def indices(self, name: str, *, length: int | None = None) -> list[int] | None:
        """A list of whole numbers from 0, or None."""
        value = self.raw(name)
        if value is None:
            return None
        whole = isinstance(value, list) and all(type(entry) is int and entry >= 0 for entry in value)
        if not whole:
            raise self.error(name, f"{value!r:.60} is not a list of whole numbers from 0")
        return value if length is None else self._of_length(name, value, length)

    def require_understood(self) -> None:
        """Refuse unread fields whose name means that KV bytes may depend on them."""
        for name, value in self._values.items():
            if value and name not in self._read and is_relevant(name):
                raise self.error(
                    name,
                    f"{value!r:.60} is not understood and may change what is kept per token",
                )

    def _of_length(self, name: str, value: list[Entry], length: int) -> list[Entry]:
        if len(value) != length:
            raise self.error(name, f"{len(value)} entries for {length} layers")
        return value


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
