"""The hybrid arm: every token in place once, the logits of recompute, and proof of what was loaded."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.arms.chunk_reading import LoadSettings
from bench.arms.hybrid import HybridArm, PartOfModelError
from bench.arms.hybrid_split import SplitResult
from bench.arms.load import LoadArm
from bench.arms.model.build import BuiltModel
from bench.arms.prefill import FirstTokenStep, Prefill, draw_tokens, prefill_over
from bench.record.sample import Case, Outcome
from kvio.backends.config import HostMemory
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import POISON, KVBlocks
from kvio.loading.read_plan import by_chunk, collect, plan_jobs
from kvio.protocol import KVIOError, ShortReadError
from kvio.store.chunk_store import ChunkStore, VerificationError
from tests.arms.test_load import FakeEvidence
from tests.helpers.architectures import build_small, layout_of

CPU = torch.device("cpu")
CHUNK_TOKENS = 4
PREFIX_TOKENS = 33
CASE = Case("hybrid", "hybrid/posix/best", PREFIX_TOKENS)


class SeenStep(FirstTokenStep):
    """A step whose logits are kept."""

    def __init__(self, prefill: Prefill) -> None:
        super().__init__(prefill, now_s=time.monotonic)
        self.seen: list[torch.Tensor] = []
        self._model = prefill

    def _time(self, token: torch.Tensor, past_tokens: int) -> float:
        self.seen.append(self._model.forward(token, past_tokens).clone())
        return 0.25


@dataclass
class Stand:
    """One model with its own KV in the store, a load arm and the hybrid arm beside it."""

    built: BuiltModel
    prefill: Prefill
    store: ChunkStore
    load: LoadArm
    hybrid: HybridArm
    step: SeenStep
    evidence: FakeEvidence
    expected: torch.Tensor

    def sample(self) -> Outcome:
        self.hybrid.prepare(CASE)
        return self.hybrid.run(CASE)

    def logits(self) -> torch.Tensor:
        """What the last first-token step gave."""
        return self.step.seen[-1]


class AtOnce(ThreadPoolExecutor):
    """Loads before the first piece is computed: all but that piece, whatever the machine does."""

    def submit(self, work, /, *arguments, **options):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN201
        future = super().submit(work, *arguments, **options)
        wait([future])
        return future


class Stands:
    """Makes them and closes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: list[Stand] = []

    def __call__(
        self,
        name: str,
        *,
        backend: str = "posix",
        prefill_chunk: int = 8,
        at_once: bool = True,
        device: torch.device = CPU,
    ) -> Stand:
        built = build_small(name, device=device)
        layout = layout_of(name, built)
        geometry = ChunkGeometry(layout, adapt_preset(find_preset("best"), chunk_tokens=CHUNK_TOKENS))
        prefill = prefill_over(built, KVBlocks(layout, PREFIX_TOKENS, device))
        ids = draw_tokens(built, PREFIX_TOKENS, seed=0)
        expected = prefill.forward(ids).clone()
        prefill.forward(ids[:, :-1])  # states are those before the last token
        store = ChunkStore.create(self._folder, geometry, num_chunks=8, seed=1)
        keep(prefill.blocks, store)
        evidence = FakeEvidence()
        load = LoadArm(
            store,
            LoadSettings(backend, step_layers=(4, 4)),
            make_blocks=lambda tokens: KVBlocks(layout, tokens, device),
            device=device,
            now_s=time.monotonic,
            evidence=evidence,
            first_token=None,
        )
        step = SeenStep(prefill)
        hybrid = HybridArm(
            prefill,
            load.reading,
            first_token=step,
            now_s=time.monotonic,
            flops=lambda tokens: 10.0 * tokens,
            prefill_chunk=prefill_chunk,
        )
        if at_once:
            hybrid._beside.shutdown()
            hybrid._beside = AtOnce(1)
            hybrid._learn = lambda loaded, met: None  # type: ignore[method-assign]
        self.made.append(Stand(built, prefill, store, load, hybrid, step, evidence, expected))
        return self.made[-1]


