"""Draws the hit ratio of a reuse simulation against the capacity of the cache."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

LABELS = {"lru": "LRU", "lfu": "LFU", "fifo": "FIFO", "optimal": "optimal (Belady)"}


def draw_reuse(axes: Axes, table: pd.DataFrame) -> None:
    """Hit ratio on the left scale, share of the maximum on the right one, capacity on a log scale.

    Args:
        axes: to draw on.
        table: of `bench.analyse.reuse.simulate.hit_table`, with its attrs.
    """
    if table.empty:
        raise ValueError("nothing to draw: the table has no row")
    most = float(table.attrs["max_hit_ratio"])
    for policy, rows in table.groupby("policy", sort=False):
        points = rows.sort_values("capacity_tokens")
        points = points[points["capacity_tokens"] > 0]
        name = LABELS.get(str(policy), str(policy))
        axes.plot(points["capacity_tokens"], points["hit_ratio"], marker="o", markersize=3, label=name)
    axes.axhline(most, color="0.5", linestyle=":", label=f"never drops a block: {most:.3f}")
    axes.set_xscale("log")
    axes.set_ylim(0.0, max(most, 0.01) * 1.08)
    axes.set_xlabel(f"capacity [tokens], counted in {table.attrs['unit']}")
    axes.set_ylabel("hit ratio [hit tokens / input tokens]")
    axes.set_title(f"Prefix reuse, {table.attrs['origin']}")
    axes.legend(fontsize="small")
    if most > 0:
        _add_share_scale(axes, most)


def _add_share_scale(axes: Axes, most: float) -> None:
    def to_share(ratio: ArrayLike) -> ArrayLike:
        return np.asarray(ratio) / most

    def to_ratio(share: ArrayLike) -> ArrayLike:
        return np.asarray(share) * most

    axes.secondary_yaxis("right", functions=(to_share, to_ratio)).set_ylabel("share of the maximum")
