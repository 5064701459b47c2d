"""Attention blocks that keep a state of fixed size in place of something per token."""

from dataclasses import dataclass

from bench.catalog.models.attention import Shape, weights
from bench.catalog.models.kv_dtype import KVDtype

RECURRENT_BYTES = 4  # recurrent states are kept in float32 (transformers mamba_ssm_dtype, vLLM "auto")


def _share(heads: int, ranks: int) -> int:
    """Heads on the fullest rank."""
    return -(-heads // ranks)


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """Gated DeltaNet (Qwen3-Next): per value head a matrix of key_dim x value_dim, and a short convolution.

    Source: transformers modeling_qwen3_next (Qwen3NextGatedDeltaNet).
    """

    hidden_size: int
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_tokens: int

    @property
    def gemm_shapes(self) -> list[Shape]:
        """Projections to Q, K, V and the gate, to the two rates, and the output."""
        keys, values = self.num_key_heads * self.key_dim, self.num_value_heads * self.value_dim
        return [
            (2 * keys + 2 * values, self.hidden_size),
            (2 * self.num_value_heads, self.hidden_size),
            (self.hidden_size, values),
        ]

    @property
    def params(self) -> int:
        """Parameters of one layer: matrices, convolution, decay and step rates, norm."""
        return (
            weights(self.gemm_shapes)
            + self._channels(1) * self.conv_tokens
            + 2 * self.num_value_heads
            + self.value_dim
        )

    @property
    def token_flops(self) -> int:
        """Operations on the state per token in recurrent form: decay 1, recall 2, update 2, read-out 2."""
        return 7 * self.num_value_heads * self.key_dim * self.value_dim

    def state_bytes(self, dtype: KVDtype, tensor_parallel: int) -> int:
        """Bytes of one layer's state on the fullest rank: float32 matrices, conv_tokens - 1 inputs."""
        recurrent = _share(self.num_value_heads, tensor_parallel) * self.key_dim * self.value_dim
        conv = self._channels(tensor_parallel) * (self.conv_tokens - 1)
        return recurrent * RECURRENT_BYTES + conv * dtype.state_bytes

    def _channels(self, tensor_parallel: int) -> int:
        keys = _share(self.num_key_heads, tensor_parallel) * self.key_dim
        return 2 * keys + _share(self.num_value_heads, tensor_parallel) * self.value_dim


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Mamba-2 mixer (Nemotron-H): per head a matrix of head_dim x state_size, and a short convolution.

    Source: transformers modeling_nemotron_h (NemotronHMamba2Mixer).
    """

    hidden_size: int
    num_heads: int
    head_dim: int
    num_groups: int
    state_size: int
    conv_tokens: int
    conv_bias: bool = True
    bias: bool = False

    @property
    def gemm_shapes(self) -> list[Shape]:
        """Projection to gate, convolution input and time steps, and the output."""
        inner = self.num_heads * self.head_dim
        return [(inner + self._channels(1) + self.num_heads, self.hidden_size), (self.hidden_size, inner)]

    @property
    def params(self) -> int:
        """Parameters of one layer: matrices, biases, convolution, A, D and time-step biases, norm."""
        shapes = self.gemm_shapes
        biases = sum(rows for rows, _ in shapes) if self.bias else 0
        conv = self._channels(1) * (self.conv_tokens + (1 if self.conv_bias else 0))
        return weights(shapes) + biases + conv + 3 * self.num_heads + self.num_heads * self.head_dim

    @property
    def token_flops(self) -> int:
        """Operations on the state per token in recurrent form: decay 1, update 2, read-out 2."""
        return 5 * self.num_heads * self.head_dim * self.state_size

    def state_bytes(self, dtype: KVDtype, tensor_parallel: int) -> int:
        """Bytes of one layer's state on the fullest rank: float32 matrices, conv_tokens - 1 inputs."""
        recurrent = _share(self.num_heads, tensor_parallel) * self.head_dim * self.state_size
        conv = self._channels(tensor_parallel) * (self.conv_tokens - 1)
        return recurrent * RECURRENT_BYTES + conv * dtype.state_bytes

    def _channels(self, tensor_parallel: int) -> int:
        inner = _share(self.num_heads, tensor_parallel) * self.head_dim
        return inner + 2 * _share(self.num_groups, tensor_parallel) * self.state_size
