"""What the benchmark of reads makes of its readings."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.places import require_disk
from tests.perf.contender_packages import close_children
from tests.perf.contenders import CONTENDERS, Contender
from tests.perf.fileset import FileSet, write_files
from tests.perf.read_comparison import Comparison, Reading, as_csv, compare, measure

TEAMS = {"ours": "us", "theirs": "them"}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[FileSet]:
    yield write_files(require_disk(tmp_path), 128 << 10, num_files=3)
    close_children()


def _readings(seconds: Callable[[str, int, int], float], *, depths: tuple[int, ...] = (1,)) -> list[Reading]:
    return [
        Reading(1 << 20, depth, repetition, 0, name, 1000 * depth, seconds(name, depth, repetition))
        for repetition in range(6)
        for depth in depths
        for name in TEAMS
    ]


def _only(comparisons: list[Comparison], kind: str) -> Comparison:
    (found,) = (one for one in comparisons if one.kind == kind)
    return found


def test_readings_are_compared_within_their_repetition() -> None:
    readings = _readings(lambda name, depth, repetition: 2.0**repetition * (3.0 if name == "theirs" else 1.0))
    found = _only(compare(readings, TEAMS, our_teams=("us",)), "setting")
    assert (found.ours, found.theirs, found.depth, found.num_repetitions) == ("ours", "theirs", 1, 6)
    assert [found.ratio, found.ratio_low, found.ratio_high] == pytest.approx([3.0, 3.0, 3.0])


def test_seconds_count_for_each_byte_where_depths_read_different_amounts() -> None:
    readings = _readings(lambda name, depth, repetition: float(depth), depths=(1, 4))
    found = _only(compare(readings, TEAMS, our_teams=("us",)), "best")
    assert (found.depth, found.our_bytes_per_s, found.their_bytes_per_s) == (None, 1000.0, 1000.0)


def test_a_setting_is_not_judged_by_the_repetitions_that_chose_it() -> None:
    def seconds(name: str, depth: int, repetition: int) -> float:
        if name == "theirs":
            return float(depth)
        lucky = repetition % 2 == (0 if depth == 1 else 1)  # either depth looks best in one half
        return depth * (0.5 if lucky else 2.0)

    found = _only(compare(_readings(seconds, depths=(1, 4)), TEAMS, our_teams=("us",)), "best")
    assert found.ratio == pytest.approx(0.5)  # judged by what chose it, it would be 2


def test_a_table_row_names_both_and_leaves_empty_what_there_is_none_of() -> None:
    readings = _readings(lambda name, depth, repetition: 1.0)
    header, setting, best = as_csv(compare(readings, TEAMS, our_teams=("us",))).splitlines()
    assert header.startswith(
        "kind,request_bytes,depth,ours,theirs,ratio,ratio_low,ratio_high,num_repetitions"
    )
    assert setting == "setting,1048576,1,ours,theirs,1,1,1,6,1000,1000"
    assert best == "best,1048576,,us,them,1,1,1,6,1000,1000"


def test_every_repetition_has_each_contender_once_at_each_depth(scratch: FileSet) -> None:
    asked: list[tuple[str, int, int]] = []

    def reader(name: str) -> Contender:
        def read(files: FileSet, depth: int) -> float:
            asked.append((name, depth, len(files.paths)))
            return 1.0

        return Contender(name, name, "nothing", read)

    readings = measure(scratch, [reader("a"), reader("b")], num_files_at={1: 2, 4: 3}, num_repetitions=3)
    assert sorted(asked) == sorted(
        [(name, depth, count) for name in "ab" for depth, count in ((1, 2), (4, 3))] * 3
    )
    assert [(one.contender, one.depth) for one in readings] == [(name, depth) for name, depth, _ in asked]
    assert [one.num_bytes for one in readings if one.depth == 4] == [3 * scratch.request_bytes] * 6


def test_a_reader_that_fills_the_page_cache_is_found_out(scratch: FileSet) -> None:
    scratch.require_uncached("nobody")
    scratch.paths[0].read_bytes()
    with pytest.raises(AssertionError, match="buffered left 131072 bytes in the page cache"):
        scratch.require_uncached("buffered")


@pytest.mark.slow
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: contender.name)
def test_every_contender_reads_all_bytes_past_the_page_cache(contender: Contender, scratch: FileSet) -> None:
    why = contender.missing()
    if why is not None:
        pytest.skip(why)
    assert contender.read(scratch, 2) > 0
    scratch.require_uncached(contender.name)
