"""What stands below the crossover figure: all that the curves depend on."""

import re
import textwrap
from collections.abc import Sequence

from bench.estimate.results import Analysis
from bench.record.run import RunRecord, Sample
from bench.report.notice_text import suspect_codes
from bench.report.run_facts import (
    data_path,
    device_name,
    load_series,
    say_cache,
    say_depth,
    say_model,
    series_label,
    storage_name,
)
from bench.report.text.asked import say_suffix
from bench.report.text.repeats import say_repeats

NO_BREAK = "\N{NO-BREAK SPACE}"


def caption(run: RunRecord, samples: Sequence[Sample], analysis: Analysis) -> str:
    """What the figure shows: model, device, storage with its limit, ways and states, repeats, depth."""
    loads = load_series(run, analysis)
    codes = (suspect_codes(run, samples, analysis, series=series) for series in loads)
    suspects = dict.fromkeys(code for found in codes for code in found)
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
        f"suspect: {', '.join(suspects)}" if suspects else None,
    ]
    return "; ".join(part for part in parts if part) + "."


def wrap_outside_brackets(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; what stands in brackets stays on one of them if it fits there."""
    bound = re.sub(
        r"\([^()]*\)",
        lambda found: found[0].replace(" ", NO_BREAK) if len(found[0]) <= width else found[0],
        text,
    )
    return [line.replace(NO_BREAK, " ") for line in textwrap.wrap(bound, width)]
