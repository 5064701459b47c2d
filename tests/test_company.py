"""Sweeps that come to a folder while another measures there."""

from pathlib import Path

from bench.measure.clock import VirtualClock
from bench.measure.site import Site
from bench.measure.sweep import _look_around as look_around
from kvio.scratch import open_scratch
from tests.test_runner import Scripted, _rounds


def test_a_sweep_says_that_another_came_after_it_had_begun(tmp_path: Path) -> None:
    clock = VirtualClock()
    rounds = _rounds(clock, budget_s=60.0)
    written: list[int] = []

    def look(site: Site) -> None:
        look_around(site, rounds, lambda: written.append(len(rounds.notices)))

    with open_scratch(tmp_path) as ours:
        site = Site(clock, Scripted(), ours, 0.0)
        look(site)
        assert written == []
        with open_scratch(tmp_path):
            look(site)
            look(site)
        look(site)
    assert [(notice.code, notice.message) for notice in rounds.notices] == [
        ("another_run", "1 other sweep used the same folder when this one measured: each disturbs the other")
    ]
    assert written == [1, 1, 1]
