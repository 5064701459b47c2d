"""Equal ways to load are told apart in few tables only, and a slower one still is."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench.estimate.analysis import analyse
from bench.estimate.intervals import summarise_positive
from bench.estimate.tiers import PLACES, TierTable, find_place, indistinguishable, make_tiers
from bench.measure.setup import resolve_plan
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan, PlanError
from bench.record.sample import Case
from bench.report.frames import tier_frame
from bench.report.html import tier_grid
from bench.report.text.terminal import plain
from bench.report.text.tier_text import format_homes, shown_lengths, tier_rows, tier_table, tier_title
from tests.helpers.sweeps import make_run
from tests.helpers.tier_sweeps import (
    DISK,
    MEMORY,
    NEVER,
    OBJECTS,
    SLOW_DISK,
    WILD,
    Way,
    make_tier_run,
    make_tier_samples,
)

ALL = (NEVER, DISK, OBJECTS, MEMORY, SLOW_DISK)


def tiers_of(ways: Sequence[Way], num_rounds: int = 6) -> TierTable:
    run, samples = make_tier_run(ways), make_tier_samples(ways, num_rounds=num_rounds)
    return make_tiers(run, samples, analyse(run, samples))


def test_tiers_go_from_the_fastest_to_the_slowest() -> None:
    found = [(tier.series, tier.bytes_per_s.value) for tier in tiers_of(ALL).tiers if tier.bytes_per_s]
    assert found == [
        ("hostmem/best", pytest.approx(10e9)),
        ("posix/best", pytest.approx(4e9)),
        ("s3/best", pytest.approx(2.5e9)),
        ("posix/lmcache", pytest.approx(2e9)),
        ("nixl/best", pytest.approx(0.5e9)),
    ]


def test_the_order_is_that_of_the_load_times_where_the_first_token_step_costs_what_the_rate_gains() -> None:
    rapid = Way("hostmem", bytes_per_s=10e9, fixed_s=0.5, cache_state=None)  # at 8,000: 0.58 s
    table = tiers_of((rapid, DISK))  # 0.3875 s at 4 GB/s
    assert [tier.series for tier in table.tiers] == ["posix/best", "hostmem/best"]
    assert (table.order_tokens, tier_title(table)) == (
        8000,
        "Where a prefix may live: tiers by load time at 8,000 tokens",
    )


def test_tiers_are_ordered_at_the_longest_length_that_all_have() -> None:
    run = make_tier_run((MEMORY, DISK))
    samples = [s for s in make_tier_samples((MEMORY, DISK)) if s.case != Case("load", "posix/best", 8000)]
    table = make_tiers(run, samples, analyse(run, samples))
    assert (table.order_tokens, table.tiers[0].series) == (4000, "hostmem/best")
    apart = [s for s in samples if s.case.series != "hostmem/best" or s.case.prefix_tokens == 8000]
    table = make_tiers(run, apart, analyse(run, apart))
    assert table.order_tokens is None
    assert [tier.series for tier in table.tiers] == ["hostmem/best", "posix/best"]  # 0.08 s, 0.2875 s
    assert tier_title(table).endswith("tiers by load time at the longest length of each")


def test_a_prefix_may_live_in_a_tier_from_its_crossover_on_in_whole_chunks() -> None:
    tiers = {tier.series: tier for tier in tiers_of(ALL).tiers}
    assert tiers["hostmem/best"].from_tokens == 1000  # always wins: the shortest length measured
    assert tiers["nixl/best"].from_tokens is None  # never
    spot = tiers["posix/best"].whole
    assert spot is not None and spot.crossings[0].tokens.value == pytest.approx(2500, rel=0.03)
    assert tiers["posix/best"].from_tokens == 2560
    assert tiers["posix/lmcache"].from_tokens in {5120, 4864}


def test_the_cheapest_place_that_beats_recompute_is_the_home() -> None:
    homes = {home.prefix_tokens: (home.series, home.place) for home in tiers_of(ALL).homes}
    assert homes == {
        1000: ("hostmem/best", "host memory"),
        2000: ("hostmem/best", "host memory"),
        4000: ("posix/best", "local disk"),  # objects tie at 5,000
        8000: ("s3/best", "object store"),
    }


def test_of_several_tiers_in_one_place_the_fastest_is_the_home() -> None:
    (*_, last) = tiers_of((SLOW_DISK, DISK)).homes
    assert (last.prefix_tokens, last.series) == (8000, "posix/best")


LEVEL = Way(
    "uring", bytes_per_s=3.9e9, fixed_s=0.1875, spread=0.1
)  # 2.5 % behind DISK in transfer, rounds 20 % apart


def test_tiers_of_one_place_that_rounds_cannot_tell_apart_are_named_together() -> None:
    ways = (SLOW_DISK, DISK, LEVEL)
    table = tiers_of(ways)
    last = table.homes[-1]
    assert (last.series, last.ties) == ("posix/best", ("uring/best",))  # lmcache is slower in every round
    assert format_homes(make_tier_run(ways), table)[-1] == (
        "at 4,000 to 8,000 tokens the cheapest tier that beats recompute is local disk: "
        "posix, best layout or uring, best layout (the same within the noise)"
    )
    cells = tier_frame(table).set_index("series")["cheapest_at_tokens"]
    assert cells["posix/best"] == cells["uring/best"] == "4000;8000"
    assert "8000" not in str(cells["posix/lmcache"])


def test_the_same_noise_in_both_hides_no_difference() -> None:
    slower = Way("uring", bytes_per_s=3.9e9, fixed_s=0.1875)
    assert tiers_of((DISK, slower)).homes[-1].ties == ()


def test_a_cheaper_tier_whose_rounds_disagree_is_named_and_not_chosen() -> None:
    (*_, last) = tiers_of((MEMORY, WILD)).homes
    assert (last.series, last.undecided) == ("hostmem/best", ("s3/best",))


def test_without_intervals_nothing_is_a_home() -> None:
    table = tiers_of((MEMORY, DISK), num_rounds=2)
    assert {home.series for home in table.homes} == {None}
    assert {home.undecided for home in table.homes} == {("hostmem/best", "posix/best")}


@pytest.mark.parametrize(
    ("backend", "storage", "place"),
    [
        ("hostmem", "ext4 on vda (virtio)", "host memory"),
        ("hostmem-pinned", "ext4 on vda (virtio)", "host memory"),
        ("posix", "ext4 on vda (virtio)", "local disk"),
        ("mooncake", "a Mooncake store", "store memory"),
        ("posix", "nfs4 (network)", "network storage"),
        ("uring", "ext4 on nbd0 (network)", "network storage"),
        ("posix", "tmpfs (in memory)", "host memory"),
        ("simulated", "a simulated drive", "simulated drive"),
    ],
)
def test_the_place_follows_from_backend_and_storage(backend: str, storage: str, place: str) -> None:
    run = make_tier_run((Way(backend),)).model_copy(update={"storage": {"name": storage}})
    assert find_place(run, f"{backend}/best") == place
    assert place in PLACES


def test_files_beside_objects_are_on_the_drive_that_they_are_placed_from() -> None:
    run = make_tier_run((DISK, OBJECTS))
    run = run.model_copy(update={"storage": {"name": "bucket kv", "placed_from": {"name": "nfs (network)"}}})
    assert (find_place(run, "s3/best"), find_place(run, "posix/best")) == ("object store", "network storage")


def test_the_frame_has_a_row_for_each_tier_and_one_for_recompute() -> None:
    frame = tier_frame(tiers_of((DISK, MEMORY)))
    assert frame["series"].tolist() == ["hostmem/best", "posix/best", "recompute"]
    row = frame.iloc[1].dropna().to_dict()
    assert row.pop("whole_crossover_tokens") == pytest.approx(2500, rel=0.03)
    kept = {name: value for name, value in row.items() if "crossover" not in name and "read_" not in name}
    assert kept == {
        "series": "posix/best",
        "place": "local disk",
        "backend": "posix",
        "layout": "best",
        "data_path": "posix-direct",
        "cache_state": "direct",
        "whole_verdict": "crossover",
        "marginal_verdict": "load_always_wins",
        "from_tokens": 2560,
        "cheapest_at_tokens": "4000;8000",
        "at_1000_tokens_s": pytest.approx(0.2125),
        "at_2000_tokens_s": pytest.approx(0.2375),
        "at_4000_tokens_s": pytest.approx(0.2875),
        "at_8000_tokens_s": pytest.approx(0.3875),
    }
    assert row["read_at_tokens"] == 8000
    last = frame.iloc[2].dropna().to_dict()
    assert last == {
        "series": "recompute",
        "at_1000_tokens_s": pytest.approx(0.1),
        "at_2000_tokens_s": pytest.approx(0.2),
        "at_4000_tokens_s": pytest.approx(0.4),
        "at_8000_tokens_s": pytest.approx(0.8),
    }


def test_the_rows_say_where_how_fast_and_from_where_on() -> None:
    ways = (NEVER, MEMORY, OBJECTS)
    run = make_tier_run(ways)
    rows = tier_rows(run, tiers_of(ways))
    assert [(row[0], row[1], row[2], row[3], row[-1]) for row in rows] == [
        ("hostmem, best layout", "host memory", "hostmem-direct", "—", "1,000 (shortest)"),
        ("s3, best layout", "object store", "s3-direct", "unverified", rows[1][-1]),
        ("nixl, best layout", "local disk", "nixl-direct", "direct", "never up to 8,000"),
        ("recompute", "", "", "", ""),
    ]
    assert rows[2][5] == "recompute always wins"
    assert rows[0][7:11] == ("10.0 ms", "20.0 ms", "40.0 ms", "80.0 ms")


def test_lengths_with_the_same_home_are_one_line() -> None:
    run = make_tier_run((MEMORY, DISK))
    assert format_homes(run, tiers_of((MEMORY, DISK))) == (
        "at 1,000 to 2,000 tokens the cheapest tier that beats recompute is host memory: hostmem, best layout",
        "at 4,000 to 8,000 tokens the cheapest tier that beats recompute is local disk: posix, best layout",
    )
    assert format_homes(run, tiers_of((NEVER,))) == (
        "at 1,000 to 8,000 tokens no tier surely beats recompute",
    )


def test_of_many_lengths_four_are_shown_with_both_ends() -> None:
    samples = make_tier_samples((DISK,), lengths=[1000 * n for n in range(1, 12)])
    run = make_tier_run((DISK,))
    table = make_tiers(run, samples, analyse(run, samples))
    assert shown_lengths(table) == (1000, 4000, 8000, 11_000)


def test_with_a_suffix_the_marginal_question_decides() -> None:
    run = make_tier_run((MEMORY, NEVER), suffix_tokens=256)
    samples = make_tier_samples((MEMORY, NEVER), suffix_tokens=256)
    table = make_tiers(run, samples, analyse(run, samples))
    assert [tier.from_tokens for tier in table.tiers] == [1000, None]
    assert "at N: time of the next 256 tokens after so many; GB/s" in plain(tier_table(run, table))
    assert tier_rows(run, table)[0][5:7] == ("—", "load always wins")  # C* was not asked for
    assert tier_rows(run, table)[1][-1] == "never up to 8,000"


def test_what_was_skipped_is_said_below_the_tiers() -> None:
    skipped = Notice(kind="backend_unavailable", detail="gds skipped: no GPU; try: a GPU")
    run = make_tier_run((MEMORY, DISK)).model_copy(update={"notices": (skipped,)})
    samples = make_tier_samples((MEMORY, DISK))
    table = make_tiers(run, samples, analyse(run, samples))
    assert tier_grid(run, table).footnotes[-1] == "gds skipped: no GPU; try: a GPU"


def test_a_series_without_samples_keeps_its_row() -> None:
    run = make_tier_run((MEMORY, DISK))
    samples = make_tier_samples((MEMORY,))
    table = make_tiers(run, samples, analyse(run, samples))
    assert tier_rows(run, table)[1][:5] == ("posix, best layout", "local disk", "—", "—", "—")
    assert tier_rows(run, table)[1][-1] == "undecided"


def test_a_run_without_series_has_no_tiers() -> None:
    run = make_run(series={})
    assert make_tiers(run, [], analyse(run, [])).tiers == ()


def test_a_tier_whose_cache_state_nobody_knows_is_said_to_be_unverified() -> None:
    ways = (MEMORY, Way("s3", bytes_per_s=8e9, cache_state="unverified", server="bucket kv at http://s3"))
    (line,) = format_homes(make_tier_run(ways), tiers_of(ways))
    assert line.endswith("is object store: s3, best layout (its cache state is unverified)")


def test_samples_that_do_not_count_are_said_beside_the_tier() -> None:
    run = make_tier_run((MEMORY, DISK))
    settings = {**run.series["posix/best"].settings, "cache_state": "direct"}
    series = run.series["posix/best"].model_copy(update={"settings": settings})
    run = run.model_copy(update={"series": {**run.series, "posix/best": series}})
    samples = [
        replace(s, outcome=replace(s.outcome, cache_state="warm"))
        if s.case == Case("load", "posix/best", 8000)
        else s
        for s in make_tier_samples((MEMORY, DISK))
    ]
    table = make_tiers(run, samples, analyse(run, samples))
    (line,) = (note for note in tier_grid(run, table).footnotes if "6 of 24" in note)
    assert line.startswith("posix, best layout: ")


def test_memory_may_stand_beside_a_drive_under_a_read_limit_and_not_alone() -> None:
    loads = (LoadSpec(), LoadSpec(backend="hostmem"))
    plan = Plan(model="qwen3-8b", loads=loads, limit_bytes_per_s=1e8)
    assert [load.name for load in resolve_plan(plan).loads] == ["posix/best", "hostmem/best"]
    with pytest.raises(PlanError, match="hostmem reads none"):
        resolve_plan(plan.model_copy(update={"loads": loads[1:]}))
    objects = LoadSpec(backend="s3", options={"bucket": "kv", "endpoint": "http://127.0.0.1:1"})
    with pytest.raises(PlanError, match="s3 reads none"):
        resolve_plan(plan.model_copy(update={"loads": (*loads, objects)}))


def test_a_length_without_samples_of_a_tier_is_not_undecided_but_not_there() -> None:
    run = make_tier_run((MEMORY, DISK))
    samples = [
        s for s in make_tier_samples((MEMORY, DISK)) if s.case not in {Case("load", "posix/best", 8000)}
    ]
    table = make_tiers(run, samples, analyse(run, samples))
    assert [point.prefix_tokens for point in table.tiers[1].points] == [1000, 2000, 4000]
    last = table.homes[-1]
    assert (last.prefix_tokens, last.series, last.undecided) == (8000, "hostmem/best", ())
    assert [cell == "—" for cell in tier_rows(run, table)[1][7:11]] == [False, False, False, True]


LAYOUTS = ("lmcache", "vllm-fs", "kvbm")
EQUAL = tuple(Way("simulated", layout, bytes_per_s=4e9) for layout in LAYOUTS)
NEAR_RECOMPUTE = tuple(replace(way, fixed_s=0.1875) for way in EQUAL)  # ties with it at 2,500
LENGTHS = tuple(1000 * n for n in range(1, 7))
NUM_ROUNDS, NOISE, SEEDS = 8, 0.03, range(40)


def _noisy_table(
    ways: Sequence[Way], seed: int, *, slower: float = 1.0, lengths: Sequence[int] = LENGTHS
) -> TierTable:
    """A sweep whose every sample has noise of its own; the last way is so many times slower."""
    rng, run = np.random.default_rng(seed), make_tier_run(ways)
    samples = []
    for sample in make_tier_samples(ways, lengths=lengths, num_rounds=NUM_ROUNDS):
        factor = float(np.exp(rng.normal(0, NOISE)))
        factor *= slower if sample.case.series == ways[-1].series else 1
        samples.append(
            replace(sample, outcome=replace(sample.outcome, seconds=sample.outcome.seconds * factor))
        )
    return make_tiers(run, samples, analyse(run, samples))


def _tells_apart(table: TierTable) -> bool:
    names = {tier.series for tier in table.tiers}
    homes = (home for home in table.homes if home.series is not None)
    left_out = any({*home.all_series, *home.undecided} != names for home in homes)
    return left_out or table.undecided != (tuple(tier.series for tier in table.tiers),)


def test_equal_ways_are_told_apart_in_one_table_of_twenty_at_most() -> None:
    assert sum(_tells_apart(_noisy_table(EQUAL, seed)) for seed in SEEDS) <= len(SEEDS) / 20


def test_of_equal_ways_those_that_are_undecided_against_recompute_are_named_beside_the_home() -> None:
    tables = [
        _noisy_table(NEAR_RECOMPUTE, seed, lengths=(2000, 2300, 2500, 2600, 2700, 3000)) for seed in SEEDS
    ]
    homes = [home for table in tables for home in table.homes]
    assert sum(home.series is not None and home.undecided != () for home in homes) > len(SEEDS) / 2
    assert sum(map(_tells_apart, tables)) <= len(SEEDS) / 20


def test_a_way_that_is_a_fifth_slower_is_told_apart_at_nearly_all_lengths() -> None:
    homes = [home for seed in range(10) for home in _noisy_table(EQUAL, seed, slower=1.2).homes]
    slow = EQUAL[-1].series
    assert sum(slow not in home.all_series for home in homes) >= 0.95 * len(homes)


def test_one_comparison_of_many_needs_more_than_its_own_interval() -> None:
    one = dict.fromkeys(range(6), 1.0)
    other = dict(enumerate((1.01, 1.02, 1.03, 1.02, 1.05, 1.06)))
    found = summarise_positive(list(other.values()))
    assert found is not None and found.low is not None and found.low > 1
    assert not indistinguishable(one, other, level=0.05)
    assert indistinguishable(one, other, level=0.05 / 12)  # t = 4.06 with 5 degrees of freedom: p = 0.0098


def test_a_wild_round_is_not_told_by_the_t_test_alone() -> None:
    one = dict.fromkeys(range(8), 1.0)
    mixed = dict(enumerate((0.99, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 0.98)))  # t says 0.003, the interval holds 1
    assert indistinguishable(one, mixed, level=0.05)


@pytest.mark.parametrize(("other", "same"), [(1.0, True), (1.01, False)])
def test_rounds_without_noise_tell_exactly(other: float, same: bool) -> None:
    assert indistinguishable(dict.fromkeys(range(6), 1.0), dict.fromkeys(range(6), other), level=1e-9) is same


def test_two_rounds_tell_nothing() -> None:
    assert indistinguishable({0: 1.0, 1: 1.0}, {0: 2.0, 1: 2.1}, level=0.05)
