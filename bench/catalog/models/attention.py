"""Attention blocks that keep something per token: grouped heads (MHA, GQA, MQA), and latents (MLA)."""

from dataclasses import dataclass, replace

from bench.catalog.models.fields import CatalogError
from bench.catalog.models.kv_dtype import PACKED_LATENT, KVDtype
from kvio.layout.planes import Plane

Shape = tuple[int, int]  # (out_features, in_features) of one matrix multiplication


def weights(shapes: list[Shape]) -> int:
    """Elements of all matrices."""
    return sum(rows * columns for rows, columns in shapes)


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """MHA, GQA and MQA.

    Trap: head_dim is a field of its own; hidden_size / num_heads is wrong for Qwen3, Gemma and gpt-oss.
    """

    # hidden_size, num_heads, num_kv_heads, head_dim: as in the configuration
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    # qkv_bias, output_bias: whether the projections have biases
    qkv_bias: bool = False
    output_bias: bool = False
    output_gate: bool = False  # the query projection also gives a gate of equal size (Qwen3-Next)
    other_params: int = 0  # norms of queries and keys, sinks

    @property
    def gemm_shapes(self) -> list[Shape]:
        """Q, K, V and output projections."""
        query = self.num_heads * self.head_dim
        key = self.num_kv_heads * self.head_dim
        gated = query * (2 if self.output_gate else 1)
        inputs = [(width, self.hidden_size) for width in (gated, key, key)]
        return [*inputs, (self.hidden_size, query)]

    def divided(self, num_ranks: int) -> "GroupedAttention":
        """What one of several ranks computes: its share of the heads, never less than one K and V head."""
        return replace(
            self,
            num_heads=self.num_heads // num_ranks,
            num_kv_heads=-(-self.num_kv_heads // num_ranks),
        )

    @property
    def params(self) -> int:
        """Parameters of one layer's attention."""
        shapes = self.gemm_shapes
        biases = sum(rows for rows, _ in shapes[:-1]) if self.qkv_bias else 0
        return weights(shapes) + biases + (self.hidden_size if self.output_bias else 0) + self.other_params

    @property
    def pair_flops(self) -> int:
        """Operations for one query-key pair in one layer: scores and weighted values, 2 each per element."""
        return 4 * self.num_heads * self.head_dim

    @property
    def mha_elements(self) -> int:
        """Elements of one token in one layer if every query head kept a K and a V of its own: 2 H D."""
        return 2 * self.num_heads * self.head_dim

    def planes(
        self, layer: int, window_tokens: int | None, *, dtype: KVDtype, tensor_parallel: int
    ) -> tuple[Plane, ...]:
        """K and V of one layer on the fullest rank.

        Heads are divided among the ranks; above num_kv_heads ranks each still needs one whole head, so
        that heads are replicated and the bytes no longer shrink.
        """
        heads = self.divided(tensor_parallel).num_kv_heads
        token_bytes = heads * self.head_dim * dtype.element_bytes
        return tuple(Plane(layer, role, token_bytes, window_tokens) for role in ("k", "v"))


@dataclass(frozen=True, slots=True)
class Indexer:
    """The small attention that picks the tokens which the large one looks at (DeepSeek Sparse Attention)."""

    # num_heads, head_dim: of its queries; it keeps one key of head_dim per token
    num_heads: int
    head_dim: int
    top_tokens: int  # tokens that each query may attend to

    @property
    def pair_flops(self) -> int:
        """Operations to score one query-key pair in one layer."""
        return 2 * self.num_heads * self.head_dim

    def token_bytes(self, dtype: KVDtype) -> int:
        """Bytes of one token's indexer key with its scales in one layer; every rank keeps all of it."""
        per_scale = dtype.indexer_scale_elements
        scales = 0 if per_scale is None else -(-self.head_dim // per_scale) * 4
        return self.head_dim * dtype.element_bytes + scales


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """MLA: one latent and one rotary key per token and layer, shared by all heads.

    Trap: tensor parallelism divides the heads but not the latent; every rank keeps all of it.

    Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; DeepSeek-V3.2 for the indexer.
    """

    hidden_size: int
    num_heads: int
    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    bias: bool = False
    indexer: Indexer | None = None

    @property
    def gemm_shapes(self) -> list[Shape]:
        """All projections of one layer, those of the indexer last."""
        heads, hidden = self.num_heads, self.hidden_size
        query = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        shapes = [(query, hidden)]
        if self.q_lora_rank is not None:
            shapes = [(self.q_lora_rank, hidden), (query, self.q_lora_rank)]
        shapes += [
            (self.kv_lora_rank + self.qk_rope_head_dim, hidden),
            (heads * (self.qk_nope_head_dim + self.v_head_dim), self.kv_lora_rank),
            (hidden, heads * self.v_head_dim),
        ]
        if self.indexer is not None:
            index = self.indexer
            shapes += [
                (index.num_heads * index.head_dim, self.q_lora_rank or hidden),
                (index.head_dim, hidden),
                (index.num_heads, hidden),
            ]
        return shapes

    def divided(self, num_ranks: int) -> "LatentAttention":
        """What one of several ranks computes: its share of the heads, and every latent."""
        return replace(self, num_heads=self.num_heads // num_ranks)

    @property
    def params(self) -> int:
        """Parameters of one layer's attention: matrices, biases, norms of the latents and of indexer keys."""
        norms = self.kv_lora_rank + (self.q_lora_rank or 0)
        biases = (self.q_lora_rank or 0) + self.kv_lora_rank + self.qk_rope_head_dim + self.hidden_size
        index_norm = 0 if self.indexer is None else 2 * self.indexer.head_dim
        return weights(self.gemm_shapes) + norms + (biases if self.bias else 0) + index_norm

    @property
    def pair_flops(self) -> int:
        """Operations for one query-key pair in one layer, with K and V expanded as prefill does."""
        return 2 * self.num_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim)

    @property
    def mha_elements(self) -> int:
        """Elements of one token in one layer if every head kept a K and a V of its own: 2 H D.

        D is qk_nope_head_dim for K and v_head_dim for V; the rotary part, which all heads share, is not in it.
        Source: DeepSeek-V2 (arXiv 2405.04434), table 1, "2 n_h d_h l".
        """
        return self.num_heads * (self.qk_nope_head_dim + self.v_head_dim)

    def planes(
        self, layer: int, window_tokens: int | None, *, dtype: KVDtype, tensor_parallel: int
    ) -> tuple[Plane, ...]:
        """Latent, rotary key and indexer key of one layer, the same on each of the ranks."""
        found = self._packed(layer, window_tokens, dtype) or (
            Plane(layer, "latent", self.kv_lora_rank * dtype.element_bytes, window_tokens),
            Plane(layer, "rope", self.qk_rope_head_dim * dtype.element_bytes, window_tokens),
        )
        if self.indexer is None:
            return found
        return (*found, Plane(layer, "indexer", self.indexer.token_bytes(dtype), window_tokens))

    def _packed(self, layer: int, window_tokens: int | None, dtype: KVDtype) -> tuple[Plane, ...]:
        if dtype.latent_bytes is None:
            return ()
        if (self.kv_lora_rank, self.qk_rope_head_dim) != PACKED_LATENT:
            raise CatalogError(
                f"KV dtype {dtype.name} is defined for kv_lora_rank 512 and qk_rope_head_dim 64,"
                f" not {self.kv_lora_rank} and {self.qk_rope_head_dim}"
            )
        return (Plane(layer, "latent", dtype.latent_bytes, window_tokens),)
