"""Which series a run's answer is about."""

from bench.analyse.analysis import analyse
from bench.analyse.answer import Analysis
from bench.show.facts import main_spot
from tests.sweeps import make_run, make_samples


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


def test_the_first_one_asked_for_gives_the_answer_and_also_where_none_was_measured() -> None:
    assert _answer_about(("load-1", "mooncake/best")) == "load-1"
    assert _answer_about(("mooncake/best", "load-1"), measured=False) == "mooncake/best"
    assert main_spot(make_run(), Analysis((), (), (), ())) is None
