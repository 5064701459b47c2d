"""Which series a run's answer is about."""

from dataclasses import replace

from bench.estimate.analysis import analyse
from bench.estimate.results import Analysis
from bench.record.notices import Notice
from bench.report.notice_text import suspect_codes
from bench.report.text.main_answer import main_spot
from tests.sweeps import make_run, make_samples

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
    failed = Notice(code="series_failed", message="broken/best: could not be read any more: gone")
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
    notice = Notice(code="storage_unproved", message="a/best, b/best: on tmpfs: nothing is proved there")
    run = first.model_copy(update={"series": series, "notices": (notice,)})
    told = [name for name in series if "storage_unproved" in suspect_codes(run, [], NOTHING, series=name)]
    assert told == ["a/best", "b/best"]


def test_the_first_one_asked_for_gives_the_answer_and_also_where_none_was_measured() -> None:
    assert _answer_about(("load-1", "mooncake/best")) == "load-1"
    assert _answer_about(("mooncake/best", "load-1"), measured=False) == "mooncake/best"
    assert main_spot(make_run(), NOTHING) is None