def keep(blocks: KVBlocks, store: ChunkStore) -> None:
    """Write what the blocks hold of the first 32 tokens to the store's 8 chunks."""
    jobs = plan_jobs(store, range(8), first_token=0, prefix_tokens=PREFIX_TOKENS - 1)
    for chunk_id, parts in by_chunk(jobs):
        payload = np.zeros(store.geometry.payload_bytes, np.uint8)
        for job in parts:
            collect(job, blocks, payload)
        store.write_chunk(chunk_id, payload)
    if store.num_states:
        store.write_state(0, blocks.state.cpu().numpy())


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stands]:
    stands = Stands(tmp_path)
    yield stands
    for made in stands.made:
        made.hybrid.close()
        made.hybrid.close()
        made.load.close()


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "deepseek_v3", "gemma3", "qwen3_next"])
def test_what_is_in_place_after_a_sample_gives_the_logits_of_recompute(stand: Stands, name: str) -> None:
    made = stand(name)
    outcome = made.sample()
    torch.testing.assert_close(made.logits(), made.expected, atol=5e-5, rtol=1e-4)
    assert (outcome.load_fraction, outcome.verified) == (0.75, True)


def test_wherever_both_sides_meet_the_logits_are_those_of_recompute(stand: Stands) -> None:
    made = stand("qwen3", prefill_chunk=4, at_once=False)
    for _ in range(10):
        outcome = made.sample()
        torch.testing.assert_close(made.logits(), made.expected, atol=5e-5, rtol=1e-4)
        assert outcome.load_fraction in {share / 8 for share in range(9)}
        assert outcome.num_bytes == 32 * outcome.load_fraction * made.store.geometry.layout.bytes_per_token


def test_a_sample_says_what_was_loaded_and_how_it_was_proved(stand: Stands) -> None:
    made = stand("qwen3")
    made.hybrid.warm_up(CASE)
    made.evidence.asked.clear()
    outcome = made.sample()
    assert outcome.num_bytes == 24 * made.store.geometry.layout.bytes_per_token
    assert (outcome.load_fraction, outcome.flops) == (0.75, 80.0)
    assert outcome.first_token_s == 0.25 < outcome.seconds
    assert made.evidence.asked == [(True, outcome.num_bytes, 0)]
    assert (outcome.cache_state, outcome.data_path) == ("direct", "posix-direct")
    assert (outcome.measured_layers, outcome.total_layers) == (4, 4)
    assert outcome.attention_kernel == "sdpa-flash-cpu"
    assert outcome.notices == ("bytes_read_again", "counted")  # the warm-up read them


def test_a_short_warm_up_is_as_long_as_both_sides_need_to_show_their_rates(stand: Stands) -> None:
    made = stand("qwen3")
    made.hybrid.warm_up(Case("hybrid", "hybrid/posix/best", 3))
    assert made.evidence.evicted == [f"chunk-{number:06d}.kv" for number in range(4)]


def test_both_arms_walk_through_the_same_files(stand: Stands) -> None:
    made = stand("qwen3")
    load = Case("load", "posix/best", 9)
    made.load.prepare(load)
    made.load.run(load)
    short = Case("hybrid", "hybrid/posix/best", 9)
    made.hybrid.prepare(short)
    made.hybrid.run(short)
    assert made.evidence.evicted == [f"chunk-{number:06d}.kv" for number in range(4)]
    assert made.load.reading.walk.chunks.next_file == 4


def test_the_share_of_each_side_follows_the_rates_last_seen_at_the_nearest_length(stand: Stands) -> None:
    made = stand("qwen3", at_once=False)
    arm = made.hybrid
    assert arm._share_at(33) == 0.5
    split = made.load.reading.loader.load(made.prefill.blocks, ())
    for case, met_at, compute_s in ((CASE, 8, 2.0), (Case("hybrid", "h", 9), 2, 1.0)):
        ready = replace(made.load.reading.prepare(case), first_token=met_at)
        arm._learn(ready, SplitResult(split, compute_s=compute_s, load_s=2.0))
    assert arm._share_at(33) == 4 / (4 + 12)
    assert arm._share_at(8) == 2 / (2 + 3)
    ready = replace(made.load.reading.prepare(CASE), first_token=0)
    arm._learn(
        ready, SplitResult(split, compute_s=1.0, load_s=1.0)
    )  # recompute did nothing: nothing is learned
    assert arm._share_at(33) == 4 / (4 + 12)


def test_a_prefix_of_one_chunk_is_recomputed_and_has_nothing_to_prove(stand: Stands) -> None:
    made = stand("qwen3")
    short = Case("hybrid", "hybrid/posix/best", 5)
    made.hybrid.prepare(short)
    outcome = made.hybrid.run(short)
    assert (outcome.load_fraction, outcome.num_bytes, outcome.num_requests) == (0.0, 0, 0)
    assert (outcome.cache_state, outcome.data_path, outcome.verified) == (None, None, None)


