"""The load arm: n-1 tokens from fresh, cold files, the first-token step, and proof of what arrived."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from bench.arms.chunk_reading import LoadSettings
from bench.arms.file_cursor import CursorPosition, FileCursor, StoreCursor, tokens_to_load
from bench.arms.load import LoadArm
from bench.arms.read_evidence import ResidentBytes
from bench.record.plan import ReadLimit
from bench.record.sample import Case
from kvio.backends.config import SimulatedDevice
from kvio.evidence.cold_evidence import EvidenceError, ReadCounters, require_plausible, require_written
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import KVLayout, uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import POISON, KVBlocks
from kvio.protocol import CacheState, KVIOError, Read, ShortReadError
from kvio.store.chunk_store import ChunkStore, VerificationError

CPU = torch.device("cpu")
LAYOUT = uniform_layout(4, 1024)  # 8192 bytes per token
HYBRID = KVLayout(LAYOUT.planes, state_bytes=10_000)


NOTHING = CursorPosition()


@dataclass
class FakeEvidence:
    """Keeps what it is asked, and answers as a machine with a cold page cache would."""

    resident: int | None = 0
    link_bytes_per_s: float | None = None
    evicted: list[str] = field(default_factory=list)
    warmed: list[str] = field(default_factory=list)
    asked: list[tuple[bool, int, int | None]] = field(default_factory=list)
    reads: int = 0
    against: tuple[str, ...] = ()
    payloads: list[int] = field(default_factory=list)

    def evict(self, path: Path) -> None:
        self.evicted.append(path.name)

    def warm(self, path: Path) -> None:
        self.warmed.append(path.name)

    def resident_bytes(self, path: Path) -> int | None:
        return self.resident

    def require_written(self, path: Path) -> None:
        require_written(path)

    def require_plausible(self, num_bytes: int, seconds: float) -> None:
        require_plausible(num_bytes, seconds, self.link_bytes_per_s)

    def read_counters(self) -> ReadCounters:
        self.reads += 1
        return ReadCounters(1000 * self.reads, 2000 * self.reads)

    def prove_cache_state(
        self, *, asked_direct: bool, reads: Sequence[Read], resident: ResidentBytes, moved: ReadCounters
    ) -> tuple[CacheState, tuple[str, ...]]:
        self.asked.append((asked_direct, sum(read.num_bytes for read in reads), resident.before_bytes))
        return "direct" if asked_direct else "cold", ("counted",)

    def prove_data_path(
        self,
        *,
        backend: str,
        asked_direct: bool,
        state: CacheState,
        payload_bytes: int,
        moved: ReadCounters,
    ) -> tuple[str, tuple[str, ...]]:
        self.payloads.append(payload_bytes)
        return f"{backend}-{state}", self.against


ArmMaker = Callable[..., LoadArm]


@pytest.fixture
def make_arm(tmp_path: Path) -> Iterator[ArmMaker]:
    made: list[LoadArm] = []

    def make(
        evidence: FakeEvidence | None = None,
        *,
        preset: str = "best",
        layout: KVLayout = LAYOUT,
        num_chunks: int = 8,
        settings: LoadSettings | None = None,
        now_s: Callable[[], float] = time.monotonic,
        first_token: Callable[[KVBlocks, int], float] | None = lambda blocks, tokens: 0.25,
        blocks: Callable[[int], KVBlocks] | None = None,
        folder: str = "",
        taken: CursorPosition = NOTHING,
    ) -> LoadArm:
        geometry = ChunkGeometry(layout, adapt_preset(find_preset(preset), chunk_tokens=4))
        (tmp_path / folder).mkdir(exist_ok=True)
        store = ChunkStore.create(tmp_path / folder, geometry, num_chunks=num_chunks, seed=1, num_states=2)
        arm = LoadArm(
            store,
            settings or LoadSettings("posix"),
            make_blocks=blocks or (lambda tokens: KVBlocks(layout, tokens, CPU)),
            device=CPU,
            now_s=now_s,
            evidence=evidence or FakeEvidence(),
            first_token=first_token,
            walk=StoreCursor(store, taken),
        )
        made.append(arm)
        return arm

    yield make
    for arm in made:
        arm.close()


def _case(prefix_tokens: int, suffix_tokens: int = 0) -> Case:
    return Case("load", "best", prefix_tokens, suffix_tokens)


def test_a_prefix_of_9_tokens_loads_8_and_steps_once(make_arm: ArmMaker) -> None:
    stepped: list[int] = []

    def step(blocks: KVBlocks, tokens: int) -> float:
        assert torch.all(blocks.groups[0][:, 8] == POISON)
        assert not torch.all(blocks.groups[0][:, 7] == POISON)
        stepped.append(tokens)
        return 100.0

    evidence = FakeEvidence()
    arm = make_arm(evidence, first_token=step)
    arm.prepare(_case(9))
    outcome = arm.run(_case(9))
    assert stepped == [9]
    assert 100.0 < outcome.seconds < 101.0
    assert (outcome.first_token_s, outcome.num_bytes, outcome.num_requests) == (100.0, 65_536, 2)
    assert (outcome.cache_state, outcome.data_path) == ("direct", "posix-direct")
    assert (outcome.process_bytes, outcome.device_bytes) == (1000, 2000)
    assert outcome.verified is True
    assert outcome.notices == ("counted",)
    assert evidence.evicted == ["chunk-000000.kv", "chunk-000001.kv"]
    assert evidence.asked == [(True, 65_536, 0)]
    assert evidence.payloads == [65_536]


def test_what_speaks_against_the_data_path_is_a_notice_of_the_sample(make_arm: ArmMaker) -> None:
    arm = make_arm(FakeEvidence(against=("gds_fell_back",)))
    arm.prepare(_case(9))
    assert arm.run(_case(9)).notices == ("counted", "gds_fell_back")


def test_a_partly_needed_chunk_is_read_whole_counted_in_part_and_verified(make_arm: ArmMaker) -> None:
    evidence = FakeEvidence()
    arm = make_arm(evidence, preset="lmcache")
    arm.prepare(_case(7))
    outcome = arm.run(_case(7))
    assert outcome.num_bytes == 6 * 8192
    assert evidence.asked == [(False, 65_536, 0)]
    assert outcome.verified is True
    assert outcome.data_path == "posix-cold"


def test_a_prefix_of_one_token_is_the_first_token_step_alone(make_arm: ArmMaker) -> None:
    arm = make_arm(layout=HYBRID)
    arm.prepare(_case(1))
    outcome = arm.run(_case(1))
    assert (outcome.first_token_s, outcome.num_bytes, outcome.num_requests) == (0.25, 0, 0)
    assert (outcome.cache_state, outcome.data_path, outcome.verified) == (None, None, None)


def test_the_marginal_case_loads_the_suffix_and_takes_no_step(make_arm: ArmMaker) -> None:
    evidence = FakeEvidence()
    arm = make_arm(evidence, layout=HYBRID)
    arm.prepare(_case(8, 4))
    outcome = arm.run(_case(8, 4))
    # the state at the suffix's end, as recompute leaves it; none of the prefix's chunks
    assert (outcome.num_bytes, outcome.first_token_s, outcome.verified) == (32_768 + 10_000, None, True)
    assert evidence.evicted == ["chunk-000000.kv", "state-000000.kv"]


def test_a_state_is_loaded_and_verified_even_if_the_step_changes_it(make_arm: ArmMaker) -> None:
    def step(blocks: KVBlocks, tokens: int) -> float:
        blocks.state.fill_(0)
        return 0.0

    evidence = FakeEvidence()
    arm = make_arm(evidence, layout=HYBRID, first_token=step)
    arm.prepare(_case(5))
    outcome = arm.run(_case(5))
    assert (outcome.num_bytes, outcome.verified) == (4 * 8192 + 10_000, True)
    assert evidence.evicted == ["chunk-000000.kv", "state-000000.kv"]


def test_samples_walk_through_fresh_files_and_say_when_they_begin_again(make_arm: ArmMaker) -> None:
    evidence = FakeEvidence()
    arm = make_arm(evidence, taken=CursorPosition(5))
    notices = []
    for _ in range(4):
        arm.prepare(_case(12))
        notices.append(arm.run(_case(12)).notices)
    assert [name[6:12] for name in evidence.evicted] == [
        f"{number:06d}" for number in (5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0)
    ]
    assert notices == [
        ("counted",),
        ("counted",),
        ("bytes_read_again", "counted"),
        ("bytes_read_again", "counted"),
    ]
    assert arm.reading.walk.taken == CursorPosition(5 + 12)


def test_a_prefix_longer_than_the_store_is_refused(make_arm: ArmMaker) -> None:
    with pytest.raises(KVIOError, match="9 different files are needed at once, the store has 8"):
        make_arm().prepare(_case(37))


def test_warm_files_are_warmed_and_not_evicted(make_arm: ArmMaker) -> None:
    evidence = FakeEvidence(resident=32_768)
    arm = make_arm(evidence, preset="lmcache", settings=LoadSettings("posix", cold=False))
    arm.prepare(_case(9))
    arm.run(_case(9))
    assert (evidence.evicted, len(evidence.warmed)) == ([], 2)
    assert evidence.asked == [(False, 65_536, 65_536)]


def test_residency_that_cannot_be_known_is_none(make_arm: ArmMaker) -> None:
    evidence = FakeEvidence(resident=None)
    arm = make_arm(evidence)
    arm.prepare(_case(9))
    arm.run(_case(9))
    assert evidence.asked[0][2] is None


def test_swapped_chunk_files_stop_the_run(make_arm: ArmMaker, tmp_path: Path) -> None:
    arm = make_arm()
    (tmp_path / "chunk-000000.kv").rename(tmp_path / "aside")
    (tmp_path / "chunk-000001.kv").rename(tmp_path / "chunk-000000.kv")
    (tmp_path / "aside").rename(tmp_path / "chunk-000001.kv")
    arm.prepare(_case(9))
    with pytest.raises(VerificationError, match="chunk-000000"):
        arm.run(_case(9))


def test_one_wrong_byte_in_a_partly_needed_chunk_stops_the_run(make_arm: ArmMaker, tmp_path: Path) -> None:
    arm = make_arm()
    path = tmp_path / "chunk-000001.kv"
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    arm.prepare(_case(7))
    with pytest.raises(VerificationError, match="chunk-000001"):
        arm.run(_case(7))


def test_one_wrong_byte_of_a_state_stops_the_run(make_arm: ArmMaker, tmp_path: Path) -> None:
    arm = make_arm(layout=HYBRID)
    path = tmp_path / "state-000000.kv"
    content = bytearray(path.read_bytes())
    content[9_999] ^= 1  # the last one that belongs to the state
    path.write_bytes(content)
    arm.prepare(_case(5))
    with pytest.raises(VerificationError):
        arm.run(_case(5))


def test_bytes_that_the_step_overwrites_do_not_verify(make_arm: ArmMaker) -> None:
    def step(blocks: KVBlocks, tokens: int) -> float:
        blocks.groups[0][0, 0, 0] ^= 1
        return 0.0

    arm = make_arm(first_token=step)
    arm.prepare(_case(9))
    with pytest.raises(VerificationError, match="chunk-000000"):
        arm.run(_case(9))


@pytest.mark.parametrize("layout", [LAYOUT, HYBRID], ids=["full", "hybrid"])
def test_a_plan_that_leaves_out_a_chunk_does_not_verify(make_arm: ArmMaker, layout: KVLayout) -> None:
    arm = make_arm(layout=layout)
    arm.prepare(_case(9))
    ready = arm._prepared
    assert ready is not None
    chunks = [job for job in ready.jobs if job.chunk_id is not None]
    arm._prepared = replace(ready, jobs=tuple(job for job in ready.jobs if job is not chunks[-1]))
    with pytest.raises(VerificationError, match="chunk"):
        arm.run(_case(9))


def test_jobs_that_copy_nothing_into_the_blocks_do_not_verify(make_arm: ArmMaker) -> None:
    arm = make_arm()
    arm.prepare(_case(9))
    ready = arm._prepared
    assert ready is not None
    arm._prepared = replace(ready, jobs=tuple(replace(job, pieces=()) for job in ready.jobs))
    with pytest.raises(VerificationError, match="0 of"):
        arm.run(_case(9))


def test_a_file_cut_between_prepare_and_run_is_a_short_read(make_arm: ArmMaker, tmp_path: Path) -> None:
    arm = make_arm()
    arm.prepare(_case(9))
    os.truncate(tmp_path / "chunk-000001.kv", 0)
    with pytest.raises(ShortReadError, match="chunk-000001"):
        arm.run(_case(9))


def test_hostmem_is_verified_and_claims_no_cache_state(make_arm: ArmMaker) -> None:
    evidence = FakeEvidence()
    arm = make_arm(evidence, settings=LoadSettings("hostmem"))
    arm.prepare(_case(9))
    outcome = arm.run(_case(9))
    assert (outcome.verified, outcome.cache_state, outcome.data_path) == (True, None, "hostmem")
    assert (evidence.evicted, evidence.reads, outcome.device_bytes) == ([], 0, None)


def test_null_gives_the_price_of_the_harness(make_arm: ArmMaker) -> None:
    arm = make_arm(settings=LoadSettings("null"), first_token=None)
    arm.prepare(_case(9))
    outcome = arm.run(_case(9))
    assert 0 < outcome.seconds < 1
    assert (outcome.verified, outcome.first_token_s, outcome.scatter_s) == (None, None, None)
    assert (outcome.data_path, outcome.num_requests) == ("null", 2)


def test_a_simulated_load_takes_what_its_device_takes(make_arm: ArmMaker) -> None:
    passed: list[float] = []
    device = SimulatedDevice(32_768.0, 0.5, advance_s=passed.append)
    arm = make_arm(
        preset="sglang-page",
        settings=LoadSettings("simulated", device=device),
        now_s=lambda: sum(passed),
    )
    arm.prepare(_case(9))
    assert arm.run(_case(9)).seconds == 3.25


def test_the_clock_of_a_load_runs_until_the_device_is_done(
    make_arm: ArmMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[float] = []
    monkeypatch.setattr("bench.arms.load.synchronize", lambda device: passed.append(2.0))
    arm = make_arm(now_s=lambda: sum(passed))
    arm.prepare(_case(9))
    assert (
        arm.run(_case(9)).seconds == 2.25
    )  # a step of 0.25 s; what was waited for before the load is not in it


def test_warming_up_reads_other_files_than_the_samples(make_arm: ArmMaker) -> None:
    evidence = FakeEvidence()
    arm = make_arm(evidence)
    arm.warm_up(_case(9))
    arm.prepare(_case(9))
    assert arm.run(_case(9)).notices == ("counted",)
    assert evidence.evicted[-2:] == ["chunk-000002.kv", "chunk-000003.kv"]


def test_blocks_are_kept_for_shorter_prefixes_and_replaced_for_longer_ones(make_arm: ArmMaker) -> None:
    made: list[int] = []

    def blocks(tokens: int) -> KVBlocks:
        made.append(tokens)
        return KVBlocks(LAYOUT, tokens, CPU)

    arm = make_arm(blocks=blocks)
    for tokens in (9, 5, 9, 13):
        arm.prepare(_case(tokens))
        assert arm.run(_case(tokens)).verified
    assert made == [9, 13]


def test_a_lost_or_padded_geometry_is_noticed_on_every_sample(make_arm: ArmMaker) -> None:
    arm = make_arm(layout=uniform_layout(1, 129), preset="vllm-fs")
    arm.prepare(_case(5))
    assert arm.run(_case(5)).notices == ("direct_lost", "counted")


def test_running_what_was_not_prepared_is_refused(make_arm: ArmMaker) -> None:
    arm = make_arm()
    arm.prepare(_case(9))
    with pytest.raises(KVIOError, match=r"prepare .* before it is run"):
        arm.run(_case(5))
    with pytest.raises(KVIOError, match=r"prepare .* before it is run"):
        arm.run(_case(9))
    with pytest.raises(KVIOError, match="a prefix of 0 tokens cannot be loaded"):
        arm.prepare(_case(0))


def test_tokens_to_load_leave_the_last_one_to_the_step() -> None:
    assert tokens_to_load(_case(1)) == (0, 0)
    assert tokens_to_load(_case(257)) == (0, 256)
    assert tokens_to_load(_case(256, 64)) == (256, 320)
    assert tokens_to_load(_case(0, 64)) == (0, 64)


def test_a_walk_knows_what_it_gave() -> None:
    walk = FileCursor(5, 4)
    assert walk.take(2) == ((4, 0), False)
    assert walk.take(3) == ((1, 2, 3), False)
    assert walk.take(1) == ((4,), True)
    assert walk.take(0) == ((), False)
    assert FileCursor(0).take(0) == ((), False)


def test_a_file_that_became_sparse_is_never_timed(make_arm: ArmMaker, tmp_path: Path) -> None:
    arm = make_arm()
    path = tmp_path / "chunk-000000.kv"
    size = path.stat().st_size
    path.unlink()
    with path.open("wb") as stream:
        stream.truncate(size)
    with pytest.raises(EvidenceError, match="sparse"):
        arm.prepare(Case("load", "s", 4))


def test_a_rate_beyond_the_link_is_refused(make_arm: ArmMaker) -> None:
    arm = make_arm(FakeEvidence(link_bytes_per_s=1.0))
    case = Case("load", "s", 4)
    arm.prepare(case)
    with pytest.raises(EvidenceError, match="over a link of"):
        arm.run(case)


def test_a_sample_above_its_limit_says_so(make_arm: ArmMaker) -> None:
    case = Case("load", "s", 4)
    for limit, notices in ((1.0, {"above_limit"}), (1e15, set())):
        arm = make_arm(settings=LoadSettings("posix", limit=ReadLimit(limit)), folder=f"limit-{limit:g}")
        arm.prepare(case)
        assert set(arm.run(case).notices) & {"above_limit"} == notices
