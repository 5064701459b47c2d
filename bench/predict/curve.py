"""Seconds as a function of tokens, from measured points."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import pchip_interpolate

FloatArray = NDArray[np.float64]
Curve = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """Seconds at any length from measured points: monotone in log-log, and `beyond` outside the range."""

    tokens: tuple[int, ...]  # measured lengths, rising, at least two
    seconds: tuple[float, ...]  # of each length
    # of lengths outside the range, such as a model calibrated on it; None follows the end slopes
    beyond: Curve | None = None

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.seconds) or len(self.tokens) < 2:
            raise ValueError(
                f"a curve needs two or more points, got {len(self.tokens)} x {len(self.seconds)}"
            )
        if self.tokens[0] < 1 or any(np.diff(self.tokens) <= 0):
            raise ValueError(f"lengths must rise from 1 or more, got {self.tokens}")
        if not all(np.isfinite(second) and second > 0 for second in self.seconds):
            raise ValueError(f"seconds must be positive and finite, got {self.seconds}")

    def __call__(self, tokens: FloatArray) -> FloatArray:
        """Seconds at each length; 0 tokens cost nothing."""
        if self.beyond is not None:
            return self._extended(np.asarray(tokens, dtype=np.float64), self.beyond)
        x, y = np.log(self.tokens), np.log(self.seconds)
        at = np.log(np.maximum(tokens, 1e-9))
        low, high = np.minimum(at - x[0], 0.0), np.maximum(at - x[-1], 0.0)
        slopes = np.maximum(pchip_interpolate(x, y, x[[0, -1]], der=1), 0.0)  # type: ignore[no-untyped-call]
        inside = pchip_interpolate(x, y, np.clip(at, x[0], x[-1]))  # type: ignore[no-untyped-call]
        seconds: FloatArray = np.exp(inside + low * slopes[0] + high * slopes[1])
        return np.where(tokens > 0, seconds, 0.0)

    def _extended(self, tokens: FloatArray, beyond: Curve) -> FloatArray:
        """The measured points inside the range; outside `beyond`, on the side of the end point that it is on."""
        found = replace(self, beyond=None)(np.clip(tokens, 0.0, self.tokens[-1]))
        above, below = tokens > self.tokens[-1], (tokens > 0) & (tokens < self.tokens[0])
        found[above] = np.maximum(beyond(tokens[above]), self.seconds[-1])
        found[below] = np.minimum(beyond(tokens[below]), self.seconds[0])
        return found

    def at(self, num_tokens: int) -> float:
        """Seconds at one length."""
        return float(self(np.array([num_tokens], dtype=np.float64))[0])
