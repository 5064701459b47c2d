"""Models larger than the device: a few layers of each kind, timed at several depths, scaled to the real
depth.

With t(0) the time without layers and t(k) that of m(k) layers of kind k alone, the real model's time is

    t = t(0) + sum over kinds k of count(k) * (t(k) - t(0)) / m(k)

Every kind is identified by one depth of its own.  Depth 0 is measured directly, not extrapolated: it holds
the embedding, masks, rotary tables, last norm and head, is small, and so adds little noise, and the
relative noise of the result stays near that of t(k).  Depths 1 and 2 in its place would multiply the noise
by the real depth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bench.arms.model.build import BuiltModel, LayerChoice
from bench.arms.model.memory import GIB, MemoryShortError
from bench.catalog.models.geometry import LayerKind

LAYERS_PER_KIND = 4  # at most: deep enough that t(k) dwarfs t(0), shallow enough for the memory of one device
MIN_LAYERS = 2  # so that half of them can predict the other half
OUT_OF_CACHE_BYTES = (
    256 * 2**20
)  # layers that fit in a last-level cache together would run faster than the real stack


class NothingHeldOutError(Exception):
    """Too few layers are built to predict one from another."""


@dataclass(frozen=True, slots=True)
class Depth:
    """A stack that really runs: positions among the built layers, and its name in the records."""

    positions: tuple[int, ...]
    label: str


@dataclass(frozen=True, slots=True)
class DepthPlan:
    """Stacks to time and how their seconds add up to those of the real model."""

    depths: tuple[Depth, ...]  # the stacks; the first is the empty one when the depth is scaled
    # for each, how many times its part over the empty stack counts; empty for the whole model
    repeats: tuple[float, ...]
    total_layers: int  # of the real model

    @property
    def scaled(self) -> bool:
        """True when the real depth did not run."""
        return bool(self.repeats)

    @property
    def measured_layers(self) -> int:
        """Layers of the deepest stack that ran."""
        return max(len(depth.positions) for depth in self.depths)

    def seconds(self, depth_s: Mapping[str, float]) -> float:
        """Seconds of the real model, from those of the stacks by label."""
        fixed_s = depth_s[self.depths[0].label]
        if not self.scaled:
            return fixed_s
        pairs = zip(self.depths[1:], self.repeats[1:], strict=True)
        return fixed_s + sum(times * max(0.0, depth_s[depth.label] - fixed_s) for depth, times in pairs)


@dataclass(frozen=True, slots=True)
class ScaledTime:
    """Seconds of the real model, and the measured seconds by depth when they were scaled."""

    seconds: float
    depth_s: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class ScalingCheck:
    """A depth that the fit did not see: predicted against measured seconds."""

    layers: int  # of that depth
    predicted_s: float  # medians over rounds
    measured_s: float
    errors: tuple[float, ...]  # (predicted - measured) / measured of each round

    @property
    def relative_error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted_s / self.measured_s - 1.0

    def is_beyond(self, limit: float) -> bool:
        """Whether the error is larger than that in every round, and to the same side: what swings alone makes is not."""
        return min(self.errors) > limit or max(self.errors) < -limit


def choose_layers(
    kinds: Sequence[LayerKind],
    layer_bytes: Sequence[int],
    *,
    fixed_bytes: int,
    available_bytes: int,
    choice: LayerChoice,
    kv_bytes: int = 0,
) -> tuple[int, ...]:
    """Indices of the real model's layers to build.

    `all` is all of them; `auto` is all of them if they fit in half of the memory, else as `fit`; `fit` is
    two to four of each kind (as many as it takes to be larger than a processor's caches), fewer where these
    do not fit in half of the memory.

    Args:
        kinds: of all layers.
        layer_bytes: weights of each layer.
        fixed_bytes: weights outside the layers.
        available_bytes: memory free on the device.
        choice: what was asked.
        kv_bytes: KV of one layer; it takes memory, and how many layers are run must not depend on it.

    Raises:
        MemoryShortError: not even one layer of each kind fits.
    """
    everything = tuple(range(len(kinds)))
    if choice == "all" or (
        choice == "auto" and fixed_bytes + sum(layer_bytes) + kv_bytes * len(kinds) <= available_bytes // 2
    ):
        return everything
    wanted = -(-OUT_OF_CACHE_BYTES // max(1, min(layer_bytes)))
    for count in range(min(max(wanted, MIN_LAYERS), LAYERS_PER_KIND), 0, -1):
        kept = _first_of_each(kinds, count)
        needed = fixed_bytes + sum(layer_bytes[index] + kv_bytes for index in kept)
        if needed <= (available_bytes // 2 if count > 1 else available_bytes):
            return kept
    raise MemoryShortError(
        f"one layer of each of {len(set(kinds))} kinds needs {needed / GIB:.1f} GiB, "
        f"{available_bytes / GIB:.1f} GiB are free; "
        "try a smaller dtype, more tensor parallelism or shorter prefixes"
    )


def _first_of_each(kinds: Sequence[LayerKind], count: int) -> tuple[int, ...]:
    chosen: list[int] = []
    for kind in sorted(set(kinds), key=kinds.index):
        chosen += [index for index, other in enumerate(kinds) if other == kind][:count]
    return tuple(sorted(chosen))


def plan_depths(built: BuiltModel, *, scaled: bool | None = None) -> DepthPlan:
    """How to time `built`: whole if it is the whole model, else empty and one kind at a time.

    Args:
        built: the model.
        scaled: True scales a whole model too, to see how well that works.

    Raises:
        ValueError: no layer of some kind is built.
    """
    total = len(built.model_kinds)
    whole = tuple(range(len(built.layers)))
    if not (len(built.layers) < total if scaled is None else scaled):
        return DepthPlan((Depth(whole, str(len(whole))),), (), total)
    kinds = sorted(set(built.model_kinds), key=built.model_kinds.index)
    depths, repeats = [Depth((), "0")], [0.0]
    for kind in kinds:
        positions = tuple(p for p, other in enumerate(built.kinds) if other == kind)[:LAYERS_PER_KIND]
        if not positions:
            raise ValueError(f"no {name_kind(kind)} layer is built; the real model's time cannot be scaled")
        label = str(len(positions)) if len(kinds) == 1 else f"{name_kind(kind)}:{len(positions)}"
        depths.append(Depth(positions, label))
        repeats.append(built.model_kinds.count(kind) / len(positions))
    return DepthPlan(tuple(depths), tuple(repeats), total)


def name_kind(kind: LayerKind) -> str:
    """Short name of a layer kind, such as `sliding` or `full+moe`."""
    return kind.attention + ("+moe" if kind.moe else "")


def time_depths(
    built: BuiltModel, plan: DepthPlan, *, time_once: Callable[[], float], random: Random
) -> ScaledTime:
    """Seconds of the real model: every stack timed once, in random order so that drift hits all alike."""
    depth_s: dict[str, float] = {}
    for depth in random.sample(plan.depths, len(plan.depths)):
        with built.only(depth.positions):
            depth_s[depth.label] = time_once()
    return ScaledTime(plan.seconds(depth_s), depth_s if plan.scaled else None)


def check_scaling(
    built: BuiltModel, *, time_once: Callable[[], float], random: Random, num_rounds: int = 3
) -> ScalingCheck:
    """How well depths scale here: half of the built layers predict all of them.

    Interleaved, medians over `num_rounds`.

    Raises:
        NothingHeldOutError: no kind has two layers built.
    """
    held_out = tuple(range(len(built.layers)))
    plan = _half_plan(built)
    times: dict[str, list[float]] = {label: [] for label in ("all", *(d.label for d in plan.depths))}
    for _ in range(num_rounds):
        for depth in random.sample([*plan.depths, Depth(held_out, "all")], len(plan.depths) + 1):
            with built.only(depth.positions):
                times[depth.label].append(time_once())
    middle = {label: sorted(values)[len(values) // 2] for label, values in times.items()}
    errors = tuple(
        plan.seconds({label: values[number] for label, values in times.items()}) / times["all"][number] - 1.0
        for number in range(num_rounds)
    )
    return ScalingCheck(len(held_out), plan.seconds(middle), middle["all"], errors)


def _half_plan(built: BuiltModel) -> DepthPlan:
    """Half of the built layers of each kind; a single one stands for itself."""
    if len(set(built.kinds)) == len(built.kinds):
        raise NothingHeldOutError("one layer of each kind is built, so that no depth can be held out")
    depths, repeats = [Depth((), "0")], [0.0]
    for kind in sorted(set(built.kinds), key=built.kinds.index):
        positions = [p for p, other in enumerate(built.kinds) if other == kind]
        half = positions[: max(1, min(LAYERS_PER_KIND, len(positions) // 2))]
        depths.append(Depth(tuple(half), f"{name_kind(kind)}:{len(half)}"))
        repeats.append(len(positions) / len(half))
    return DepthPlan(tuple(depths), tuple(repeats), len(built.layers))
