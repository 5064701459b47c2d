import pytest
import torch

from bench.arms.model.build import BuiltModel
from bench.arms.model.kv_cache import CacheMismatchError, CapacityError, sub_layout
from bench.arms.prefill import Prefill, PrefixTooLongError, draw_tokens, prefill_over, synchronize
from kvio.layout.planes import KVLayout, Plane, uniform_layout
from kvio.loading.blocks import KVBlocks
from tests.helpers.architectures import CONFIGS, build_small, full_layout, layout_of

CPU = torch.device("cpu")


def over_poison(name: str, built: BuiltModel, capacity_tokens: int = 40) -> tuple[Prefill, KVBlocks]:
    blocks = KVBlocks(layout_of(name, built), capacity_tokens, CPU)
    blocks.poison()
    return prefill_over(built, blocks), blocks


def library_logits(built: BuiltModel, tokens: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return built.model(input_ids=tokens, use_cache=False).logits[0, -1]


@pytest.mark.parametrize("name", CONFIGS)
def test_one_forward_chunks_and_a_last_step_all_give_the_librarys_logits(name: str) -> None:
    built = build_small(name)
    prefill, blocks = over_poison(name, built)
    tokens = draw_tokens(built, 33, seed=1)
    expected = library_logits(built, tokens)
    torch.testing.assert_close(prefill.forward(tokens), expected, atol=2e-5, rtol=1e-4)
    blocks.poison()
    in_chunks = prefill.forward_in_chunks(tokens, chunk_tokens=7)
    torch.testing.assert_close(in_chunks, expected, atol=5e-5, rtol=1e-4)
    blocks.poison()
    prefill.forward(tokens[:, :32])
    torch.testing.assert_close(prefill.forward(tokens[:, 32:], 32), expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["mistral", "gpt_oss", "gemma3", "llama4"])
def test_a_window_never_reads_tokens_that_lie_before_it(name: str) -> None:
    built = build_small(name)
    prefill, blocks = over_poison(name, built)
    tokens = draw_tokens(built, 33, seed=1)
    prefill.forward(tokens[:, :32])
    for plane in blocks.layout.planes:
        if plane.window_tokens is not None:
            blocks.plane(plane.layer, plane.role)[: 32 - plane.window_tokens].fill_(0xFF)  # not a number
    torch.testing.assert_close(
        prefill.forward(tokens[:, 32:], 32), library_logits(built, tokens), atol=5e-5, rtol=1e-4
    )


def test_kv_is_written_where_a_load_would_bring_it_and_nowhere_else() -> None:
    built = build_small("qwen3")
    prefill, blocks = over_poison("qwen3", built)
    prefill.forward(draw_tokens(built, 5, seed=1), 10)
    written = (blocks.plane(2, "k") != 0xA5).any(dim=1)
    assert written.nonzero().flatten().tolist() == [10, 11, 12, 13, 14]


def test_mla_keeps_the_latent_and_the_rope_part() -> None:
    built = build_small("deepseek_v3")
    prefill, blocks = over_poison("deepseek_v3", built)
    prefill.forward(draw_tokens(built, 5, seed=1))
    latent = blocks.plane(1, "latent").view(torch.float32)[:5]
    assert latent.shape == (5, 32)
    assert abs(float(latent.square().mean()) - 1) < 1e-3  # normalised before it is kept


def test_kv_of_another_dtype_is_converted_both_ways() -> None:
    built = build_small("qwen3")
    blocks = KVBlocks(uniform_layout(4, 2 * 16), 40, CPU)
    prefill = prefill_over(built, blocks, kv_dtype=torch.float8_e4m3fn)
    tokens = draw_tokens(built, 33, seed=1)
    logits, expected = prefill.forward(tokens), library_logits(built, tokens)
    assert 1e-3 < float((logits - expected).abs().max() / expected.std()) < 0.6


def test_blocks_that_are_too_small_stop_the_forward() -> None:
    built = build_small("qwen3", layers=[0])
    prefill, _ = over_poison("qwen3", built, capacity_tokens=10)
    with pytest.raises(CapacityError, match="11 tokens do not fit in blocks for 10"):
        prefill.forward(draw_tokens(built, 11, seed=1))


def test_a_layout_of_another_model_is_refused() -> None:
    built = build_small("qwen3", layers=[0])
    prefill = prefill_over(built, KVBlocks(uniform_layout(1, 64), 10, CPU))
    with pytest.raises(
        CacheMismatchError, match="layer 0: the model keeps 2 x 16 elements of k for a token, the layout 16"
    ):
        prefill.forward(draw_tokens(built, 3, seed=1))
    windowed = KVLayout((Plane(0, "k", 128, 4), Plane(0, "v", 128, 4)))
    with pytest.raises(CacheMismatchError, match="layout keeps 4 tokens of k, the model None"):
        prefill_over(built, KVBlocks(windowed, 10, CPU))
    with pytest.raises(CacheMismatchError, match="layer 0: planes \\['latent'\\]"):
        prefill_over(built, KVBlocks(KVLayout((Plane(0, "latent", 128),)), 10, CPU))
    with pytest.raises(CacheMismatchError, match="keeps 0 state bytes, the layout 7"):
        prefill_over(built, KVBlocks(KVLayout(uniform_layout(1, 128).planes, 7), 10, CPU))


def test_learned_positions_end_and_rotary_ones_do_not() -> None:
    with pytest.raises(PrefixTooLongError, match="opt has learned positions for 64 tokens, not for 65"):
        draw_tokens(build_small("opt"), 65, seed=1)
    assert draw_tokens(build_small("qwen3", layers=[0]), 50_000, seed=1).shape == (1, 50_000)


def test_what_is_waited_for_is_this_device_and_then_all_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr("torch.cuda.synchronize", done.append)
    monkeypatch.setattr("bench.arms.ranks.wait", lambda: done.append("ranks"))
    synchronize(torch.device("cuda", 1))
    synchronize(CPU)
    assert done == [torch.device("cuda", 1), "ranks", "ranks"]


def test_tokens_are_seeded_and_not_all_equal() -> None:
    built = build_small("qwen3", layers=[0])
    first, again, other = (draw_tokens(built, 100, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert len(first.unique()) > 50


def test_the_layout_of_a_few_layers_is_numbered_anew_with_their_share_of_the_states() -> None:
    whole = full_layout(CONFIGS["qwen3_next"])
    part = sub_layout(whole, [1, 3], num_layers=4)
    assert [(plane.layer, plane.role) for plane in part.planes] == [(1, "k"), (1, "v")]
    assert part.state_bytes * 3 == whole.state_bytes
