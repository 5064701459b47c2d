"""How many bytes one element of a KV cache takes.  The dtype of the weights never decides it."""

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
