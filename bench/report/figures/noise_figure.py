"""Figures and rows about the spread within and between rounds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.estimate.intervals import VarianceComponents, pooled_half_width, predict_half_width
from bench.record.sample import Sample
from bench.record.units import format_share, format_tokens

ROUND_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
ROUNDS_SHOWN = (2, 3, 4, 6, 8, 12, 16)
SAMPLES_SHOWN = (1, 5, 25)


def noise_frame(components: Sequence[VarianceComponents]) -> pd.DataFrame:
    """One row per case: relative spread between and within rounds in percent, and between's share."""
    return pd.DataFrame(
        {
            "arm": [part.arm for part in components],
            "series": [part.series for part in components],
            "prefix_tokens": [part.prefix_tokens for part in components],
            "num_rounds": [part.num_rounds for part in components],
            "num_samples": [part.num_samples for part in components],
            "median_s": [part.median_s for part in components],
            "between_percent": [part.between * 100 for part in components],
            "within_percent": [None if part.within is None else part.within * 100 for part in components],
            "between_share_percent": [
                None if part.between_share is None else part.between_share * 100 for part in components
            ],
        }
    )


def format_noise(components: Sequence[VarianceComponents]) -> str:
    """One sentence: how much of the variance lies between rounds, in the median case."""
    shares = [part.between_share for part in components if part.between_share is not None]
    if not shares:
        return "The two spreads cannot be told apart: no round has two samples of a case."
    middle = float(np.median(shares))
    within = float(np.median([part.within for part in components if part.within is not None]))
    between = float(np.median([part.between for part in components]))
    return (
        f"In the median of {len(shares)} cases, rounds differ by {format_share(between)} and samples of one "
        f"round by {format_share(within)}: {format_share(middle)} of the variance lies between rounds."
    )


def draw_rounds(axes: Axes, samples: Sequence[Sample], *, series: str, prefix_tokens: int) -> None:
    """Every sample of one case by round, relative to the case's median; each round's mean as a bar."""
    case = [s for s in samples if s.case.series == series and s.case.prefix_tokens == prefix_tokens]
    axes.set_title(
        f"{series}, {format_tokens(prefix_tokens)} tokens", fontsize=10, loc="left", parse_math=False
    )
    axes.set_xlabel("round")
    axes.set_ylabel("time against the median (%)")
    if not case:
        axes.text(0.5, 0.5, "no samples", transform=axes.transAxes, ha="center", style="italic")
        return
    median_s = float(np.median([sample.outcome.seconds for sample in case]))
    for number in sorted({sample.round for sample in case}):
        values = [(s.outcome.seconds / median_s - 1) * 100 for s in case if s.round == number]
        colour = ROUND_COLOURS[number % len(ROUND_COLOURS)]
        axes.plot([number + 1] * len(values), values, ".", color=colour, alpha=0.7)
        mean = float(np.mean(values))
        axes.plot([number + 0.7, number + 1.3], [mean, mean], color=colour, linewidth=2)
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.set_xticks(sorted({sample.round + 1 for sample in case}))


def draw_components(axes: Axes, components: Sequence[VarianceComponents], *, series: str) -> None:
    """Relative standard deviation between and within rounds over the prefix length."""
    parts = [part for part in components if part.series == series and part.suffix_tokens == 0]
    lengths = [part.prefix_tokens for part in parts]
    axes.set_title(series, fontsize=10, loc="left", parse_math=False)
    axes.set_xlabel("prefix (tokens)")
    axes.set_ylabel("standard deviation (%)")
    if not parts:
        axes.text(0.5, 0.5, "needs two rounds", transform=axes.transAxes, ha="center", style="italic")
        return
    axes.plot(lengths, [p.between * 100 for p in parts], "o-", color="#D55E00", label="between rounds")
    inside = [(p.prefix_tokens, p.within * 100) for p in parts if p.within is not None]
    if inside:
        axes.plot(*zip(*inside, strict=True), "s--", color="#0072B2", label="within a round")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [format_tokens(length) for length in lengths], rotation=30)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)


def draw_narrowing(axes: Axes, components: VarianceComponents) -> None:
    """How the 95 % interval narrows with rounds and with samples, and what pooling would claim."""
    for num_samples, style in zip(SAMPLES_SHOWN, ("o-", "s--", "^:"), strict=True):
        widths = [
            predict_half_width(components, num_rounds=rounds, num_samples=num_samples) * 100
            for rounds in ROUNDS_SHOWN
        ]
        label = f"{num_samples} sample{'s' * (num_samples != 1)} a round"
        axes.plot(ROUNDS_SHOWN, widths, style, markersize=4, label=label)
    claimed = [pooled_half_width(components, num_samples=rounds * 5) * 100 for rounds in ROUNDS_SHOWN]
    axes.plot(
        ROUNDS_SHOWN,
        claimed,
        color="0.5",
        linestyle="-.",
        label="one process, pooled (claimed)",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ROUNDS_SHOWN, [str(rounds) for rounds in ROUNDS_SHOWN])
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("rounds")
    axes.set_ylabel("half-width of the 95 % interval (%)")
    name = f"{components.series}, {format_tokens(components.prefix_tokens)} tokens"
    axes.set_title(name, fontsize=10, loc="left", parse_math=False)
    axes.legend(frameon=False, fontsize=8)
