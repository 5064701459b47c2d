"""Feed-forward blocks: dense, and mixtures of experts."""

from dataclasses import dataclass, replace

from bench.catalog.models.attention import Shape, weights


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Two matrices (up, down), or three when gated."""

    hidden_size: int
    intermediate_size: int
    gated: bool = True
    bias: bool = False

    @property
    def gemm_shapes(self) -> list[Shape]:
        """Up (and gate), then down."""
        up = (self.intermediate_size, self.hidden_size)
        return [up] * (2 if self.gated else 1) + [(self.hidden_size, self.intermediate_size)]

    def divided(self, num_ranks: int) -> "FeedForward":
        """What one of several ranks computes: its share of the inner width."""
        return replace(self, intermediate_size=-(-self.intermediate_size // num_ranks))

    @property
    def params(self) -> int:
        """Parameters of one block."""
        shapes = self.gemm_shapes
        return weights(shapes) + (sum(rows for rows, _ in shapes) if self.bias else 0)

    @property
    def params_active(self) -> int:
        """All of them: every token passes through every weight."""
        return self.params


@dataclass(frozen=True, slots=True)
class Experts:
    """A router, `num_experts` blocks of which each token takes `num_active`, and shared blocks."""

    hidden_size: int
    num_experts: int
    num_active: int
    expert: FeedForward  # one routed block
    shared: FeedForward | None = None  # the block that every token takes, None for none
    shared_gate: bool = False  # whether a learned gate of hidden_size weights scales the shared block
    # whether the router has one bias per expert (gpt-oss), or balances with one (DeepSeek-V3: e_score_correction_bias, a
    # buffer in transformers, but part of the checkpoint)
    router_bias: bool = False
    # width to which tokens are projected before the routed blocks (Nemotron 3), or None
    latent_size: int | None = None

    @property
    def gemm_shapes(self) -> list[Shape]:
        """What one token passes through: router, its experts, shared block and its gate."""
        shapes = [(self.num_experts, self.hidden_size)] + self.expert.gemm_shapes * self.num_active
        shapes += self._latent_shapes
        if self.shared is not None:
            shapes += self.shared.gemm_shapes
        return shapes + ([(1, self.hidden_size)] if self.shared_gate else [])

    def divided(self, num_ranks: int) -> "Experts":
        """What one of several ranks computes: its share of every expert's inner width."""
        shared = None if self.shared is None else self.shared.divided(num_ranks)
        return replace(self, expert=self.expert.divided(num_ranks), shared=shared)

    @property
    def params(self) -> int:
        """Parameters of one block, all experts."""
        return self._counted(self.num_experts)

    @property
    def params_active(self) -> int:
        """Parameters that one token uses."""
        return self._counted(self.num_active)

    @property
    def _latent_shapes(self) -> list[Shape]:
        if self.latent_size is None:
            return []
        return [(self.latent_size, self.hidden_size), (self.hidden_size, self.latent_size)]

    def _counted(self, experts: int) -> int:
        router = self.num_experts * (self.hidden_size + (1 if self.router_bias else 0))
        shared = 0 if self.shared is None else self.shared.params
        gate = self.hidden_size if self.shared_gate else 0
        return router + experts * self.expert.params + shared + gate + weights(self._latent_shapes)
