"""Bytes of one element of a KV cache, and the dtypes of KV and weights that a checkpoint declares.

The dtype of the weights never decides that of the KV.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.catalog.models.fields import CatalogError


@dataclass(frozen=True, slots=True)
class KVDtype:
    """One way to store KV."""

    name: str  # what users write
    element_bytes: int  # bytes of one element of K, V, latent or indexer key
    # bytes of one token's whole MLA entry in one layer when it is packed with its scales
    latent_bytes: int | None = None
    # elements of an indexer key that share one float32 scale; None for no scales
    indexer_scale_elements: int | None = None

    @property
    def state_bytes(self) -> int:
        """Bytes of one element of a convolution state, which keeps the activations' dtype: never 1 byte."""
        return max(2, self.element_bytes)


# fp8_e4m3 has one scale per tensor (vLLM --kv-cache-dtype fp8): none is kept per token.
# fp8_ds_mla packs 512 float8 + 4 float32 scales + 64 bfloat16 rope = 656 bytes per token and layer, and
# indexer keys with one float32 scale per 128 elements (vLLM fp8_ds_mla, FlashMLA README "FP8 KV cache").
KV_DTYPES = {
    dtype.name: dtype
    for dtype in (
        KVDtype("bfloat16", 2),
        KVDtype("float16", 2),
        KVDtype("float32", 4),
        KVDtype("fp8_e4m3", 1),
        KVDtype("fp8_e5m2", 1),
        KVDtype("fp8_ds_mla", 1, latent_bytes=656, indexer_scale_elements=128),
    )
}
ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}
PACKED_LATENT = (512, 64)  # kv_lora_rank and qk_rope_head_dim for which latent_bytes is defined


def read_kv_dtype(name: str) -> KVDtype:
    """The KV dtype of that name.

    Raises:
        CatalogError: there is none.
    """
    dtype = KV_DTYPES.get(ALIASES.get(name, name))
    if dtype is None:
        raise CatalogError(f"KV dtype {name!r} is unknown; known: {', '.join([*KV_DTYPES, *ALIASES])}")
    return dtype


def find_declared_kv_dtype(quantization: Mapping[str, object], place: str) -> str | None:
    """The KV dtype in a checkpoint's quantization_config, as engines use it; None without one.

    Sources: compressed-tensors and modelopt kv_cache_scheme, modelopt kv_cache_quant_algo, quark
    kv_cache_quant_config, as vLLM reads them under --kv-cache-dtype auto.

    Raises:
        CatalogError: a declaration of something else than float8.
    """
    nested = quantization.get("quantization")
    declared = {**(nested if isinstance(nested, Mapping) else {}), **quantization}
    scheme, algorithm = declared.get("kv_cache_scheme"), declared.get("kv_cache_quant_algo")
    outputs = declared.get("kv_cache_quant_config")
    found = []
    if scheme:
        known = isinstance(scheme, Mapping) and scheme.get("num_bits") == 8 and scheme.get("type") == "float"
        found.append(("kv_cache_scheme", scheme, known))
    if algorithm:
        found.append(("kv_cache_quant_algo", algorithm, str(algorithm).lower() in {"fp8", "fp8_e4m3"}))
    if outputs:
        known = isinstance(outputs, Mapping) and all("fp8" in str(one) for one in outputs.values())
        found.append(("kv_cache_quant_config", outputs, known))
    for name, value, known in found:
        if not known:
            raise CatalogError(f"{place}: field quantization_config: {name}: {value!r:.60} is not understood")
    return "fp8" if found else None


def find_declared_weight_dtype(quantization: Mapping[str, object]) -> str | None:
    """The dtype of quantized weights in a quantization_config, never the name of its container; None if unknown."""
    method = str(quantization.get("quant_method", "")).lower()
    nested = quantization.get("quantization")
    algorithm = quantization.get(
        "quant_algo", nested.get("quant_algo") if isinstance(nested, Mapping) else ""
    )
    if method in {"fp8", "fbgemm_fp8"} or (method == "modelopt" and str(algorithm).upper().startswith("FP8")):
        return "fp8"
    if method in {"awq", "gptq"}:
        return f"int{quantization['bits']}" if isinstance(quantization.get("bits"), int) else None
    if method == "bitsandbytes":
        return (
            "int8"
            if quantization.get("load_in_8bit")
            else "int4"
            if quantization.get("load_in_4bit")
            else None
        )
    if method == "compressed-tensors":
        return _compressed_dtype(quantization.get("config_groups"))
    return "mxfp4" if method == "mxfp4" else None


def _compressed_dtype(groups: object) -> str | None:
    """The one dtype of all groups of compressed-tensors weights; None without one."""
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    names = {f"{'fp' if one.get('type') == 'float' else 'int'}{one.get('num_bits')}" for one in weights}
    return names.pop() if len(names) == 1 else None
