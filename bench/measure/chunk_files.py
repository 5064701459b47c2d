"""Chunk files within the budget: what a chunk costs to be written and placed here, and how many there can be."""

import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure.budget import BudgetTooSmallError
from bench.measure.conditions.object_server import find_server
from bench.measure.rounds import Rounds, drop_series
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan
from bench.measure.stores import StorePlan, chunks_at_once, create_stores, plan_stores
from bench.record.notices import Notice
from bench.record.progress import Observer
from kvio.errors import KVIOError
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.store.chunk_store import NUM_WRITERS

FILL_SHARE = 0.3  # of what is left of the budget: so long all files together may take
SPARE_SHARE = 0.05  # and so long those that save a later round from reading what an earlier one has read, unless asked for
AT_ONCE = NUM_WRITERS  # chunks that are written side by side, and placed
PROBE_S = 1.0  # where so many, one after another, take no longer, MANY can be tried
MANY = 32


@dataclass(frozen=True, slots=True)
class FillLimit:
    """Seconds for the files: `usable_s` keeps time for the first round."""

    wanted_s: float
    usable_s: float


@dataclass(frozen=True, slots=True)
class FillPrice:
    """Seconds to write a store and to place it: `fixed_s` once, its states among them, and `chunk_s` for each chunk."""

    fixed_s: float
    chunk_s: float

    def of(self, num_chunks: int) -> float:
        """Seconds of a store of so many chunks."""
        return self.fixed_s + self.chunk_s * num_chunks


FillPrices = Mapping[ChunkGeometry, FillPrice]


@dataclass(frozen=True, slots=True)
class ChunkFileWriter:
    """Writes and places, as long as there is time for it."""

    rounds: Rounds
    setup: ResolvedPlan
    session: MeasurementSession
    observer: Observer
    until_s: float

    @property
    def left_s(self) -> float:
        """Seconds that writing and placing may still take."""
        return self.until_s - self.session.clock.now_s()

    def require_time_to_try(self) -> None:
        """Stop finding out what placing takes where nothing is left for it.

        Raises:
            KVIOError: no time is left.
        """
        if self.left_s < 0:
            raise KVIOError(
                f"a budget of {self.setup.plan.budget_s:g} s leaves no time to measure the upload of KV chunks; "
                f"increase --budget, or use shorter prefixes"
            )

    def require_time(self) -> None:
        """Stop placing what would be placed after the budget's end: a server may become slower than it was when tried.

        Raises:
            KVIOError: no time is left.
        """
        if self.left_s < 0:
            budget_s = self.setup.plan.budget_s
            raise KVIOError(
                f"the KV chunks were not uploaded within the budget of {budget_s:g} s: the server became slower "
                f"than in the trial; increase --budget, use shorter prefixes, or a faster connection"
            )

    def price(self, plan: StorePlan) -> FillPrice:
        """What one store costs, by the difference of two that are small; of all ranks, until every series can read it.

        Where a larger one hardly takes longer, its chunks went side by side, or what every store takes outweighs them:
        one that is larger still tells, if there is time for it.
        """
        number, took_s, chunk_s, is_clear = 1, self._time_chunks(plan, 1), 0.0, False
        step = MANY if took_s * AT_ONCE <= PROBE_S else 2
        while not is_clear and number < min(2 * AT_ONCE, plan.num_chunks) and self._may_try(number, took_s):
            before, before_s = number, took_s
            number = min(number * step, plan.num_chunks)
            took_s = self._time_chunks(plan, number)
            chunk_s = (took_s - before_s) / (number - before)
            is_clear = chunk_s * number >= took_s / 2  # they took turns
        if chunk_s > 0 and (is_clear or number >= 2 * AT_ONCE):
            return FillPrice(max(0.0, took_s - chunk_s * number), chunk_s)
        return FillPrice(0.0, took_s / number)

    def _may_try(self, number: int, took_s: float) -> bool:
        """Whether there is time for a larger store after one of so many chunks, which may take twice as long."""
        return took_s <= self.left_s if number == 1 else 2 * took_s <= FILL_SHARE * self.left_s

    def _time_chunks(self, plan: StorePlan, num_chunks: int) -> float:
        """Seconds to write a store of so many chunks, and to place it; nothing of it stays anywhere."""
        directory = plan.directory.with_name(f"probe-{num_chunks}-{plan.directory.name}")
        clock, placement = self.session.clock, self.session.placement
        # a store that the run starts in this machine's memory takes little time, but some to start
        remote = {load.name for load in plan.loads if (server := find_server(load)) and server.address.remote}
        began_s = clock.now_s()
        written = create_stores(self.setup, [replace(plan, directory=directory, num_chunks=num_chunks)])
        measured = _measured(self.rounds, {name: where for name, where in written.items() if name in remote})
        with ExitStack() as placed:
            if placement is not None:
                failed = placed.enter_context(
                    placement.placed_for_now(measured, self.observer, before_each=self.require_time_to_try)
                )
                _drop_failed(self.rounds, failed)
            took_s = clock.now_s() - began_s
        shutil.rmtree(directory, ignore_errors=True)
        return took_s

    def place(self, directories: Mapping[str, Path]) -> None:
        """Upload the files of the measured series; a series whose upload fails is dropped, if others are left.

        Raises:
            KVIOError: none is left.
        """
        if self.session.placement is not None:
            measured = _measured(self.rounds, directories)
            failed = self.session.placement.place(measured, self.observer, before_each=self.require_time)
            _drop_failed(self.rounds, failed)


