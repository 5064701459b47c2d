"""A cost model of the machine that a sweep measured: other lengths, other storages.

    T_recompute(n) = o + g G(n) + a A(n)              G, A: operations of matrix products and of attention
    T_load(n)      = first(n) + o' + bytes(n) / B     first(n) = f + k n: the measured first-token step

with G and A in seconds at the best rate over all lengths of the sweep, `flop_s`, and the bytes of all ranks together.
All coefficients are fitted to the medians of the sweep.  A few lengths hardly determine o, but a pass of few tokens reads
every weight as the first-token step does, so o is anchored to the step that was measured.  With another storage, B is
that storage's rate and the rest stays as measured.

A sweep's times outside of the lengths that it measured: the model calibrated on them, as `predict sweep` has it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from bench.catalog.models.fields import CatalogError
from bench.catalog.models.geometry import Geometry
from bench.catalog.models.resolve import resolve_model
from bench.estimate.analysis import analyse
from bench.estimate.results import Point, choose_series
from bench.estimate.tiers import MEMORY_BACKENDS
from bench.predict.bounded import Bounded, Pick
from bench.predict.calibrate import MIN_LENGTHS, Anchor, ArmFit, CalibrationError, Tie, fit_arm
from bench.predict.cost_model import prefill_work
from bench.predict.curve import Curve, FloatArray
from bench.record.run import RunRecord
from bench.record.sample import Sample
from kvio.layout.planes import KVLayout

# without a kernel table: times of neighbouring lengths agree to 5 % on a shared machine, and attention runs at the
# rate of matrix products within a factor of two (results/qwen3-0.6b, where it was from half to twice)
SWEEP_TIE = Tie(1, 2, noise=0.05, prior=1.0)
# the fixed cost of a pass is that of the first-token step, again within a factor of two
STEP_NOISE, STEP_PRIOR = SWEEP_TIE.noise, SWEEP_TIE.prior


@dataclass(frozen=True, slots=True)
class SweepModel:
    """Both arms of one measured load series, as formulas."""

    label: str
    geometry: Geometry
    layout: KVLayout  # KV of the fullest rank
    flop_s: float
    recompute: ArmFit
    first_token: ArmFit
    move: ArmFit  # fit of opening and reading: o', and seconds per byte of all ranks
    storage: Bounded | None = None  # another storage's rate, None for the measured one
    notices: tuple[str, ...] = ()
    num_ranks: int = 1

    @property
    def measured(self) -> tuple[int, int]:
        """The shortest and the longest length that the formulas were fitted to."""
        return self.recompute.lengths[0], self.recompute.lengths[-1]

    @property
    def has_bounds(self) -> tuple[bool, bool]:
        """Whether recompute and load have bounds."""
        load = self.move.width is not None if self.storage is None else self.storage.known
        return self.recompute.width is not None, load

    def recompute_s(self, num_tokens: int, pick: Pick = "value") -> float:
        """Seconds to prefill the prefix."""
        terms = recompute_terms(self.geometry, num_tokens, self.flop_s)
        return self.recompute.prefill_s(num_tokens, terms, pick)

    def step_s(self, num_tokens: int) -> float:
        """Seconds of the first-token step alone."""
        return _dot(self.first_token, (1.0, float(num_tokens)))

    def fixed_s(self, num_tokens: int, pick: Pick = "value") -> float:
        """Seconds of a load that no faster storage would save: the first-token step and opening."""
        terms = (1.0, float(num_tokens))
        opening = self.move.bound(self.move.coefficients[0], pick, (1.0, float(self.num_bytes(num_tokens))))
        return self.first_token.bound(_dot(self.first_token, terms), pick, terms) + opening

    def transfer_s(self, num_tokens: int, pick: Pick = "value", *, scale: float = 1.0) -> float:
        """Seconds to read the bytes, were the storage `scale` times as fast."""
        num_bytes = self.num_bytes(num_tokens)
        if self.storage is None:
            moving = num_bytes * self.move.coefficients[1] / scale
            return self.move.bound(moving, pick, (1.0, float(num_bytes)))
        faster: dict[Pick, Pick] = {"value": "value", "low": "high", "high": "low"}
        return num_bytes / (self.storage.at(faster[pick]) * scale)

    def both_arms_s(
        self, num_tokens: int, recompute: Pick, load: Pick, *, scale: float = 1.0
    ) -> tuple[float, float]:
        """Seconds of both arms; what they share was measured, and has no range."""
        moving = self.transfer_s(num_tokens, load, scale=scale)
        return self.recompute_s(num_tokens, recompute), self.fixed_s(num_tokens, load) + moving

    @property
    def shared_range_s(self) -> float:
        """Nothing: what the arms share was measured."""
        return 0.0

    def num_bytes(self, num_tokens: int) -> int:
        """Bytes of the prefix but its last token, on all ranks together."""
        return self.num_ranks * self.layout.bytes_at(num_tokens - 1)

    def with_storage(self, name: str, rate: Bounded, *supposed: str) -> "SweepModel":
        """The same machine with another storage, and what was supposed about its rate."""
        notices = (
            *self.notices,
            *supposed,
            f"only the storage is another, {name}; everything else as measured",
        )
        return replace(self, label=f"{self.label}, were the storage {name}", storage=rate, notices=notices)


def recompute_terms(geometry: Geometry, num_tokens: int, flop_s: float) -> tuple[float, float, float]:
    """1, and seconds of matrix products and of attention at `flop_s` seconds per operation."""
    work = prefill_work(geometry, num_tokens)
    return 1.0, work.gemm_flops * flop_s, sum(flops for flops, _ in work.attention) * flop_s


def fit_sweep(
    run: RunRecord,
    samples: Sequence[Sample],
    geometry: Geometry,
    *,
    drop_series: Collection[int] = (),
    series: str | None = None,
) -> SweepModel:
    """The formulas of the sweep's only load series, or of the one named, fitted to every length but those in `drop_series`.

    Raises:
        CalibrationError: several series and none named, fewer than MIN_LENGTHS lengths with both arms, or a suffix
            sweep.
    """
    if run.plan.suffix_tokens:
        raise CalibrationError(f"{run.run_id}: a sweep of suffixes has no times of whole prefixes to fit")
    points = [
        point for point in usable_points(run, samples, series) if point.prefix_tokens not in drop_series
    ]
    if len(points) < MIN_LENGTHS:
        both = {p.prefix_tokens for p in _of_both_arms(run, samples) if series in {None, p.series}} - {
            *drop_series
        }
        raise CalibrationError(f"{run.run_id}: {_format_too_few(len(points), len(both))}")
    first = {point.prefix_tokens: point.first_token_s or 0.0 for point in points}
    recompute = {point.prefix_tokens: _seconds(point, "recompute") for point in points}
    moving = {n: _seconds(point, "load") - first[n] for n, point in ((p.prefix_tokens, p) for p in points)}
    flop_s = min(seconds / prefill_work(geometry, n).flops for n, seconds in recompute.items())
    ranks = run.plan.tensor_parallel
    layout = geometry.layout(run.plan.kv_dtype or run.plan.dtype, ranks)
    first_token = fit_arm(first, lambda n: (1.0, float(n)))
    step = Anchor(0, _dot(first_token, (1.0, 1.0)), noise=STEP_NOISE, prior=STEP_PRIOR)
    return SweepModel(
        label=_format_sweep(run, points[0].series),
        geometry=geometry,
        layout=layout,
        flop_s=flop_s,
        recompute=fit_arm(
            recompute, lambda n: recompute_terms(geometry, n, flop_s), tied=SWEEP_TIE, anchored=step
        ),
        first_token=first_token,
        move=fit_arm(moving, lambda n: (1.0, float(ranks * layout.bytes_at(n - 1)))),
        notices=(f"calibrated on {points[0].prefix_tokens:,} to {points[-1].prefix_tokens:,} tokens",),
        num_ranks=ranks,
    )


def _format_too_few(num_with_step: int, num_both: int) -> str:
    """Why nothing can be fitted: too few lengths of both arms, or of those with a first-token step."""
    said = f"{num_both} length{'' if num_both == 1 else 's'} measured by both arms"
    if num_both < MIN_LENGTHS:
        return f"{said}; predicting needs {MIN_LENGTHS}: sweep more lengths, or longer"
    return (
        f"{said}, but {num_with_step} of them with a first-token step, and predicting needs {MIN_LENGTHS}: "
        f"a simulated load has no such step; sweep a backend that reads"
    )


def _format_sweep(run: RunRecord, series: str) -> str:
    """What was measured: model, ranks, device, and the series with what it loads from."""
    ranks = run.plan.tensor_parallel
    divided = f", {ranks} ranks" if ranks > 1 else ""
    settings = run.series[series].settings if series in run.series else {}
    storage = settings.get("server") or run.storage.get("name") or "its storage"
    if settings.get("backend") in MEMORY_BACKENDS:
        storage = "host memory"
    device = run.machine.get("device_name", "its machine")
    return (
        f"{run.model_name} ({run.plan.dtype}{divided}) on {device}, loading from {storage} ({series}),"
        f" calibrated on {run.run_id}"
    )


def usable_points(run: RunRecord, samples: Sequence[Sample], series: str | None = None) -> list[Point]:
    """Points of the only load series, or of the one named, that have both arms and a first-token step, by length.

    Raises:
        CalibrationError: several series and none named, or no such series.
    """
    points = [point for point in _of_both_arms(run, samples) if point.first_token_s is not None]
    try:
        chosen = choose_series([point.series for point in points], series) if points else None
    except ValueError as error:
        raise CalibrationError(f"{run.run_id}: {error}") from None
    return sorted(
        (point for point in points if point.series == chosen), key=lambda point: point.prefix_tokens
    )


def _of_both_arms(run: RunRecord, samples: Sequence[Sample]) -> list[Point]:
    points = analyse(run, samples).points
    return [point for point in points if point.recompute_s is not None and point.load_s is not None]


def _seconds(point: Point, arm: str) -> float:
    estimate = point.recompute_s if arm == "recompute" else point.load_s
    if estimate is None:
        raise CalibrationError(f"{point.prefix_tokens} tokens: no {arm} time")
    return estimate.value


def _dot(fit: ArmFit, terms: Sequence[float]) -> float:
    return sum(value * term for value, term in zip(fit.coefficients, terms, strict=True))


def extrapolating_model(
    run: RunRecord, samples: Sequence[Sample], *, series: str | None = None
) -> tuple[SweepModel | None, str]:
    """The sweep's calibrated model, or None and the reason."""
    try:
        return fit_sweep(run, samples, resolve_model(run.plan.model).geometry, series=series), ""
    except (CalibrationError, CatalogError) as error:
        return None, f"outside of the lengths measured the last slope is followed, no model: {error}"


def curve_of(seconds_at: Callable[[int], float]) -> Curve:
    """A curve that asks for each different length once, however often requests have it; 0 tokens cost nothing."""
    known = cache(seconds_at)

    def curve(tokens: FloatArray) -> FloatArray:
        lengths, where = np.unique(tokens, return_inverse=True)
        seconds = np.array([known(round(n)) if n > 0 else 0.0 for n in lengths.tolist()], dtype=np.float64)
        return seconds[where].reshape(tokens.shape)

    return curve
