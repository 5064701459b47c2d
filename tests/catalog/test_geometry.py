import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.catalog.models.fields import CatalogError
from bench.catalog.models.geometry import Geometry, LayerKind, chunk_pairs, full_pairs, window_pairs
from bench.catalog.models.kv_dtype import KV_DTYPES
from bench.catalog.models.resolve import read_catalogue, resolve_model
from bench.catalog.models.summary import indexer_bytes_per_token, window_bytes
from tests.catalog.test_config_fields import _geometry

CATALOGUE = sorted(read_catalogue())
FULL = LayerKind("full")
MOE = LayerKind("full", moe=True)


def _of(key: str) -> Geometry:
    return resolve_model(key).geometry


@settings(deadline=None, max_examples=50)
@given(n=st.integers(0, 60), past=st.integers(0, 60), width=st.integers(1, 40))
def test_pairs_equal_the_sum_over_positions(n: int, past: int, width: int) -> None:
    positions = range(past, past + n)
    assert full_pairs(n, past) == sum(i + 1 for i in positions)
    assert window_pairs(n, past, width) == sum(min(i + 1, width) for i in positions)
    assert chunk_pairs(n, past, width) == sum(i % width + 1 for i in positions)


@settings(deadline=None, max_examples=50)
@given(key=st.sampled_from(CATALOGUE), first=st.integers(1, 30_000), second=st.integers(1, 30_000))
def test_prefill_in_two_parts_costs_the_same_but_for_one_more_output_head(
    key: str, first: int, second: int
) -> None:
    geometry = _of(key)
    head = 2 * geometry.hidden_size * geometry.vocab_size
    parts = geometry.prefill_flops(first) + geometry.prefill_flops(second, past_tokens=first)
    assert parts == geometry.prefill_flops(first + second) + head


def test_prefill_flops_of_llama_3_1_8b_are_gemm_plus_half_the_square_plus_one_head() -> None:
    geometry = _of("llama-3.1-8b")
    assert geometry.prefill_flops(4096) == (
        13_959_168_000 * 4096 + 524_288 * 4096 * 4097 // 2 + 2 * 4096 * 128_256
    )


def test_windows_bound_the_attention_of_their_layers() -> None:
    geometry = _of("gpt-oss-20b")
    per_layer = 4 * 64 * 64
    more = geometry.layer_flops(LayerKind("sliding", moe=True), 1, past_tokens=100_000)
    less = geometry.layer_flops(LayerKind("sliding", moe=True), 1, past_tokens=0)
    assert more - less == per_layer * 127
    assert geometry.layer_flops(MOE, 1, past_tokens=100_000) - less == per_layer * 100_000


def test_layers_add_up_to_the_prefill() -> None:
    geometry = _of("deepseek-v3")
    layers = sum(geometry.layer_flops(kind, 777, past_tokens=33) for kind in geometry.layers)
    assert geometry.prefill_flops(777, past_tokens=33) == layers + 2 * 7168 * 129_280


def test_linear_layers_cost_the_same_for_every_token() -> None:
    geometry = _of("qwen3-next-80b-a3b")
    kind = LayerKind("linear", moe=True)
    assert geometry.layer_flops(kind, 10, past_tokens=5000) == 10 * geometry.layer_flops(kind, 1)


def test_gemm_shapes_are_the_matrices_of_one_layer() -> None:
    assert _of("qwen3-8b").gemm_shapes(FULL) == [
        (4096, 4096),
        (1024, 4096),
        (1024, 4096),
        (4096, 4096),
        (12288, 4096),
        (12288, 4096),
        (4096, 12288),
    ]


def test_gemm_shapes_of_experts_are_those_one_token_takes() -> None:
    shapes = _of("mixtral-8x7b").gemm_shapes(MOE)
    assert shapes.count((14336, 4096)) == 4  # two experts, gate and up each
    assert shapes.count((4096, 14336)) == 2
    assert shapes.count((8, 4096)) == 1


