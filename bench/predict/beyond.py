"""A sweep's times outside of the lengths that it measured: the model calibrated on them, as `predict --from` has it."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import resolve_model
from bench.predict.calibrate import CalibrationError
from bench.predict.curve import Curve, FloatArray
from bench.predict.sweep_model import SweepModel, fit_sweep
from bench.record.run import RunRecord, Sample


def fit_beyond(
    run: RunRecord, samples: Sequence[Sample], *, series: str | None = None
) -> tuple[SweepModel | None, str]:
    """The sweep's calibrated model; or None and why, which the reader must be told."""
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
