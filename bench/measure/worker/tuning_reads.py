"""The search inside the measuring process: cold reads of the run's files under one setting after another."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from bench.arms.chunk_reading import LoadSettings
from bench.arms.file_cursor import StoreCursor
from bench.arms.load import LoadArm
from bench.arms.model.memory import available_bytes, keep_freed_memory
from bench.arms.prefill import synchronize
from bench.measure.clock import Clock
from bench.measure.processes.messages import Message, SearchJob, SettingFound
from bench.measure.setup import LoadSeries, ResolvedPlan, resolve_plan
from bench.measure.tuning.tuning_rule import Choice, PassResult, search_settings
from bench.measure.tuning.tuning_search import MIN_BYTES, make_grid
from bench.measure.worker.model_session import evidence_of, pick_device
from bench.record.read_setting import ReadSetting, SettingSearch, SettingTrial
from bench.record.sample import Case, Outcome
from kvio.backends import find_backend
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.presets import adapt_preset
from kvio.loading.blocks import KVBlocks
from kvio.protocol import KVIOError
from kvio.store.chunk_store import ChunkStore, VerificationError

MAX_BYTES = 512 * 2**20
READS_AIMED = 120  # within the time, eviction and the check of what arrived included
MIN_READS = 24  # for which a search makes sense


class NoSearchError(Exception):
    """Nothing can be searched here; the message is the reason."""


def search_all(job: SearchJob, clock: Clock) -> Iterator[Message]:
    """A search for each series of the job, each with its share of the time."""
    setup = resolve_plan(job.plan)
    device = pick_device(job.plan.device)
    if device.type == "cpu":
        keep_freed_memory()
    began_s = clock.now_s()
    walks: dict[Path, StoreCursor] = {}
    for number, load in enumerate([load for load in setup.loads if load.name in job.store_dirs]):
        until_s = began_s + (job.deadline_s - began_s) * (number + 1) / len(job.store_dirs)
        since_s, broke = clock.now_s(), False
        directory = job.store_dirs[load.name]
        try:
            if directory not in walks:
                walks[directory] = StoreCursor(ChunkStore.open(directory))
            target = TuningTarget(
                setup, load, directory, device=device, now_s=clock.now_s, walk=walks[directory]
            )
            try:
                found = _search(target, job, until_s=until_s)
            finally:
                target.close()
        except NoSearchError as error:
            found = SettingSearch(reason=str(error))
        except KVIOError as error:  # what broke may concern this series alone
            found, broke = SettingSearch(reason=f"the search failed: {error}"), True
        yield SettingFound(
            load.name,
            found.model_copy(update={"seconds": clock.now_s() - since_s}),
            broke=broke,
            taken={where: walk.taken for where, walk in walks.items()},
        )


class TuningTarget:
    """Reads the files of one series under any setting, always others than the last time.

    Args:
        setup: of the run.
        load: the series, as the plan has it.
        directory: of its files.
        device: where the blocks are.
        now_s: the clock.
        walk: through its files, which other series may read too.
    """

    def __init__(
        self,
        setup: ResolvedPlan,
        load: LoadSeries,
        directory: Path,
        *,
        device: torch.device,
        now_s: Callable[[], float],
        walk: StoreCursor,
    ) -> None:
        self._setup = setup
        self._load = load
        self._directory = directory
        self._device = device
        self.now_s = now_s
        self._kind = find_backend(load.spec.backend)
        self._walk = walk
        self._blocks: KVBlocks | None = None
        self._arms: dict[ReadSetting, LoadArm] = {}
        self.grid = make_grid(load, available_bytes=available_bytes(device))
        self.rates: dict[ReadSetting, list[float]] = {}
        self.failed: dict[ReadSetting, str] = {}

    def read(self, setting: ReadSetting, tokens: int) -> float | None:
        """Bytes per second of a prefix of so many tokens; None where this setting does not work.

        Raises:
            VerificationError: other bytes arrived than were stored.
        """
        if setting in self.failed:
            return None
        try:
            outcome = self._time(setting, tokens)
        except VerificationError:
            raise
        except KVIOError as error:
            self.failed[setting] = str(error)
            return None
        if outcome.cache_state not in self._states():
            self.failed[setting] = f"its reads were {outcome.cache_state}, not proved to be cold"
            return None
        return (outcome.num_bytes or 0) / outcome.seconds

    def read_each(
        self, settings: tuple[ReadSetting, ...], tokens: int, *, until_s: float
    ) -> dict[ReadSetting, float]:
        """Bytes per second of each setting that works and for which there is time; buffers of all others are freed."""
        self._keep(settings)
        rates = {}
        for setting in settings:
            rate = self.read(setting, tokens) if self.now_s() < until_s else None
            if rate is not None:
                rates[setting] = rate
                self.rates.setdefault(setting, []).append(rate)
        return rates

    def _states(self) -> tuple[str | None, ...]:
        """Cache states that count: of files the proved ones, of servers what they are."""
        if not self._kind.from_storage:
            return (None,)
        return ("unverified",) if self._kind.on_server else ("cold", "direct")

    def _time(self, setting: ReadSetting, tokens: int) -> Outcome:
        case = Case("load", self._load.name, tokens)
        if setting not in self._arms:
            self._arms[setting] = self._make_arm(setting)
            self._arms[setting].warm_up(replace(case, prefix_tokens=self._load.geometry.chunk_tokens))
        arm = self._arms[setting]
        arm.prepare(case)
        return arm.run(case)

    def _make_arm(self, setting: ReadSetting) -> LoadArm:
        preset = adapt_preset(
            self._load.geometry.preset,
            num_threads=setting.num_threads,
            request_bytes=setting.request_bytes,
        )
        return LoadArm(
            ChunkStore.open(self._directory, preset=preset),
            LoadSettings(
                self._load.spec.backend, queue_depth=setting.in_flight, options=self._load.spec.options
            ),
            make_blocks=self._blocks_for,
            device=self._device,
            now_s=self.now_s,
            evidence=evidence_of(self._load, self._directory),
            first_token=None,
            walk=self._walk,
        )

    def _blocks_for(self, num_tokens: int) -> KVBlocks:
        """Blocks that all settings share, for they take turns."""
        if self._blocks is None or self._blocks.capacity_tokens < num_tokens:
            self._blocks = KVBlocks(self._setup.layout, num_tokens, self._device)
        return self._blocks

    @property
    def geometry(self) -> ChunkGeometry:
        """Of the chunks, as the plan has it."""
        return self._load.geometry

    def _keep(self, settings: tuple[ReadSetting, ...]) -> None:
        """Free the buffers and threads of all others but the default."""
        for setting in set(self._arms) - {*settings, self.grid.default}:
            self._arms.pop(setting).close()

    def close(self) -> None:
        """Free all buffers and threads."""
        while self._arms:
            self._arms.popitem()[1].close()
        self._blocks = None
        synchronize(self._device)


def _search(target: TuningTarget, job: SearchJob, *, until_s: float) -> SettingSearch:
    """Search the settings of one series until the time is used."""
    if len(target.grid.allowed) == 1:
        raise NoSearchError("no other setting is possible with what was asked for")
    start_s = target.now_s()
    tokens = choose_tokens(target, job.most_tokens, limit_s=until_s - start_s)
    search_start_s = target.now_s()

    def read_pass(settings: tuple[ReadSetting, ...]) -> PassResult:
        rates = target.read_each(settings, tokens, until_s=until_s)
        return PassResult(rates, max(0.0, (until_s - target.now_s()) / (until_s - search_start_s)))

    choice = search_settings(target.grid, read_pass, seed=job.plan.seed)
    choice = unless_failed(choice, target.grid.default, failed=target.failed)
    return SettingSearch(
        chosen=choice.setting,
        default=target.grid.default,
        reason=choice.reason,
        trials=tuple(
            SettingTrial(
                setting=setting, bytes_per_s=tuple(target.rates[setting]), failed=target.failed.get(setting)
            )
            for setting in target.rates
        ),
        prefix_tokens=tokens,
    )


def unless_failed(choice: Choice, default: ReadSetting, *, failed: Mapping[ReadSetting, str]) -> Choice:
    """The choice, or the default where what was chosen has failed on the target since it was seen to be fast.

    Raises:
        NoSearchError: the default has failed too.
    """
    if choice.setting not in failed:
        return choice
    if default in failed:
        raise NoSearchError(f"{default}: {failed[default]}")
    return Choice(default, f"the default: {choice.setting} failed: {failed[choice.setting]}")


def choose_tokens(target: TuningTarget, most_tokens: int, *, limit_s: float) -> int:
    """Tokens of one read: enough bytes to measure the drive, few enough for many reads; reads with the default.

    Raises:
        NoSearchError: the default cannot be judged, or is too slow for the time.
    """
    geometry = target.geometry
    least = _tokens_of(MIN_BYTES, geometry)
    target.read(target.grid.default, least)  # makes buffers and threads, too
    began_s = target.now_s()
    rate = target.read(target.grid.default, least)
    took_s = target.now_s() - began_s
    if rate is None:
        raise NoSearchError(f"{target.grid.default}: {target.failed[target.grid.default]}")
    if took_s * MIN_READS > limit_s:
        raise NoSearchError(
            f"one read of {least} tokens took {took_s:.1f} s, too long for a search within {max(limit_s, 0):.0f} s"
        )
    wanted_bytes = min(MAX_BYTES, MIN_BYTES * limit_s / READS_AIMED / took_s)
    return max(least, min(_tokens_of(wanted_bytes, geometry), most_tokens))


def _tokens_of(num_bytes: float, geometry: ChunkGeometry) -> int:
    """Tokens of so many bytes, in whole chunks."""
    return max(1, -(-int(num_bytes) // geometry.payload_bytes)) * geometry.chunk_tokens
