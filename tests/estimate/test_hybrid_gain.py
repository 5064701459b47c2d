"""The hybrid arm beside the better of the two others, and what is said of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis, Estimate, HybridCurve, HybridPoint
from bench.record.notices import Notice
from bench.record.plan import Plan
from bench.record.run import RunRecord, SeriesInfo
from bench.record.sample import Case, Outcome, Sample
from bench.report.figures.crossover_figure import draw_crossover
from bench.report.frames import summary_frame
from bench.report.html import render_report
from bench.report.result_files import write_results
from bench.report.run_facts import load_series
from bench.report.text.closing_table import closing_table
from bench.report.text.hybrid_text import describe_hybrids
from bench.report.text.terminal import plain
from tests.helpers.sweeps import make_analysis, make_run, make_samples

SERIES = {
    "recompute": SeriesInfo(arm="recompute", label="recompute"),
    "posix/best": SeriesInfo(arm="load", label="posix, best layout", settings={"cache_state": "direct"}),
    "hybrid/posix/best": SeriesInfo(
        arm="hybrid",
        label="posix, best layout",
        settings={"cache_state": "direct", "load_series": "posix/best"},
    ),
}
LOADED = {"num_bytes": 8, "cache_state": "direct", "data_path": "posix-direct", "verified": True}


def _run(**hybrid: str) -> RunRecord:
    info = SERIES["hybrid/posix/best"]
    info = info.model_copy(update={"settings": {**info.settings, **hybrid}})
    return RunRecord(
        run_id="t",
        started_utc="2026-01-01T00:00:00Z",
        plan=Plan(model="m", hybrid=True),
        model_name="M",
        kv_bytes_per_token=8,
        chunk_tokens=64,
        series={**SERIES, "hybrid/posix/best": info},
    )


def _samples(
    tokens: int, seconds: list[tuple[float, float, float]], *, fraction: float = 0.5, **hybrid: object
) -> list[Sample]:
    """One sample of (recompute, load, hybrid) in each round."""
    found = []
    for number, (recompute_s, load_s, hybrid_s) in enumerate(seconds):
        outcome = replace(Outcome(hybrid_s, load_fraction=fraction, **LOADED), **hybrid)  # type: ignore[arg-type]
        cases = (
            (Case("recompute", "recompute", tokens), Outcome(recompute_s)),
            (Case("load", "posix/best", tokens), Outcome(load_s, **LOADED)),  # type: ignore[arg-type]
            (Case("hybrid", "hybrid/posix/best", tokens), outcome),
        )
        found += [Sample(number, order, 0, 0.0, case, out) for order, (case, out) in enumerate(cases)]
    return found


def _point(samples: list[Sample]) -> HybridPoint:
    (curve,) = analyse(_run(), samples).hybrids
    (point,) = curve.points
    return point


def test_the_ratio_is_of_the_better_arm_and_paired_by_round() -> None:
    rounds = [(3.0 * k, 2.0 * k, 1.6 * k) for k in (1.0, 5.0, 2.0, 9.0, 4.0, 3.0)]
    point = _point(_samples(256, rounds))
    assert point.better_arm == "load"
    assert point.speedup is not None and point.speedup.low is not None and point.speedup.high is not None
    assert point.speedup.value == pytest.approx(1.25)
    assert point.speedup.high - point.speedup.low < 1e-9  # rounds differ ninefold, their ratios do not
    assert point.hybrid_s is not None and point.hybrid_s.value == pytest.approx(1.6 * 12**0.5)
    assert (point.load_fraction, point.num_rounds, point.num_samples) == (0.5, 6, 6)
    assert point.notices == ()


def test_one_arm_is_the_better_in_all_rounds_even_where_single_rounds_disagree() -> None:
    point = _point(_samples(256, [(1.0, 2.0, 1.0), (1.0, 2.0, 1.0), (3.0, 2.0, 1.0)]))
    assert point.better_arm == "recompute"
    assert point.speedup is not None and point.speedup.value == pytest.approx(1.0)
    assert point.notices == ("few_rounds",)


def test_hybrid_samples_are_held_to_the_proofs_of_load_samples() -> None:
    samples = _samples(256, [(3.0, 2.0, 1.6)] * 3, cache_state="warm")
    (curve,) = analyse(_run(), samples).hybrids
    assert curve.points == ()
    assert [(n.kind, n.detail.startswith("3 of 3")) for n in curve.notices] == [("not_cold", True)]
    unread = {"cache_state": None, "data_path": None, "verified": None, "num_bytes": 0}
    point = _point(_samples(64, [(1.0, 2.0, 1.1)] * 3, fraction=0.0, **unread))
    assert (point.load_fraction, point.num_rounds) == (0.0, 3)


def test_crossovers_are_those_of_recompute_against_load_alone() -> None:
    samples = [
        sample
        for tokens, seconds in ((64, (1.0, 2.0, 0.5)), (256, (4.0, 3.0, 0.5)))
        for sample in _samples(tokens, [seconds] * 6)
    ]
    with_hybrid = analyse(_run(), samples)
    without = analyse(_run(), [sample for sample in samples if sample.case.arm != "hybrid"])
    assert with_hybrid.spots == without.spots
    assert with_hybrid.points == without.points
    assert {spot.series for spot in with_hybrid.spots} == {"posix/best"}
    assert load_series(_run(), with_hybrid) == ("posix/best",)


def test_a_skipped_series_says_why_and_has_no_points() -> None:
    run = _run(skipped="hybrid needs the whole model; try --layers all")
    analysis = analyse(run, [])
    assert [(curve.points, curve.skipped) for curve in analysis.hybrids] == [
        ((), "hybrid needs the whole model; try --layers all")
    ]
    assert describe_hybrids(run, analysis) == (
        "Hybrid by posix, best layout: skipped: hybrid needs the whole model; try --layers all.",
    )


def test_the_summary_has_the_hybrid_beside_its_load_series() -> None:
    samples = _samples(256, [(3.0, 2.0, 1.6)] * 6)
    (row,) = summary_frame(analyse(_run(), samples)).to_dict("records")
    assert row["hybrid_s"] == pytest.approx(1.6)
    assert (row["load_fraction"], row["better_arm"]) == (0.5, "load")
    assert row["better_per_hybrid_ratio"] == pytest.approx(1.25)
    plain = summary_frame(analyse(_run(), [s for s in samples if s.case.arm != "hybrid"]))
    assert plain["hybrid_s"].isna().all() and list(plain.columns) == list(row)


SAMPLES = make_samples(tokens=(1024, 8192), num_rounds=2, num_samples=2)
HYBRID = {
    "hybrid/1": SeriesInfo(arm="hybrid", label="posix, best layout", settings={"load_series": "load-1"})
}
RUN = make_run(series={**make_run().series, **HYBRID})
POINTS = (
    HybridPoint(1024, 2, 4, Estimate(0.04, 0.038, 0.042), 0.25, "recompute", Estimate(1.13, 1.05, 1.2)),
    HybridPoint(8192, 2, 4, Estimate(0.25), 0.625, "load", Estimate(1.5), ("not_cold", "few_rounds")),
)
CURVE = HybridCurve("hybrid/1", "load-1", POINTS)
ANALYSIS = make_analysis(SAMPLES, hybrids=(CURVE,))


def _with(**changes: object) -> Analysis:
    return replace(ANALYSIS, hybrids=(replace(CURVE, **changes),))  # type: ignore[arg-type]


def test_one_sentence_says_where_hybrid_wins_by_how_much_at_the_longest_and_what_is_suspect() -> None:
    assert describe_hybrids(RUN, ANALYSIS) == (
        "Hybrid by posix, best layout surely beats the better arm alone at 1 of 2 lengths, at 1,024 tokens; "
        "1.50 × as fast as load at 8,192 tokens (no interval) (suspect: not_cold).",
    )
    assert describe_hybrids(
        RUN, _with(points=(), notices=(Notice(kind="not_cold", detail="3 of 3 samples"),))
    ) == ("Hybrid by posix, best layout: nothing measured (not_cold: 3 of 3 samples).",)
    assert describe_hybrids(RUN, replace(ANALYSIS, hybrids=())) == ()


def test_a_hybrid_that_wins_within_its_interval_only_is_not_said_to_win() -> None:
    point = replace(POINTS[0], speedup=Estimate(1.05, 0.9, 1.2))
    assert describe_hybrids(RUN, _with(points=(point,))) == (
        "Hybrid by posix, best layout surely beats the better arm alone at none of 1 length; "
        "1.05 × as fast as recompute at 1,024 tokens (0.900 to 1.20).",
    )
    both = tuple(replace(point, prefix_tokens=n, speedup=Estimate(1.5, 1.2, 2.0)) for n in (512, 1024))
    assert (
        "at 2 of 2 lengths, the shortest of them 512 tokens; 1.50 ×"
        in describe_hybrids(RUN, _with(points=both))[0]
    )


def test_the_table_has_three_more_columns_only_where_hybrid_was_measured() -> None:
    lines = plain(closing_table(RUN, ANALYSIS)).splitlines()
    assert "hybrid [95 %]  loaded     better/hybrid" in lines[1]
    assert "40.0 ms [38.0–42.0]  25.0 %  1.13 [1.05–1.20]" in lines[2]
    assert "hybrid" not in plain(closing_table(RUN, replace(ANALYSIS, hybrids=())))
    one = plain(closing_table(RUN, _with(points=POINTS[:1]))).splitlines()
    assert one[3].split()[-3:] == ["—", "—", "—"]


def test_the_figure_has_a_third_curve_with_a_colour_of_its_own() -> None:
    axes = Figure().add_subplot()
    draw_crossover(axes, RUN, SAMPLES, analysis=ANALYSIS)
    lines = {str(line.get_label()): line for line in axes.lines}
    line = lines["hybrid: posix, best layout"]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1024, 8192], [0.04, 0.25])
    assert (line.get_color(), line.get_marker()) == ("#009E73", "^")
    (load,) = (line for name, line in lines.items() if name.startswith("posix"))
    assert load.get_color() == "#0072B2"


def test_a_skipped_hybrid_draws_nothing_and_an_unmeasured_one_is_named() -> None:
    for curve, said in (
        ({"skipped": "why", "points": ()}, ""),
        ({"points": ()}, "no samples that count: hybrid: posix"),
    ):
        axes = Figure().add_subplot()
        draw_crossover(axes, RUN, SAMPLES, analysis=_with(**curve))
        found = "\n".join(text.get_text() for text in axes.texts)
        assert said in found and ("hybrid" in found) == bool(said)


def test_the_report_shows_sentence_and_columns(tmp_path: Path) -> None:
    page = render_report(RUN, SAMPLES, ANALYSIS)
    assert "All arms by prefix length" in page
    assert "1.50 × as fast as load at 8,192 tokens" in page
    assert '<th scope="col">better/hybrid</th>' in page
    plain = render_report(make_run(), SAMPLES, replace(ANALYSIS, hybrids=()))
    assert "Both arms by prefix length" in plain and "better/hybrid" not in plain


def test_files_are_the_same_bytes_when_written_again(tmp_path: Path) -> None:
    samples = _samples(256, [(3.0, 2.0, 1.6)] * 6)
    contents = []
    for _ in range(2):
        analysis = analyse(_run(), samples)
        paths = write_results(tmp_path, _run(), samples, analysis=analysis)
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]
