"""What stands below the crossover figure: all that the curves depend on."""

from collections.abc import Sequence

from bench.analyse.answer import Analysis
from bench.measure.record import RunRecord, Sample
from bench.show.asked import say_suffix
from bench.show.facts import (
    data_path,
    device_name,
    load_series,
    say_cache,
    say_depth,
    say_model,
    series_label,
    storage_name,
)
from bench.show.repeats import say_repeats


def caption(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> str:
    """What the figure shows: model, device, storage with its limit, ways and states, repeats, depth."""
    loads = load_series(run, analysis)
    ways = [
        f"{series_label(run, series)} over "
        + ", ".join(
            part
            for part in (
                data_path(run, samples, series=series) or "no proven data path",
                say_cache(run, samples, series=series),
            )
            if part
        )
        for series in loads
    ]
    parts = [
        f"{say_model(run)} on {device_name(run)}",
        storage_name(run),
        *(ways or ["no load series"]),
        f"times of {say_suffix(run, next(iter(loads), None))}" if run.plan.suffix_tokens else None,
        say_repeats(run, samples),
        say_depth(samples),
        "bands and bars: 95 % intervals over rounds",
    ]
    return "; ".join(part for part in parts if part) + "."
