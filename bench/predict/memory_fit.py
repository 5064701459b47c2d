"""Longest prefix that the model's context allows, and whose KV fits into GPU memory beside the weights."""

import math

from bench.catalog.devices.datasheet import pick_figure
from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.geometry import Geometry
from bench.catalog.models.kv_capacity import RESERVE_SHARE, most_tokens
from bench.predict.cost_model import CostModel


def memory_of(devices: Devices, gpu: str) -> float | None:
    """Bytes of memory of the GPU of that name; None when unknown."""
    figure = pick_figure(devices.find_gpu(gpu).memory_bytes)
    return None if figure is None else figure.value


def fitting_tokens(cost: CostModel, memory_bytes: float | None) -> int | None:
    """The longest prefix whose KV fits beside a rank's weights and the reserve, as `capacity` counts it.

    None where no length fills the memory, or its size is unknown.
    """
    if memory_bytes is None:
        return None
    left = round((1 - RESERVE_SHARE) * memory_bytes) - math.ceil(_weight_bytes(cost))
    return most_tokens(cost.layout, left) if left > 0 else 0


def length_notice(geometry: Geometry, longest: int) -> tuple[str, ...]:
    """The notice where a prefix exceeds the model's context."""
    made_for = geometry.max_position_embeddings
    if made_for is None or longest <= made_for:
        return ()
    return (f"the model is made for {made_for:,} tokens; longer prefixes are modelled all the same",)


def memory_notice(cost: CostModel, longest: int, memory_bytes: float | None) -> tuple[str, ...]:
    """The notice where the KV of the longest prefix does not fit beside the weights."""
    fitting = fitting_tokens(cost, memory_bytes)
    if memory_bytes is None or fitting is None or longest <= fitting:
        return ()
    kv_bytes = cost.layout.bytes_at(longest)
    return (
        f"{_weight_bytes(cost) / 1e9:.0f} GB of weights and {kv_bytes / 1e9:.0f} GB of KV of {longest:,} tokens on each"
        f" GPU do not fit into its {memory_bytes / 1e9:.0f} GB with {RESERVE_SHARE:.0%} left for the rest:"
        f" at most {fitting:,} tokens do; longer prefixes are modelled all the same",
    )


def _weight_bytes(cost: CostModel) -> float:
    return cost.geometry.params_total * cost.weight_bytes / cost.num_gpus
