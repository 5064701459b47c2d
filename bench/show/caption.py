"""What stands below the crossover figure: all that the curves depend on."""

from collections.abc import Sequence

from bench.analyse.answer import Analysis
from bench.measure.record import RunRecord, Sample
from bench.show.facts import (
    data_path,
    device_name,
    load_series,
    say_cache,
    say_depth,
    say_model,
    say_repeats,
    series_label,
    storage_name,
)


def caption(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> str:
    """What the figure shows: model, device, storage with its limit, ways and states, repeats, depth."""
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
        for series in load_series(run, analysis)
    ]
    parts = [
        f"{say_model(run)} on {device_name(run)}",
        storage_name(run),
        *(ways or ["no load series"]),
        say_repeats(samples),
        say_depth(samples),
        "bands and bars: 95 % intervals over rounds",
    ]
    return "; ".join(part for part in parts if part) + "."
