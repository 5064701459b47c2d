"""Chunk files within the budget: what a chunk costs to be written and placed here, and how many there can be."""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure.plan import PlanError
from bench.measure.policy import Observer
from bench.measure.record import Notice
from bench.measure.runner import Rounds, leave_out
from bench.measure.server import find_server
from bench.measure.setup import Setup
from bench.measure.site import Site
from bench.measure.stores import StorePlan, chunks_at_once, create_stores, plan_stores
from kvio.chunks import ChunkGeometry

FILL_SHARE = 0.3  # of what is left of the budget: so long all files together may take
SPARE_SHARE = 0.05  # and so long those that save a later round from reading what an earlier one has read, unless asked for
PROBE_S = 1.0  # where one chunk takes longer, there is no time to try more
PROBE_CHUNKS = (4, 32)  # else so many are tried: several are placed at once, and a store has its fixed cost

ChunkSeconds = Mapping[ChunkGeometry, float]


@dataclass(frozen=True, slots=True)
class FillLimit:
    """Seconds for the files: `usable_s` ends where the first round could not be measured any more."""

    wanted_s: float
    usable_s: float


def fill_stores(
    rounds: Rounds, setup: Setup, site: Site, *, left_s: float, observer: Observer
) -> dict[str, Path]:
    """Write the files and place them where series read them from; the directory of each series.

    What that takes is found out with a few chunks.  Lengths and files are then as many as the budget allows; a series
    whose server takes nothing is left out.

    Raises:
        PlanError: not even what the first round reads can be written and placed within the budget.
        KVIOError: the files cannot be written, or no series is left that could read them.
    """
    assert site.scratch is not None
    observer.on_phase("writing KV chunks")
    chunk_s = price_chunks(rounds, setup, site, observer=observer)
    limit = FillLimit(FILL_SHARE * left_s, left_s - rounds.cost_s(rounds.allowed[0]) - rounds.costs.startup_s)
    rounds.allowed = lengths_within(setup, chunk_s, rounds.allowed, limit=limit)
    wanted = plan_stores(setup, site.scratch, longest=rounds.allowed[-1])
    if setup.plan.working_set_bytes is None:
        wanted = cut_spare_to(wanted, chunk_s, limit_s=SPARE_SHARE * left_s)
    plans = cut_to(wanted, chunk_s, limit_s=limit.wanted_s)
    if plans != wanted:
        rounds.notices.append(_notice_cut(wanted, plans, chunk_s))
    directories = create_stores(setup, plans)
    _place(rounds, site, directories, observer=observer)
    return directories


def price_chunks(
    rounds: Rounds, setup: Setup, site: Site, *, observer: Observer
) -> dict[ChunkGeometry, float]:
    """Seconds that one more chunk takes, of all ranks, until every series can read it; by geometry."""
    assert site.scratch is not None
    chunk_s = {}
    for plan in plan_stores(setup, site.scratch, longest=rounds.allowed[-1]):
        one_s = _time_chunks(plan, 1, rounds, setup=setup, site=site, observer=observer)
        if one_s <= PROBE_S:
            fewest, most = PROBE_CHUNKS
            count = min(plan.num_chunks, fewest if one_s * fewest > PROBE_S else most)
            one_s = _time_chunks(plan, count, rounds, setup=setup, site=site, observer=observer) / count
        chunk_s[plan.geometry] = one_s
    return chunk_s


def _time_chunks(
    plan: StorePlan, num_chunks: int, rounds: Rounds, *, setup: Setup, site: Site, observer: Observer
) -> float:
    """Seconds to write a store of so many chunks, and to place it; nothing of it stays in the scratch directory."""
    directory = plan.directory.with_name(f"probe-{num_chunks}-{plan.directory.name}")
    # a store that the run starts in this machine's memory takes no time to speak of, but some to start
    remote = {load.name for load in plan.loads if (server := find_server(load)) and server.address.host}
    began_s = site.clock.now_s()
    written = create_stores(setup, [replace(plan, directory=directory, num_chunks=num_chunks)])
    _place(
        rounds, site, {name: found for name, found in written.items() if name in remote}, observer=observer
    )
    took_s = site.clock.now_s() - began_s
    shutil.rmtree(directory, ignore_errors=True)
    return took_s