@pytest.mark.parametrize("key", CATALOGUE)
def test_gemm_shapes_explain_the_flops_per_token_but_for_norms_biases_and_convolutions(key: str) -> None:
    geometry = _of(key)
    shapes = [shape for kind in geometry.layers for shape in geometry.gemm_shapes(kind)]
    gemm = 2 * sum(rows * columns for rows, columns in shapes)
    assert 0.997 < gemm / geometry.prefill_gemm_flops_per_token <= 1


def test_mla_is_not_divided_by_tensor_parallelism() -> None:
    geometry = _of("deepseek-v3")
    assert geometry.layout("bfloat16", 8) == geometry.layout("bfloat16", 1)
    assert geometry.layout("bfloat16").bytes_per_token == 70_272


def test_key_value_heads_are_divided_then_replicated() -> None:
    geometry = _of("qwen3-30b-a3b")  # 4 KV heads
    per_rank = [geometry.layout("bfloat16", ranks).bytes_per_token for ranks in (1, 2, 4, 8, 16)]
    assert per_rank == [98_304, 49_152, 24_576, 24_576, 24_576]


def test_linear_states_are_divided_by_tensor_parallelism() -> None:
    geometry = _of("qwen3-next-80b-a3b")
    assert (
        geometry.layout("bfloat16", 4).state_bytes * 4
        == geometry.layout("bfloat16").state_bytes
        == 77_266_944
    )


def test_heads_that_do_not_come_out_even_are_refused_with_what_would() -> None:
    with pytest.raises(CatalogError, match="cannot be divided among 3 ranks; 1, 2, 4, 8, 16, 32 can"):
        _of("qwen3-8b").layout("bfloat16", 3)
    # 10 heads of K and V: four ranks would keep 3, 3, 2 and 2, which no engine does
    with pytest.raises(
        CatalogError, match=r"\(10 of K and V\) cannot be divided among 4 ranks; 1, 2, 5, 10, 20, 40"
    ):
        _of("phi-4").layout("bfloat16", 4)
    # 128 heads of latents: any even share will do, for every rank keeps the latent
    with pytest.raises(CatalogError, match=r"^128 attention heads cannot be divided among 6 ranks"):
        _of("deepseek-v3").layout("bfloat16", 6)


@pytest.mark.parametrize("ranks", [0, -1, 33])
def test_more_ranks_than_query_heads_are_refused(ranks: int) -> None:
    with pytest.raises(CatalogError, match=f"tensor parallelism {ranks} is not between 1 and the 32"):
        _of("qwen3-8b").layout("bfloat16", ranks)


@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [
        ("bfloat16", 147_456),
        ("float16", 147_456),
        ("float32", 294_912),
        ("fp8", 73_728),
        ("fp8_e5m2", 73_728),
    ],
)
def test_the_kv_dtype_scales_the_bytes(dtype: str, num_bytes: int) -> None:
    assert _of("qwen3-8b").layout(dtype).bytes_per_token == num_bytes


def test_packed_fp8_latents_with_scales_are_656_bytes_per_layer() -> None:
    assert _of("deepseek-v3").layout("fp8_ds_mla").bytes_per_token == 61 * 656
    assert _of("deepseek-v3").layout("fp8").bytes_per_token == 61 * 576


def test_packed_latents_are_refused_for_other_ranks() -> None:
    with pytest.raises(CatalogError, match="fp8_ds_mla is defined for kv_lora_rank 512"):
        _geometry("deepseek_v3").layout("fp8_ds_mla")


def test_an_unknown_kv_dtype_is_refused() -> None:
    with pytest.raises(CatalogError, match="KV dtype 'int3' is unknown; known: bfloat16"):
        _of("qwen3-8b").layout("int3")


def test_fp8_never_shrinks_a_convolution_state_below_two_bytes() -> None:
    geometry = _of("qwen3-next-80b-a3b")
    assert geometry.layout("fp8").state_bytes == geometry.layout("bfloat16").state_bytes


