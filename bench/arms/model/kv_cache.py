"""The library's cache, laid over KV blocks: a forward writes where a load would."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, LinearAttentionLayer, get_layer_types_and_kwargs

from bench.arms.model.build import UnsupportedArchitectureError
from bench.arms.model.weights import fill_normal
from kvio.layout.planes import KVLayout, Plane, Role
from kvio.loading.blocks import KVBlocks


class CacheMismatchError(Exception):
    """The layout has other bytes than the model keeps: a load would be wrong."""


class CapacityError(Exception):
    """More tokens than the blocks have room for."""


class BlockLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """K and V (or MLA's latent and rope) of one layer, views of its planes.

    A forward of q tokens after p copies its new keys and values to tokens p..p+q of the planes and attends
    to the front part: nothing is concatenated, and nothing copied twice.  Windowed planes are indexed by
    token too; the views begin where the window of the first new token begins.

    Args:
        blocks: the memory. layer: index of the layer in the blocks' layout. planes: those that the library
        calls keys and values. kv_dtype: dtype of the planes' elements; where it is not the model's,
        attention reads a converted copy. first_slot: the model's token 0 lies at this token of the blocks.
    """

    supports_early_init = False

    def __init__(
        self,
        blocks: KVBlocks,
        layer: int,
        *,
        planes: tuple[Plane, Plane],
        kv_dtype: torch.dtype,
        first_slot: int = 0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.window_tokens = planes[0].window_tokens
        self.is_sliding = self.window_tokens is not None
        self.past_tokens = 0
        self._layer = layer
        self._roles = (planes[0].role, planes[1].role)
        self.planes = tuple(blocks.plane(layer, role)[first_slot:].view(kv_dtype) for role in self._roles)
        self._capacity_tokens = blocks.capacity_tokens - first_slot

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the blocks are there."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new states (1, H, q, D) in place; return those attended to, (1, H, first..p+q, D)."""
        end = self.past_tokens + key_states.shape[2]
        if end > self._capacity_tokens:
            raise CapacityError(f"{end} tokens do not fit in blocks for {self._capacity_tokens}")
        return self._write(0, key_states), self._write(1, value_states)

    def _write(self, number: int, states: torch.Tensor) -> torch.Tensor:
        _, heads, count, dim = states.shape
        plane = self.planes[number]  # (capacity, H * D)
        if heads * dim != plane.shape[1]:
            raise CacheMismatchError(
                f"layer {self._layer}: the model keeps {heads} x {dim} elements of {self._roles[number]} "
                f"for a token, the layout {plane.shape[1]}"
            )
        view = plane.view(1, -1, heads, dim).transpose(1, 2)  # (1, H, capacity, D)
        end = self.past_tokens + count
        view[:, :, self.past_tokens : end].copy_(states)
        filled = view[:, :, self._first_token : end]
        return filled if filled.dtype == states.dtype else filled.to(states.dtype)

    @property
    def _first_token(self) -> int:
        """First token that the next one attends to: a window counts the attending token itself."""
        return 0 if self.window_tokens is None else max(0, self.past_tokens - self.window_tokens + 1)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Number of keys that `update` will return, and the token that the first of them belongs to."""
        return self.past_tokens + query_length - self._first_token, self._first_token

    def get_seq_length(self) -> int:
        """Tokens before the current forward."""
        return self.past_tokens

    def get_max_length(self) -> int:
        """Tokens that there is room for."""
        return self._capacity_tokens


class StateLayer(LinearAttentionLayer):
    """Convolution and recurrent state of one linear-attention layer.

    The recurrent state is a view of the blocks.  The library keeps as many convolution columns as the
    kernel is wide, of which the oldest is never used again; stored are the others, so they are copied in
    and out.
    """

    def __init__(self, region: torch.Tensor, shapes: "StateShapes") -> None:
        super().__init__()
        recurrent_bytes = shapes.recurrent_bytes
        self.recurrent = region[:recurrent_bytes].view(shapes.recurrent_dtype).view(shapes.recurrent)
        self.recurrent_states[0] = self.recurrent
        channels, width = shapes.conv[1], shapes.conv[2]
        self.stored = region[recurrent_bytes:].view(shapes.conv_dtype).view(1, channels, width - 1)
        self._conv = torch.zeros(shapes.conv, dtype=shapes.conv_dtype, device=region.device)
        self.conv_states[0] = self._conv
        self.conv_kernel_size[0] = width
        self.is_conv_states_initialized[0] = self.is_recurrent_states_initialized[0] = True
        self.dtype, self.device = shapes.conv_dtype, region.device  # type: ignore[assignment]

    def begin(self, *, has_past: bool) -> None:
        """Take the stored state up, or start without one."""
        self.has_previous_state[0] = has_past
        if has_past:
            self._conv[..., 1:].copy_(self.stored)

    def end(self) -> None:
        """Put the convolution state where it is stored."""
        self.stored.copy_(self._conv[..., 1:])


class StateShapes:
    """Shapes and dtypes of one linear-attention layer's states, as the library itself makes them."""

    def __init__(self, layer: LinearAttentionLayer) -> None:
        conv, recurrent = layer.conv_states[0], layer.recurrent_states[0]
        if layer.number_of_states != 1 or conv is None or recurrent is None or conv.dim() != 3:
            raise UnsupportedArchitectureError(
                f"{type(layer).__name__} keeps {layer.number_of_states} states per layer; "
                "one convolution and one recurrent state are understood"
            )
        self.conv, self.conv_dtype = tuple(conv.shape), conv.dtype
        self.recurrent, self.recurrent_dtype = tuple(recurrent.shape), recurrent.dtype
        self.recurrent_bytes = recurrent.numel() * recurrent.element_size()
        self.num_bytes = self.recurrent_bytes + conv.shape[1] * (conv.shape[2] - 1) * conv.element_size()


class BlockCache(Cache):
    """All layers of a built model over one set of blocks; `begin` and `end` frame every forward."""

    def __init__(self, layers: list[Any]) -> None:
        super().__init__(layers=layers)
        self.attending = [layer for layer in layers if isinstance(layer, BlockLayer)]
        self.recurring = [layer for layer in layers if isinstance(layer, StateLayer)]

    def begin(self, past_tokens: int) -> None:
        """The next forward comes after `past_tokens` whose KV the blocks hold."""
        for layer in self.attending:
            layer.past_tokens = past_tokens
        for state in self.recurring:
            state.begin(has_past=past_tokens > 0)

    def end(self) -> None:
        """The forward is over; leave in the blocks what a store would keep."""
        for state in self.recurring:
            state.end()

    def randomize(self, seed: int) -> None:
        """Normal values everywhere, so that a forward after a prefix never computed reads no odd numbers."""
        tensors = [plane for layer in self.attending for plane in layer.planes]
        tensors += [tensor for state in self.recurring for tensor in (state.recurrent, state.stored)]
        for number, tensor in enumerate(tensors):
            fill_normal(tensor, seed, number=number, std=1.0)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens before the current forward; the same for every layer."""
        return self.attending[0].past_tokens if self.attending else 0


def cache_over(
    model: PreTrainedModel, blocks: KVBlocks, *, kv_dtype: torch.dtype, first_slot: int = 0
) -> BlockCache:
    """The cache of `model`'s layers over `blocks`, whose layout must describe exactly those layers.

    Raises:
        CacheMismatchError: planes, windows or states are not what the model keeps.
        UnsupportedArchitectureError: a layer keeps something that cannot be laid over blocks.
    """
    types, arguments = get_layer_types_and_kwargs(model.config)
    states = _probe_states(model) if "linear_attention" in types else {}
    wanted = sum(shapes.num_bytes for shapes in states.values())
    if wanted != blocks.layout.state_bytes:
        raise CacheMismatchError(
            f"the model keeps {wanted} state bytes, the layout {blocks.layout.state_bytes}"
        )
    layers: list[Any] = []
    offset = 0
    for number, extra in enumerate(arguments):
        if number in states:
            num_bytes = states[number].num_bytes
            layers.append(StateLayer(blocks.state[offset : offset + num_bytes], states[number]))
            offset += num_bytes
        else:
            planes = _planes_of(blocks.layout, number, extra.get("sliding_window"))
            layers.append(BlockLayer(blocks, number, planes=planes, kv_dtype=kv_dtype, first_slot=first_slot))
    return BlockCache(layers)


def _planes_of(layout: KVLayout, layer: int, window_tokens: int | None) -> tuple[Plane, Plane]:
    found: dict[Role, Plane] = {plane.role: plane for plane in layout.planes if plane.layer == layer}
    for first, second in (("k", "v"), ("latent", "rope")):
        if set(found) == {first, second}:
            planes = (found[first], found[second])  # type: ignore[index]
            break
    else:
        raise CacheMismatchError(
            f"layer {layer}: planes {sorted(found)}; k and v, or latent and rope, are understood"
        )
    for plane in planes:
        if plane.window_tokens not in (None, window_tokens):
            raise CacheMismatchError(
                f"layer {layer}: the layout keeps {plane.window_tokens} tokens of {plane.role}, "
                f"the model {window_tokens}"
            )
    return planes


@torch.inference_mode()
def _probe_states(model: PreTrainedModel) -> dict[int, StateShapes]:
    """State shapes by layer, seen by running two tokens with the library's own cache."""
    cache = DynamicCache(config=model.config)
    model(input_ids=torch.zeros((1, 2), dtype=torch.long, device=model.device), cache=cache, logits_to_keep=1)
    return {
        number: StateShapes(layer)
        for number, layer in enumerate(cache.layers)
        if isinstance(layer, LinearAttentionLayer)
    }


def sub_layout(layout: KVLayout, layers: Sequence[int], *, num_layers: int) -> KVLayout:
    """The layout of a model that keeps only `layers` of `num_layers`, numbered anew from 0.

    Layers without planes are linear attention; all of them keep equally many state bytes.
    """
    position = {layer: number for number, layer in enumerate(layers)}
    planes = tuple(
        Plane(position[plane.layer], plane.role, plane.token_bytes, plane.window_tokens)
        for plane in layout.planes
        if plane.layer in position
    )
    linear = set(range(num_layers)) - {plane.layer for plane in layout.planes}
    each = layout.state_bytes // len(linear) if linear else 0
    return KVLayout(planes, each * len(linear & set(layers)))