def write_chunk_files(
    rounds: Rounds, setup: ResolvedPlan, session: MeasurementSession, *, left_s: float, observer: Observer
) -> dict[str, Path]:
    """Write the files and place them where series read them from; the directory of each series.

    What that takes is found out with a few chunks.  Lengths and files are then as many as the budget allows; a series
    whose server takes nothing, or becomes so slow that no time is left, is dropped.

    Raises:
        BudgetTooSmallError: not even what the first round reads can be written and placed within the budget.
        KVIOError: the files cannot be written, or no series is left that could read them.
    """
    assert session.scratch is not None
    observer.on_phase("writing KV chunks")
    usable_s = left_s - rounds.cost_s(rounds.allowed[0]) - rounds.costs.startup_s
    filler = ChunkFileWriter(rounds, setup, session, observer, session.clock.now_s() + usable_s)
    stores = plan_stores(setup, session.scratch, longest=rounds.allowed[-1])
    prices = {plan.geometry: filler.price(plan) for plan in stores}
    limit = FillLimit(FILL_SHARE * left_s, filler.left_s)
    longest = rounds.allowed[-1]
    rounds.allowed = lengths_within(setup, prices, rounds.allowed, limit=limit)
    wanted = plan_stores(setup, session.scratch, longest=rounds.allowed[-1])
    if setup.plan.working_set_bytes is None:
        wanted = cut_spare_to(wanted, prices, limit_s=SPARE_SHARE * left_s)
    plans = cut_to(wanted, prices, limit_s=limit.wanted_s)
    if plans != wanted or rounds.allowed[-1] < longest:
        ends_at = rounds.allowed[-1] if rounds.allowed[-1] < longest else None
        rounds.notices.append(_notice_cut(wanted, plans, prices, ends_at=ends_at))
    directories = create_stores(setup, plans)
    filler.place(directories)
    return directories


def _measured(rounds: Rounds, directories: Mapping[str, Path]) -> dict[str, Path]:
    """Those of the load series that are measured."""
    return {name: directories[name] for arm, name in rounds.series if arm == "load" and name in directories}


def _drop_failed(rounds: Rounds, failed: Mapping[str, KVIOError]) -> None:
    """Leave out the series whose files could not be placed."""
    if failed and {name for arm, name in rounds.series if arm == "load"} <= set(failed):
        raise next(iter(failed.values()))
    for name, error in failed.items():
        drop_series(rounds, name, str(error), instead="its KV chunks could not be placed, so it was left out")


def seconds_of(setup: ResolvedPlan, prices: FillPrices, tokens: int) -> float:
    """Seconds to write and place no more than one prefix of `tokens`."""
    return sum(price.of(chunks_at_once(setup, geometry, tokens)) for geometry, price in prices.items())


def lengths_within(
    setup: ResolvedPlan, prices: FillPrices, lengths: tuple[int, ...], *, limit: FillLimit
) -> tuple[int, ...]:
    """The lengths whose files take no longer than wanted, the shortest at least; all of those that were asked for.

    Raises:
        BudgetTooSmallError: what must be written takes longer than is usable.
    """
    must = lengths[0] if setup.lengths is None else lengths[-1]
    must_s = seconds_of(setup, prices, must)
    if must_s > limit.usable_s:
        needed_s = max(setup.plan.budget_s - limit.usable_s + must_s, must_s / FILL_SHARE)
        why = (
            f"writing and placing the KV chunks of {must} tokens takes about {must_s:.0f} s, "
            f"{max(0.0, limit.usable_s):.0f} s are left for it"
        )
        raise BudgetTooSmallError(setup.plan, needed_s, why)
    if setup.lengths is not None:
        return lengths
    within = tuple(length for length in lengths if seconds_of(setup, prices, length) <= limit.wanted_s)
    return within or lengths[:1]


def cut_to(plans: Sequence[StorePlan], prices: FillPrices, *, limit_s: float) -> tuple[StorePlan, ...]:
    """The stores with so many chunks that they take no longer, as far as the longest prefix allows."""
    total_s = sum(prices[plan.geometry].of(plan.num_chunks) for plan in plans)
    if total_s <= limit_s:
        return tuple(plans)
    fixed_s = sum(prices[plan.geometry].fixed_s for plan in plans)
    share = max(0.0, limit_s - fixed_s) / (total_s - fixed_s or math.inf)
    return tuple(plan.cut(share) for plan in plans)


def cut_spare_to(plans: Sequence[StorePlan], prices: FillPrices, *, limit_s: float) -> tuple[StorePlan, ...]:
    """The stores with so many chunks for later rounds that those take no longer."""
    spare_s = sum(
        prices[plan.geometry].chunk_s * max(0, plan.num_chunks - plan.round_chunks) for plan in plans
    )
    return tuple(plan.cut_spare(limit_s / spare_s) for plan in plans) if spare_s > limit_s else tuple(plans)


def _notice_cut(
    wanted: Sequence[StorePlan], plans: Sequence[StorePlan], prices: FillPrices, *, ends_at: int | None
) -> Notice:
    """That there are fewer files than wanted, or only those of prefixes up to `ends_at` tokens."""
    wanted_bytes, held_bytes = (
        sum(plan.geometry.padded_bytes * plan.num_chunks for plan in stores) for stores in (wanted, plans)
    )
    took_s = sum(prices[plan.geometry].of(plan.num_chunks) for plan in plans)
    ending = "" if ends_at is None else f"prefixes end at {ends_at} tokens for it, and "
    return Notice(
        kind="files_cut",
        detail=(
            f"{held_bytes / 1e9:.2f} of {wanted_bytes / 1e9:.2f} GB of KV files were written, for that alone takes about "
            f"{took_s:.0f} s here; {ending}they are read again sooner; a longer --budget makes room for more"
        ),
    )