def _place(rounds: Rounds, site: Site, directories: Mapping[str, Path], *, observer: Observer) -> None:
    """Place the files of the series that are measured; one whose files cannot be is left out, if others are left.

    Raises:
        KVIOError: none is left.
    """
    if site.depots is None:
        return
    measured = {name for arm, name in rounds.series if arm == "load"}
    failed = site.depots.place({name: directories[name] for name in measured & set(directories)}, observer)
    if failed and measured <= set(failed):
        raise next(iter(failed.values()))
    for name, error in failed.items():
        leave_out(rounds, name, str(error), instead="its KV chunks could not be placed, so it was left out")


def seconds_of(setup: Setup, chunk_s: ChunkSeconds, tokens: int) -> float:
    """Seconds to write and place no more than one prefix of `tokens`."""
    return sum(seconds * chunks_at_once(setup, geometry, tokens) for geometry, seconds in chunk_s.items())


def lengths_within(
    setup: Setup, chunk_s: ChunkSeconds, lengths: tuple[int, ...], *, limit: FillLimit
) -> tuple[int, ...]:
    """The lengths whose files take no longer than wanted, the shortest at least; all of those that were asked for.

    Raises:
        PlanError: what must be written takes longer than is usable.
    """
    must = lengths[0] if setup.lengths is None else lengths[-1]
    must_s = seconds_of(setup, chunk_s, must)
    if must_s > limit.usable_s:
        budget_s = setup.plan.budget_s
        needed_s = max(budget_s - limit.usable_s + must_s, must_s / FILL_SHARE)
        raise PlanError(
            f"a budget of {budget_s:g} s is too small: to write and place the KV chunks of {must} tokens takes about "
            f"{must_s:.0f} s here, {max(0.0, limit.usable_s):.0f} s are left for it; try --budget {math.ceil(needed_s)}s, "
            f"or shorter prefixes, or a faster way to where they go"
        )
    if setup.lengths is not None:
        return lengths
    within = tuple(length for length in lengths if seconds_of(setup, chunk_s, length) <= limit.wanted_s)
    return within or lengths[:1]


def cut_to(plans: Sequence[StorePlan], chunk_s: ChunkSeconds, *, limit_s: float) -> tuple[StorePlan, ...]:
    """The stores with so many chunks that they take no longer, as far as the longest prefix allows."""
    total_s = sum(chunk_s[plan.geometry] * plan.num_chunks for plan in plans)
    return tuple(plan.cut(limit_s / total_s) for plan in plans) if total_s > limit_s else tuple(plans)


def cut_spare_to(
    plans: Sequence[StorePlan], chunk_s: ChunkSeconds, *, limit_s: float
) -> tuple[StorePlan, ...]:
    """The stores with so many chunks for later rounds that those take no longer."""
    spare_s = sum(chunk_s[plan.geometry] * max(0, plan.num_chunks - plan.round_chunks) for plan in plans)
    return tuple(plan.cut_spare(limit_s / spare_s) for plan in plans) if spare_s > limit_s else tuple(plans)


def _notice_cut(wanted: Sequence[StorePlan], plans: Sequence[StorePlan], chunk_s: ChunkSeconds) -> Notice:
    wanted_bytes, held_bytes = (
        sum(plan.geometry.padded_bytes * plan.num_chunks for plan in stores) for stores in (wanted, plans)
    )
    took_s = sum(chunk_s[plan.geometry] * plan.num_chunks for plan in plans)
    return Notice(
        code="files_cut",
        message=(
            f"{held_bytes / 1e9:.2f} of {wanted_bytes / 1e9:.2f} GB of KV files were written, for that alone takes about "
            f"{took_s:.0f} s here; they are read again sooner; a longer --budget makes room for more"
        ),
        suspect=False,
    )
