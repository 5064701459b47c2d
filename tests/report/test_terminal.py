"""Which series a run's answer is about."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis
from bench.record.notices import KINDS, Notice
from bench.report.notice_text import suspect_codes
from bench.report.progress_bar import SweepProgress
from bench.report.text.closing_table import closing_table
from bench.report.text.main_answer import main_spot
from bench.report.text.terminal import plain
from tests.helpers.sweeps import make_analysis, make_notice, make_run, make_samples

SAMPLES = make_samples(tokens=(8192,), num_rounds=1, num_samples=2)


class FakeClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


def test_a_notice_is_a_line_that_stays_on_a_terminal_too() -> None:
    for terminal in (False, True):
        stream = io.StringIO()
        with SweepProgress(
            Console(file=stream, width=60, force_terminal=terminal, color_system=None),
            120.0,
            now_s=FakeClock(),
        ) as progress:
            progress.on_notice("files in memory [bold]\x1b[31m")
        assert "notice: files in memory [bold][31m\n" in stream.getvalue()


def run_sweep(console: Console) -> None:
    clock = FakeClock()
    with SweepProgress(console, 120.0, now_s=clock) as progress:
        progress.on_phase("preparing [bold]files[/bold]\x1b[31m")
        for number in range(2):
            clock.time_s += 30.25
            progress.on_round(number, (512, 8192))
            for sample in SAMPLES:
                progress.on_sample(sample)
        progress.on_answer("C* = 7,208 tokens")


def test_a_log_gets_one_plain_line_per_round() -> None:
    stream = io.StringIO()
    run_sweep(Console(file=stream, width=40))
    assert stream.getvalue().splitlines() == [
        "[   0.0 s of 120 s, 0 samples] preparing [bold]files[/bold][31m",
        "[  30.2 s of 120 s, 0 samples] round 1: 2 lengths, 512 to 8,192 tokens",
        "[  60.5 s of 120 s, 4 samples] round 2: 2 lengths, 512 to 8,192 tokens",
        "[  60.5 s of 120 s, 8 samples] C* = 7,208 tokens",
    ]


def test_a_sweep_that_is_gone_on_with_counts_what_its_earlier_parts_took() -> None:
    stream = io.StringIO()
    with SweepProgress(
        Console(file=stream), 120.0, spent_s=50.0, num_samples=53, now_s=FakeClock()
    ) as progress:
        progress.on_phase("preparing")
    assert stream.getvalue() == "[  50.0 s of 120 s, 53 samples] preparing\n"


def test_a_log_holds_no_control_characters() -> None:
    stream = io.StringIO()
    run_sweep(Console(file=stream))
    assert not any(ord(character) < 32 and character != "\n" for character in stream.getvalue())


def test_a_terminal_sees_time_left_round_and_last_sample() -> None:
    stream = io.StringIO()
    clock = FakeClock()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    progress = SweepProgress(console, 120.0, now_s=clock)
    progress.on_round(2, (8192,))
    clock.time_s += 45
    progress.on_sample(SAMPLES[0])
    progress.close()
    seconds = SAMPLES[0].outcome.seconds * 1000
    assert "1:15 left" in stream.getvalue()
    assert "round 3" in stream.getvalue()
    assert f"recompute 8,192 tokens: {seconds:.0f} ms" in stream.getvalue()


def test_over_budget_no_time_is_left_and_never_less() -> None:
    stream = io.StringIO()
    clock = FakeClock()
    progress = SweepProgress(Console(file=stream, force_terminal=True, width=120), 10.0, now_s=clock)
    clock.time_s += 11
    progress.on_phase("analysing")
    progress.close()
    assert "0:00 left" in stream.getvalue() and "-" not in stream.getvalue().split("left")[-2][-6:]


def test_closing_twice_is_safe() -> None:
    progress = SweepProgress(Console(file=io.StringIO(), force_terminal=True), 1.0, now_s=FakeClock())
    progress.close()
    progress.close()


SAMPLES_TABLE = make_samples(tokens=(1024, 8192), num_rounds=2, num_samples=2)
ANALYSIS = make_analysis(SAMPLES_TABLE)


def test_every_length_is_one_line_with_both_arms_and_their_intervals() -> None:
    lines = plain(closing_table(make_run(), ANALYSIS)).splitlines()
    assert lines[0] == "Qwen3-8B: recompute against load by posix, best layout"
    assert lines[1].split("  ")[0] == "prefix tokens"
    point = ANALYSIS.points[1]
    assert point.recompute_s is not None and point.load_s is not None
    assert lines[3].split()[0] == "8,192"
    assert f"{point.recompute_s.value * 1e3:.0f} ms [" in lines[3]
    assert f"{point.load_s.value * 1e3:.0f} ms [" in lines[3]
    assert len(lines) == 4


def test_a_missing_arm_is_a_dash() -> None:
    point = replace(
        ANALYSIS.points[0],
        load_s=None,
        ratio=None,
        first_token_s=None,
        bytes_per_s=None,
        break_even_bytes_per_s=None,
        mfu=None,
    )
    line = plain(closing_table(make_run(), replace(ANALYSIS, points=(point,)))).splitlines()[2]
    assert line.split()[-6:] == ["—"] * 6


def test_notices_are_marked_and_explained_below() -> None:
    point = replace(
        ANALYSIS.points[0], notices=("drift_load", "drift_load", "not_cold"), recompute_scaled=True
    )
    lines = plain(
        closing_table(make_run(notices=(make_notice(),)), replace(ANALYSIS, points=(point,)))
    ).splitlines()
    assert lines[2].endswith("1 2")
    assert lines[3:] == [
        "* scaled from fewer layers; of a load, the first-token step is",
        "1 drift_load: load got 9 % slower over the sweep",
        f"2 not_cold: {KINDS['not_cold'].meaning}",
    ]


def test_a_ratio_that_is_not_that_of_the_times_beside_it_is_explained() -> None:
    point = ANALYSIS.points[0]
    assert point.ratio is not None
    assert "median of the rounds' ratios" not in plain(closing_table(make_run(), ANALYSIS))
    other = replace(point, ratio=replace(point.ratio, value=point.ratio.value * 1.2))
    said = plain(closing_table(make_run(), replace(ANALYSIS, points=(other,))))
    assert (
        "recompute / load is the median of the rounds' ratios, not the ratio of the medians beside it" in said
    )


def test_a_series_without_points_is_said() -> None:
    assert plain(closing_table(make_run(), replace(ANALYSIS, points=()))).endswith(
        "posix, best layout: nothing measured"
    )


def test_nothing_at_all_is_said() -> None:
    assert (
        plain(closing_table(make_run(series={}), replace(ANALYSIS, points=(), spots=())))
        == "no load series was measured"
    )


def test_names_from_outside_are_neither_markup_nor_control() -> None:
    run = make_run(model_name="[bold]x[/bold]\x1b[31m")
    stream = io.StringIO()
    Console(file=stream, width=140).print(closing_table(run, ANALYSIS))
    assert "[bold]x[/bold][31m: recompute against load" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    assert "\x1b" not in plain(closing_table(run, ANALYSIS))


def test_the_terminal_table_has_the_same_cells() -> None:
    stream = io.StringIO()
    Console(file=stream, width=160).print(closing_table(make_run(), ANALYSIS))
    for line in plain(closing_table(make_run(), ANALYSIS)).splitlines()[2:]:
        assert all(cell in stream.getvalue() for cell in line.split("  ") if cell)


def test_with_a_suffix_the_title_says_that_the_next_tokens_were_timed() -> None:
    run = make_run(plan=make_run().plan.model_copy(update={"suffix_tokens": 64}))
    assert plain(closing_table(run, ANALYSIS)).startswith(
        "Qwen3-8B: recompute of the next 64 tokens against load by posix, best layout"
    )


def test_a_load_whose_first_token_step_was_scaled_is_marked_as_recompute_is() -> None:
    point = replace(ANALYSIS.points[0], load_scaled=True)
    lines = plain(closing_table(make_run(), replace(ANALYSIS, points=(point,)))).splitlines()
    assert "44.9 ms [44.4–45.4]  310 ms [308–313] *" in lines[2]
    assert lines[3] == "* scaled from fewer layers; of a load, the first-token step is"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_breaks_figures_and_loses_none(width: int) -> None:
    stream = io.StringIO()
    Console(file=stream, width=width).print(closing_table(make_run(), ANALYSIS))
    assert "…" not in stream.getvalue()


NOTHING = Analysis((), (), (), ())


def _answer_about(order: tuple[str, ...], *, measured: bool = True) -> str | None:
    first = make_run()
    info = first.series["load-1"]
    series = {"recompute": first.series["recompute"], **dict.fromkeys(order, info)}
    run = first.model_copy(update={"series": series})
    samples = [one for one in make_samples() if measured or one.case.arm != "load"]
    spot = main_spot(run, analyse(run, samples))
    return spot and spot.series


def test_a_way_that_broke_before_its_first_sample_does_not_give_the_answer() -> None:
    assert _answer_about(("mooncake/best", "load-1")) == "load-1"


def test_a_way_that_broke_in_mid_sweep_comes_after_one_that_did_not() -> None:
    first = make_run()
    both = {"broken/best": first.series["load-1"], **first.series}
    failed = Notice(kind="series_failed", series="broken/best", detail="could not be read any more: gone")
    samples = make_samples()
    samples += [
        replace(one, case=replace(one.case, series="broken/best"))
        for one in samples
        if one.case.arm == "load"
    ]
    spots = {}
    for name, notices in (("all", ()), ("one broken", (failed,))):
        run = first.model_copy(update={"series": both, "notices": notices})
        spot = main_spot(run, analyse(run, samples))
        spots[name] = spot and spot.series
    assert spots == {"all": "broken/best", "one broken": "load-1"}


def test_a_notice_of_several_series_concerns_each_of_them_and_no_other() -> None:
    first = make_run()
    series = {name: first.series["load-1"] for name in ("a/best", "b/best", "c/best")}
    notices = tuple(Notice(kind="storage_unproved", series=name, detail="tmpfs") for name in list(series)[:2])
    run = first.model_copy(update={"series": series, "notices": notices})
    told = [name for name in series if "storage_unproved" in suspect_codes(run, [], NOTHING, series=name)]
    assert told == ["a/best", "b/best"]


def test_the_first_one_asked_for_gives_the_answer_and_also_where_none_was_measured() -> None:
    assert _answer_about(("load-1", "mooncake/best")) == "load-1"
    assert _answer_about(("mooncake/best", "load-1"), measured=False) == "mooncake/best"
    assert main_spot(make_run(), NOTHING) is None
