"""Dimensions of one model, and the counts that derive from them: KV bytes, parameters, FLOPs.

How many query-key pairs causal attention looks at: exact sums over positions.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from bench.catalog.models.attention import GroupedAttention, LatentAttention, Shape
from bench.catalog.models.feedforward import Experts, FeedForward
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.kv_dtype import read_kv_dtype
from bench.catalog.models.linear_attention import GatedDelta, Mamba2
from kvio.layout.planes import KVLayout, Plane


def full_pairs(num_tokens: int, past_tokens: int) -> int:
    """Pairs when each of `num_tokens` tokens attends to itself and to all before it."""
    return num_tokens * past_tokens + num_tokens * (num_tokens + 1) // 2


def window_pairs(num_tokens: int, past_tokens: int, window_tokens: int) -> int:
    """Pairs when each token attends to the last `window_tokens`, itself included."""
    growing = min(max(window_tokens - past_tokens, 0), num_tokens)
    return full_pairs(growing, past_tokens) + (num_tokens - growing) * window_tokens


def chunk_pairs(num_tokens: int, past_tokens: int, chunk_tokens: int) -> int:
    """Pairs when each token attends to those before it in its own chunk (Llama 4)."""

    def until(position: int) -> int:
        chunks, rest = divmod(position, chunk_tokens)
        return chunks * full_pairs(chunk_tokens, 0) + full_pairs(rest, 0)

    return until(past_tokens + num_tokens) - until(past_tokens)


AttentionKind = Literal["full", "sliding", "chunked", "linear", "none"]
Family = Literal["mha", "gqa", "mla", "sliding", "hybrid-linear"]
WINDOWED = ("sliding", "chunked")


@dataclass(frozen=True, slots=True)
class LayerKind:
    """One decoder layer: how it attends and whether its feed-forward is a mixture of experts.

    `feed_forward` is False where a layer is an attention or a state alone (Nemotron-H); `own_indexer` is
    False where a layer attends to the tokens that an earlier layer's indexer picked (GLM-5.2).
    """

    attention: AttentionKind
    moe: bool = False
    feed_forward: bool = True
    own_indexer: bool = True


@dataclass(frozen=True, slots=True)
class Geometry:
    """Dimensions of one model; every byte, parameter and operation derives from them."""

    hidden_size: int
    vocab_size: int
    max_position_embeddings: int | None
    tie_word_embeddings: bool
    layers: tuple[LayerKind, ...]  # kind of each layer, first to last
    attention: GroupedAttention | LatentAttention  # the block of layers that attend to tokens
    # dense, experts: the feed-forward of layers with moe False and True, None when there are none
    dense: FeedForward | None
    experts: Experts | None = None
    linear: GatedDelta | Mamba2 | None = None  # the block of "linear" layers, None when there are none
    window_tokens: int | None = None  # tokens that "sliding" and "chunked" layers keep
    layer_norm_params: int = 0  # parameters of the norms around the blocks of one layer
    other_params: int = 0  # position embeddings, final norm, bias of the output head

    @property
    def family(self) -> Family:
        """What sets its KV apart: "sliding" for windows and chunks, "hybrid-linear" for states."""
        kinds = {layer.attention for layer in self.layers}
        if "linear" in kinds:
            return "hybrid-linear"
        if kinds & set(WINDOWED):
            return "sliding"
        if isinstance(self.attention, LatentAttention):
            return "mla"
        return "mha" if self.attention.num_kv_heads == self.attention.num_heads else "gqa"

    def with_full_attention(self) -> "Geometry":
        """The same model with full attention in place of windows and chunks."""
        if not {kind.attention for kind in self.layers} & set(WINDOWED):
            return self
        layers = tuple(
            replace(kind, attention="full") if kind.attention in WINDOWED else kind for kind in self.layers
        )
        return replace(self, layers=layers, window_tokens=None)

    def layout(self, kv_dtype: str, tensor_parallel: int = 1) -> KVLayout:
        """What the fullest tensor-parallel rank keeps.

        Windows are kept whole: an engine may drop a token more (transformers keeps window - 1, and the
        next token makes it whole) or, in chunked layers, the chunks already finished.

        Raises:
            CatalogError: the dtype is unknown or of MLA alone, or heads cannot be divided among the ranks.
        """
        dtype = read_kv_dtype(kv_dtype)
        if dtype.latent_bytes is not None and not isinstance(self.attention, LatentAttention):
            raise CatalogError(
                f"KV dtype {dtype.name} packs the latents of MLA, and this model has none; try fp8"
            )
        self.require_divisible(tensor_parallel)
        planes: list[Plane] = []
        state_bytes = 0
        for number, kind in enumerate(self.layers):
            if kind.attention == "linear":
                state_bytes += self._linear().state_bytes(dtype, tensor_parallel)
            elif kind.attention != "none":
                window = self.window_tokens if kind.attention in WINDOWED else None
                block = self._attention(kind)
                planes += block.planes(number, window, dtype=dtype, tensor_parallel=tensor_parallel)
        return KVLayout(tuple(planes), state_bytes)

    def require_divisible(self, num_ranks: int) -> None:
        """Stop on tensor-parallel ranks that no engine could give whole heads.

        Raises:
            CatalogError: no rank, more ranks than heads, or heads that the ranks do not divide.
        """
        heads = self.attention.num_heads
        if not 1 <= num_ranks <= heads:
            raise CatalogError(
                f"tensor parallelism {num_ranks} is not between 1 and the {heads} attention heads"
            )
        shared = getattr(self.attention, "num_kv_heads", None)  # MLA has none, every rank keeps its latents

        def divides(ranks: int) -> bool:
            return heads % ranks == 0 and (shared is None or shared % ranks == 0 or ranks % shared == 0)

        if not divides(num_ranks):
            fitting = ", ".join(str(ranks) for ranks in range(1, heads + 1) if divides(ranks))
            of_kv = "" if shared is None else f" ({shared} of K and V)"
            raise CatalogError(
                f"{heads} attention heads{of_kv} cannot be divided among {num_ranks} ranks; {fitting} can"
            )

    def mha_formula_bytes_per_token(self, kv_dtype: str) -> int:
        """What the formula for plain multi-head attention gives: 2 L H D elements, all layers alike.

        It is right for MHA alone: it knows no shared heads, no latents, no windows and no states.
        """
        return len(self.layers) * self.attention.mha_elements * read_kv_dtype(kv_dtype).element_bytes

    @property
    def params_total(self) -> int:
        """Elements of the language model's checkpoint: a tied output head once, no draft (MTP) layers."""
        return self._params(active=False)

    @property
    def params_active(self) -> int:
        """Parameters of one token's pass: experts not taken left out, embeddings counted whole."""
        return self._params(active=True)

    def layer_params(self, kind: LayerKind, *, active: bool) -> int:
        """Parameters of one layer of that kind, norms and biases included."""
        params = self.layer_norm_params
        if kind.attention == "linear":
            params += self._linear().params
        elif kind.attention != "none":
            params += self._attention(kind).params
        block = self._feed_forward(kind)
        if block is not None:
            params += block.params_active if active else block.params
        return params

    @property
    def prefill_gemm_flops_per_token(self) -> int:
        """Operations per token in all layers, attention over pairs and output head left out.

        2 for each parameter that the token uses in the layers; norms and biases, below 0.1 %, count alike.
        """
        return 2 * sum(self.layer_params(kind, active=True) for kind in self.layers)

    @property
    def attention_flops_per_token_pair(self) -> int:
        """Operations for one query-key pair that every attending layer sees: full and windowed layers."""
        return self.attention_flops_per_token_pair_full + self.attention_flops_per_token_pair_window

    @property
    def attention_flops_per_token_pair_full(self) -> int:
        """The share of the layers that attend to everything; the indexer's scores are not in it."""
        return self.attention.pair_flops * sum(kind.attention == "full" for kind in self.layers)

    @property
    def attention_flops_per_token_pair_window(self) -> int:
        """The share of the layers that attend to a window or chunk."""
        return self.attention.pair_flops * sum(kind.attention in WINDOWED for kind in self.layers)

    def gemm_shapes(self, kind: LayerKind, tensor_parallel: int = 1) -> list[Shape]:
        """(out_features, in_features) of every matrix that one token passes in one layer of that kind, on one rank.

        Linear attention is not divided.
        """
        shapes: list[Shape] = []
        if kind.attention == "linear":
            shapes += self._linear().gemm_shapes
        elif kind.attention != "none":
            shapes += self._attention(kind).divided(tensor_parallel).gemm_shapes
        block = self._feed_forward(kind)
        return shapes + ([] if block is None else block.divided(tensor_parallel).gemm_shapes)

    def layer_flops(self, kind: LayerKind, num_tokens: int, *, past_tokens: int = 0) -> int:
        """Operations of one layer for `num_tokens` tokens after `past_tokens` whose KV is in place."""
        gemm = 2 * self.layer_params(kind, active=True) * num_tokens
        if kind.attention == "linear":
            return gemm + self._linear().token_flops * num_tokens
        return gemm + self._pair_flops(kind, num_tokens, past_tokens)

    def prefill_flops(self, num_tokens: int, past_tokens: int = 0) -> int:
        """Operations to prefill `num_tokens` tokens and to get the logits of the last.

        sum over layers of (2 x active parameters x tokens + pair cost x pairs) + 2 x hidden_size x
        vocab_size, where pairs is the exact causal sum over positions, windows and chunks respected, and
        linear layers cost their recurrent form per token.  Left out: softmax, activations, rotary
        embedding, routing.
        """
        layers = Counter(self.layers)
        total = sum(
            count * self.layer_flops(kind, num_tokens, past_tokens=past_tokens)
            for kind, count in layers.items()
        )
        return total + 2 * self.hidden_size * self.vocab_size

    def _pair_flops(self, kind: LayerKind, num_tokens: int, past_tokens: int) -> int:
        if kind.attention == "none":
            return 0
        per_pair = self.attention.pair_flops
        if kind.attention == "sliding":
            return per_pair * window_pairs(num_tokens, past_tokens, self.window_tokens or 0)
        if kind.attention == "chunked":
            return per_pair * chunk_pairs(num_tokens, past_tokens, self.window_tokens or 0)
        pairs = full_pairs(num_tokens, past_tokens)
        if isinstance(self.attention, LatentAttention) and self.attention.indexer is not None:
            index = self.attention.indexer
            picked = window_pairs(num_tokens, past_tokens, index.top_tokens)
            return per_pair * picked + (index.pair_flops * pairs if kind.own_indexer else 0)
        return per_pair * pairs

    def _params(self, *, active: bool) -> int:
        embedding = self.vocab_size * self.hidden_size
        edges = embedding * (1 if self.tie_word_embeddings else 2) + self.other_params
        return edges + sum(self.layer_params(kind, active=active) for kind in self.layers)

    def _attention(self, kind: LayerKind) -> GroupedAttention | LatentAttention:
        if kind.own_indexer or not isinstance(self.attention, LatentAttention):
            return self.attention
        return replace(self.attention, indexer=None)

    def _feed_forward(self, kind: LayerKind) -> FeedForward | Experts | None:
        if not kind.feed_forward:
            return None
        return self.experts if kind.moe else self.dense

    def _linear(self) -> GatedDelta | Mamba2:
        if self.linear is None:
            raise CatalogError("a linear layer without the dimensions of its state")
        return self.linear