def test_indexer_keys_are_a_plane_of_their_own() -> None:
    layout = _geometry("deepseek_v32", kv_lora_rank=512, qk_rope_head_dim=64, index_head_dim=128).layout(
        "bfloat16"
    )
    assert indexer_bytes_per_token(layout) == 4 * 128 * 2
    assert layout.bytes_per_token == 4 * (576 + 128) * 2
    packed = _geometry("deepseek_v32", kv_lora_rank=512, qk_rope_head_dim=64, index_head_dim=128).layout(
        "fp8_ds_mla"
    )
    assert packed.bytes_per_token == 4 * (656 + 128 + 4)


def test_an_indexer_bounds_the_pairs_of_the_large_attention() -> None:
    geometry = _geometry("deepseek_v32")  # picks 8 tokens; 2 indexer heads of 16; 4 heads of 24 and 24
    near, far = (geometry.layer_flops(FULL, 1, past_tokens=past) for past in (999, 1999))
    assert far - near == 1000 * 2 * 2 * 16


def test_layers_without_attention_keep_nothing() -> None:
    layout = _geometry("nemotron_h").layout("bfloat16")
    assert {plane.layer for plane in layout.planes} == {1}
    assert layout.bytes_per_token == 2 * 2 * 24 * 2


@settings(deadline=None, max_examples=50)
@given(key=st.sampled_from(CATALOGUE), n=st.integers(0, 300_000), more=st.integers(0, 300_000))
def test_bytes_never_shrink_with_length(key: str, n: int, more: int) -> None:
    layout = _of(key).layout("bfloat16")
    assert layout.bytes_at(n) <= layout.bytes_at(n + more)


@settings(deadline=None, max_examples=50)
@given(key=st.sampled_from(CATALOGUE), more=st.integers(0, 10**6))
def test_beyond_the_window_only_full_layers_grow(key: str, more: int) -> None:
    geometry = _of(key)
    layout = geometry.layout("bfloat16")
    window = geometry.window_tokens or 1
    grown = layout.bytes_at(window + more) - layout.bytes_at(window)
    assert grown == more * layout.bytes_per_token_beyond_window


@settings(deadline=None, max_examples=50)
@given(key=st.sampled_from(CATALOGUE), dtype=st.sampled_from(["bfloat16", "float32", "fp8"]))
def test_full_windows_and_growing_layers_make_up_all_bytes(key: str, dtype: str) -> None:
    layout = _of(key).layout(dtype)
    n = 10_000_000
    grown = layout.bytes_per_token_beyond_window * n
    assert layout.bytes_at(n) == grown + window_bytes(layout) + layout.state_bytes


@settings(deadline=None, max_examples=50)
@given(
    key=st.sampled_from(CATALOGUE),
    ranks=st.sampled_from([1, 2, 4, 8]),
    dtype=st.sampled_from(sorted(KV_DTYPES)),
)
def test_ranks_together_keep_everything_and_replicate_only_whole_heads(
    key: str, ranks: int, dtype: str
) -> None:
    geometry = _of(key)
    if dtype == "fp8_ds_mla" and geometry.family != "mla":
        dtype = "fp8_e4m3"
    heads, shared = geometry.attention.num_heads, getattr(geometry.attention, "num_kv_heads", ranks)
    assume(heads % ranks == 0 and (shared % ranks == 0 or ranks % shared == 0))
    whole, one = geometry.layout(dtype), geometry.layout(dtype, ranks)
    assert one.bytes_per_token * ranks >= whole.bytes_per_token
    if geometry.family == "mla":
        assert one == whole
    elif getattr(geometry.attention, "num_kv_heads", 0) % ranks == 0:
        assert one.bytes_per_token * ranks == whole.bytes_per_token
        assert one.bytes_at(5000) * ranks == whole.bytes_at(5000)