def test_a_prefix_of_one_token_is_the_first_token_step_alone(stand: Stands) -> None:
    made = stand("qwen3_next")
    single = Case("hybrid", "hybrid/posix/best", 1)
    made.hybrid.prepare(single)
    outcome = made.hybrid.run(single)
    assert (outcome.load_fraction, outcome.num_bytes, outcome.flops) == (None, 0, 0.0)


def test_the_clock_of_a_hybrid_runs_until_the_device_is_done(
    stand: Stands, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stand("qwen3")
    passed: list[float] = []
    one.hybrid._now_s = lambda: time.monotonic() + sum(passed)
    monkeypatch.setattr("bench.arms.hybrid.synchronize", lambda device: passed.append(1000.0))
    assert 1000.0 < one.sample().seconds < 2000.0  # what was waited for before it began is not in it


def test_everything_is_poisoned_before(stand: Stands) -> None:
    made = stand("qwen3_next")
    made.hybrid.prepare(CASE)
    assert all(bool((group == POISON).all()) for group in made.prefill.blocks.groups)
    assert bool((made.prefill.blocks.state == POISON).all())


def test_a_prefill_chunk_that_is_no_whole_kv_chunk_leaves_no_gap(stand: Stands) -> None:
    made = stand("qwen3", prefill_chunk=3)
    outcome = made.sample()
    torch.testing.assert_close(made.logits(), made.expected, atol=5e-5, rtol=1e-4)
    assert outcome.load_fraction == 28 / 32


def test_a_wrong_byte_that_was_loaded_stops_the_run(stand: Stands) -> None:
    made = stand("qwen3")
    path = made.store.chunk_path(7)
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    with pytest.raises(VerificationError, match="chunk-000007"):
        made.sample()


def test_a_failed_read_stops_both_sides_and_the_next_sample_is_whole(stand: Stands) -> None:
    made = stand("qwen3", backend="hostmem")
    made.hybrid.prepare(CASE)
    memory = made.load.reading._depot
    assert isinstance(memory, HostMemory)
    contents = memory.held.contents
    contents.update({span: content[:8] for span, content in contents.items()})
    with pytest.raises(ShortReadError, match="8 of 4096 bytes held"):
        made.hybrid.run(CASE)
    memory.remove()
    assert made.sample().verified is True


def test_a_failed_forward_stops_both_sides(stand: Stands, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand("qwen3")
    made.hybrid.prepare(CASE)

    def fail(*arguments: object) -> None:
        raise MemoryError("no memory for this piece")

    monkeypatch.setattr(Prefill, "fill", fail)
    with pytest.raises(MemoryError, match="no memory for this piece"):
        made.hybrid.run(CASE)
    monkeypatch.undo()
    assert made.sample().verified is True


def test_a_few_layers_are_refused_with_the_reason(stand: Stands) -> None:
    made = stand("qwen3")
    built = build_small("qwen3", layers=[0])
    prefill = prefill_over(built, KVBlocks(layout_of("qwen3", built), 8, CPU))
    with pytest.raises(PartOfModelError, match=r"1 of 4 layers are built: .* try --layers all"):
        HybridArm(
            prefill,
            made.load.reading,
            first_token=FirstTokenStep(prefill, now_s=time.monotonic),
            now_s=time.monotonic,
            flops=float,
        )


def test_files_of_another_layout_are_refused(stand: Stands) -> None:
    made = stand("qwen3")
    built = build_small("llama_mha")
    prefill = prefill_over(built, KVBlocks(layout_of("llama_mha", built), 8, CPU))
    with pytest.raises(KVIOError, match="another layout"):
        HybridArm(
            prefill,
            made.load.reading,
            first_token=FirstTokenStep(prefill, now_s=time.monotonic),
            now_s=time.monotonic,
            flops=float,
        )


def test_running_what_was_not_prepared_and_the_marginal_question_are_refused(stand: Stands) -> None:
    made = stand("qwen3")
    with pytest.raises(KVIOError, match=r"prepare .* before it is run"):
        made.hybrid.run(CASE)
    with pytest.raises(KVIOError, match="the marginal question has no front and no back"):
        made.hybrid.prepare(Case("hybrid", "hybrid/posix/best", 8, 4))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3", "qwen3_next"])
def test_on_a_gpu_copies_beside_the_prefill_leave_the_logits_of_recompute(stand: Stands, name: str) -> None:
    made = stand(name, prefill_chunk=4, at_once=False, device=torch.device("cuda"))
    for _ in range(10):
        assert made.sample().load_fraction in {share / 8 for share in range(9)}
        torch.testing.assert_close(made.logits(), made.expected, atol=1e-3, rtol=1e-3)
