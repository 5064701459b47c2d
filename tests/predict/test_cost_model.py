"""The cost model: what its terms are, and that it moves the right way."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.catalog.devices.device_catalog import Devices, read_devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import read_catalogue, resolve_model
from bench.predict.bounded import Bounded
from bench.predict.cost_model import CostModel, EngineCosts, prefill_work, touched_params
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.prediction import MODELLED, answer, find_marginal, find_whole
from bench.predict.rates import LINK_SHARE, ComputeRates, find_compute, find_link, find_storage_rate

LLAMA = resolve_model("llama-3.1-8b").geometry
MODELS = ("llama-3.1-8b", "deepseek-v3", "gpt-oss-20b", "qwen3-next-80b-a3b", "gemma-3-12b", "mixtral-8x7b")


def _machine(
    *,
    gemm: float = 500e12,
    storage: float = 5e9,
    key: str = "llama-3.1-8b",
    num_gpus: int = 1,
    kv_dtype: str = "bfloat16",
) -> CostModel:
    geometry = resolve_model(key).geometry
    return CostModel(
        label="a machine",
        geometry=geometry,
        layout=geometry.layout(kv_dtype, num_gpus),
        num_gpus=num_gpus,
        weight_bytes=2.0,
        compute=ComputeRates(Bounded(gemm), {1024: 0.8 * gemm}),
        engine=EngineCosts(),
        memory_bytes_per_s=None,
        peer_bytes_per_s=None,
        link=None,
        storage=Bounded(storage),
    )


@pytest.mark.parametrize("key", sorted(read_catalogue()))
@pytest.mark.parametrize("tokens", [1, 1000, 20_000])
def test_the_work_of_a_prefill_is_that_of_its_geometry_split_by_kernel(key: str, tokens: int) -> None:
    geometry = resolve_model(key).geometry
    assert prefill_work(geometry, tokens).flops == pytest.approx(geometry.prefill_flops(tokens), rel=1e-12)


def test_full_attention_is_looked_up_at_the_prompt_length_and_a_window_at_twice_the_window() -> None:
    (full,) = prefill_work(LLAMA, 8192).attention
    assert full[1] == pytest.approx(8193)
    gemma = resolve_model("gemma-3-12b").geometry
    lengths = sorted(length for _, length in prefill_work(gemma, 131_072).attention)
    assert lengths == pytest.approx([2 * (gemma.window_tokens or 0), 131_073], rel=0.01)


def test_recompute_is_operations_over_rates_and_load_is_bytes_over_bandwidth() -> None:
    model = _machine(gemm=100e12, storage=2e9)
    (attention, _), gemm = prefill_work(LLAMA, 4096).attention[0], prefill_work(LLAMA, 4096).gemm_flops
    assert model.recompute_s(4096) == pytest.approx(gemm / 100e12 + attention / 80e12)
    assert model.transfer_s(4096) == pytest.approx(4095 * 131_072 / 2e9)
    two = _machine(gemm=100e12, num_gpus=2)
    assert two.recompute_s(4096) == pytest.approx(model.recompute_s(4096) / 2)


def test_a_pass_takes_at_least_the_time_to_read_its_weights() -> None:
    model = replace(_machine(), memory_bytes_per_s=1e12)
    assert model.recompute_s(2) == pytest.approx(2 * touched_params(LLAMA, 2) / 1e12)
    assert model.recompute_s(8192) == _machine().recompute_s(8192)


def test_below_512_rows_the_upper_bound_lets_less_and_less_of_the_weights_hide() -> None:
    model = replace(_machine(gemm=100e12), memory_bytes_per_s=1e12)
    reading = 2 * touched_params(LLAMA, 128) / 1e12
    computing = replace(model, memory_bytes_per_s=None).recompute_s(128)
    assert model.recompute_s(128) == pytest.approx(max(reading, computing))
    assert model.recompute_s(128, "high") == pytest.approx(
        max(reading, computing) + 0.75 * min(reading, computing)
    )
    assert model.recompute_s(512, "high") == model.recompute_s(512)


def test_a_request_pays_no_more_of_the_shared_overhead_in_a_prefill_than_in_a_load() -> None:
    model = replace(_machine(), engine=EngineCosts(overhead_s=3e-3, overhead_range_s=(1e-3, 9e-3)))
    recompute_s, load_s = model.both_arms_s(1000, "high", "low")
    assert recompute_s == pytest.approx(model.recompute_s(1000, "high") - 9e-3 + 1e-3)
    assert load_s == pytest.approx(model.fixed_s(1000, "low") + model.transfer_s(1000, "low"))
    slow_load = model.both_arms_s(1000, "low", "high")
    assert slow_load[1] - load_s == pytest.approx(8e-3)


def test_bounds_of_a_crossing_hold_it_and_follow_its_last_partner_where_the_numbers_differ() -> None:
    setting = MachineSpec(gpu="H100", bytes_per_s=8e9)
    model = build_model(resolve_model("llama-3.1-8b"), setting, read_devices())
    for crossings in (find_whole(model, 64, 131_072), find_marginal(model, 64, 131_072)):
        tokens = crossings[-1].tokens
        assert tokens.low is not None
        assert tokens.high is not None
        assert tokens.low <= tokens.value <= tokens.high


def test_one_token_of_a_mixture_reads_its_active_experts_and_many_tokens_read_all() -> None:
    mixtral = resolve_model("mixtral-8x7b").geometry
    embeddings = mixtral.vocab_size * mixtral.hidden_size + mixtral.other_params
    assert touched_params(mixtral, 1) == pytest.approx(mixtral.params_active - embeddings, rel=1e-9)
    assert touched_params(mixtral, 4096) == pytest.approx(mixtral.params_total - embeddings, rel=1e-9)


def test_small_copies_cost_their_number_besides_their_bytes() -> None:
    engine = EngineCosts(copy_s=10e-6, block_tokens=16)
    model = replace(_machine(), storage=None, link=Bounded(50e9), engine=engine)
    assert model.transfer_s(1601) == pytest.approx(1600 * 131_072 / 50e9 + 100 * 10e-6)


def test_the_host_link_limits_a_storage_that_is_faster() -> None:
    model = replace(_machine(storage=100e9), link=Bounded(50e9))
    assert model.transfer_s(8193) == pytest.approx(8192 * 131_072 / 50e9)
    assert replace(model, storage=Bounded(10e9)).transfer_s(8193) == pytest.approx(8192 * 131_072 / 10e9)


def test_two_all_reduces_a_layer_pass_the_activations_between_the_ranks() -> None:
    model = replace(_machine(num_gpus=4), peer_bytes_per_s=100e9)
    assert model.exchange_s(1000) == pytest.approx(2 * 32 * 1.5 * 1000 * 4096 * 2 / 100e9)


def test_without_fixed_costs_c_star_is_twice_p_star() -> None:
    model = _machine(gemm=800e12, storage=5e9)
    flat = replace(model, geometry=replace(LLAMA, vocab_size=1))
    (whole,) = find_whole(flat, 64, 1_000_000)
    (marginal,) = find_marginal(flat, 64, 1_000_000, chunk_tokens=1)
    assert whole.tokens.value == pytest.approx(2 * marginal.tokens.value, rel=0.01)
    # (b - g) / (a / 2) by hand: b n = g n + a n^2 / 2
    by_byte, by_gemm = 131_072 / 5e9, LLAMA.prefill_gemm_flops_per_token / 800e12
    by_pair = LLAMA.attention.pair_flops * 32 / (0.8 * 800e12)
    assert whole.tokens.value == pytest.approx((by_byte - by_gemm) / (by_pair / 2), rel=0.01)


def test_at_the_break_even_bandwidth_both_arms_tie() -> None:
    model = replace(_machine(), memory_bytes_per_s=2e12)
    point = answer(model, [4096]).points[0]
    assert point.break_even_bytes_per_s is not None
    tied = replace(model, storage=Bounded(point.break_even_bytes_per_s))
    assert tied.load_s(4096) == pytest.approx(tied.recompute_s(4096), rel=1e-9)


def test_verdicts_are_named_where_nothing_crosses() -> None:
    fast, slow = answer(_machine(storage=1e13), [8192]), answer(_machine(storage=1e6), [8192])
    assert [spot.verdict for spot in fast.spots] == ["load_always_wins"] * 2
    assert [spot.verdict for spot in slow.spots] == ["recompute_always_wins"] * 2
    assert all(spot.notices == (MODELLED,) for spot in (*fast.spots, *slow.spots))
    assert all(point.num_rounds == 0 for point in fast.points)


@settings(max_examples=25, deadline=None)
@given(storage=st.floats(1e9, 4e9), faster=st.floats(1.05, 3.0), key=st.sampled_from(MODELS[:2]))
def test_c_star_falls_with_bandwidth(storage: float, faster: float, key: str) -> None:
    slow, fast = (
        find_whole(_machine(key=key, storage=rate), 64, 2**24) for rate in (storage, storage * faster)
    )
    assert len(slow) <= 1
    if slow and fast:
        assert fast[0].tokens.value < slow[0].tokens.value
    assert not (fast and not slow)


@settings(max_examples=25, deadline=None)
@given(gemm=st.floats(300e12, 800e12), faster=st.floats(1.05, 3.0), key=st.sampled_from(MODELS[:2]))
def test_c_star_rises_with_the_speed_of_the_gpu(gemm: float, faster: float, key: str) -> None:
    slow, fast = (
        find_whole(_machine(key=key, storage=1e9, gemm=rate), 64, 2**24) for rate in (gemm, gemm * faster)
    )
    if slow:
        assert fast[0].tokens.value > slow[0].tokens.value


@settings(max_examples=60, deadline=None)
@given(
    key=st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "gemma-3-12b", "mixtral-8x7b"]),
    ranks=st.sampled_from([1, 2, 4, 8]),
    tokens=st.integers(2, 200_000),
    kv_dtype=st.sampled_from(["bfloat16", "fp8"]),
)
def test_bytes_of_the_ranks_add_up_to_those_of_one(key: str, ranks: int, tokens: int, kv_dtype: str) -> None:
    whole = _machine(key=key, kv_dtype=kv_dtype).num_bytes(tokens)
    assert _machine(key=key, kv_dtype=kv_dtype, num_gpus=ranks).num_bytes(tokens) == whole


@settings(max_examples=20, deadline=None)
@given(ranks=st.sampled_from([2, 4, 8, 16]), tokens=st.integers(2, 100_000))
def test_a_latent_is_replicated_and_heads_are_not_divided_below_one(ranks: int, tokens: int) -> None:
    latent = _machine(key="deepseek-v3").num_bytes(tokens)
    assert _machine(key="deepseek-v3", num_gpus=ranks).num_bytes(tokens) == ranks * latent
    heads = _machine().num_bytes(tokens)
    assert _machine(num_gpus=ranks).num_bytes(tokens) == heads * max(ranks / 8, 1)


def test_fp8_speeds_up_products_by_the_ratio_of_the_peaks_and_attention_not() -> None:
    devices = read_devices()
    gpu = devices.find_gpu("H100")
    bf16, _ = find_compute(devices, gpu, "bfloat16")
    fp8, notices = find_compute(devices, gpu, "fp8")
    assert fp8.gemm.value == pytest.approx(2 * bf16.gemm.value)
    assert fp8.attention == bf16.attention
    assert any("attention stays in bfloat16" in notice for notice in notices)


def test_a_gpu_without_fp8_units_is_refused_for_fp8() -> None:
    with pytest.raises(CatalogError, match="A100 SXM 80GB has no float8 units"):
        find_compute(read_devices(), read_devices().find_gpu("A100"), "fp8")


def test_an_unverified_figure_is_said_wherever_it_is_used() -> None:
    model = build_model(
        resolve_model("llama-2-7b"), MachineSpec(gpu="A40", storage="980 PRO"), read_devices()
    )
    said = " ".join(model.notices)
    assert "a40: bf16_flops_per_s is unverified" in said
    assert "a40: memory_bytes_per_s is unverified" in said
    assert "980-pro: read rate is unverified" in said


def test_a_gpu_without_measured_kernels_gets_the_shares_of_others_with_their_range() -> None:
    devices = read_devices()
    rates, notices = find_compute(devices, devices.find_gpu("RTX 4090"), "bfloat16")
    assert rates.gemm.low is not None
    assert rates.gemm.high is not None
    assert rates.gemm.low < rates.gemm.value < rates.gemm.high < 165.2e12
    assert any("no kernel was measured on RTX 4090" in notice for notice in notices)


@pytest.mark.parametrize(("gpu", "num_gpus", "enough"), [("H100", 1, 2), ("L4", 1, 8), ("L4", 4, 8)])
def test_weights_that_do_not_fit_are_refused_with_the_gpus_that_hold_them(
    gpu: str, num_gpus: int, enough: int
) -> None:
    model, devices = resolve_model("llama-3.1-70b"), read_devices()
    with pytest.raises(CatalogError, match=f"do not fit into its .* {enough} such GPUs hold them"):
        build_model(model, MachineSpec(gpu=gpu, num_gpus=num_gpus, bytes_per_s=1e10), devices)
    assert (
        build_model(model, MachineSpec(gpu=gpu, num_gpus=enough, bytes_per_s=1e10), devices).num_gpus
        == enough
    )


def test_four_drives_are_four_times_as_fast_and_their_striping_is_supposed() -> None:
    model = build_model(
        resolve_model("llama-3.1-8b"), MachineSpec(gpu="H100", storage="4x CM7-R"), read_devices()
    )
    assert model.storage == Bounded(4 * 13.5e9)
    assert any("striped without loss" in notice for notice in model.notices)


NEW = '[gpus.new]\nname = "New"\nbf16_flops_per_s = 1e15\nlink = "pcie5-x16"\n'
KERNEL = "source = 'lab'\ngemm_low = 5e14\ngemm_high = 6e14\n"


def _with(tmp_path: Path, text: str) -> Devices:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return read_devices(file)


@pytest.mark.parametrize(
    ("name", "label", "rate"),
    [
        ("4x Solidigm D7-PS1010", "4x Solidigm D7-PS1010", 25.9e9),
        ("d7-ps1010-x4", "4x Solidigm D7-PS1010", 25.9e9),
        ("4x d7-ps1010", "4x Solidigm D7-PS1010", 25.9e9),
        ("4 x D7-PS1010", "4x Solidigm D7-PS1010", 25.9e9),
        ("2x d7-ps1010", "2x Solidigm D7-PS1010", 29e9),
        ("1x pm9a3", "Samsung PM9A3", 6e9),
        ("4x pm9a3", "4x Samsung PM9A3", 24e9),
        ("2x d7-ps1010-x4", "2x 4x Solidigm D7-PS1010", 51.8e9),
    ],
)
def test_a_set_that_was_measured_goes_before_that_many_of_one_drive(
    name: str, label: str, rate: float
) -> None:
    found, spread, _ = find_storage_rate(read_devices(), name)
    assert (found, spread.value) == (label, rate)


def test_no_drives_hold_nothing() -> None:
    with pytest.raises(CatalogError, match="0 drives hold nothing"):
        find_storage_rate(read_devices(), "0x pm9a3")


def test_kernels_of_a_gpu_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"kernels\.lost: there is no \[gpus\.lost\]"):
        _with(tmp_path, f"[kernels.lost]\n{KERNEL}attention = {{ '1024' = 1e14 }}\n")


def test_kernels_whose_range_falls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="gemm_low must not be above gemm_high"):
        _with(
            tmp_path,
            f"{NEW}[kernels.new]\nsource = 'lab'\ngemm_low = 2\ngemm_high = 1\nattention = {{ '1024' = 1 }}\n",
        )


@pytest.mark.parametrize("attention", ["{ '1024' = 1e14, '16384' = 4e14 }", "{ '777' = 1e14 }"])
def test_a_users_kernels_change_nothing_for_other_gpus(tmp_path: Path, attention: str) -> None:
    devices = _with(tmp_path, f"{NEW}[kernels.new]\n{KERNEL}attention = {attention}\n")
    shipped = read_devices()
    ours, _ = find_compute(devices, devices.find_gpu("RTX 4090"), "bfloat16")
    assert ours == find_compute(shipped, shipped.find_gpu("RTX 4090"), "bfloat16")[0]
    assert list(ours.attention) == [1024, 2048, 4096, 8192, 16_384]
    assert find_compute(devices, devices.find_gpu("new"), "bfloat16")[0].gemm.low == 5e14


def test_all_shipped_kernels_have_the_same_lengths() -> None:
    assert len({tuple(kernel.attention) for kernel in read_devices().kernels.values()}) == 1


@pytest.mark.parametrize(("gpu", "nominal"), [("b300-sxm", 128e9), ("gb200", 64e9)])
def test_a_nominal_host_link_is_discounted_and_said(gpu: str, nominal: float) -> None:
    devices = read_devices()
    link, notices = find_link(devices, devices.find_gpu(gpu))
    assert link is not None
    assert link.value == LINK_SHARE * nominal
    assert len(notices) == 1
    assert notices[0].endswith("0.84 of its nominal rate, unmeasured")


@pytest.mark.parametrize("name", ["float8", "fp8_e4m3", "FP8", "float8_e4m3fn"])
def test_float8_has_several_names_and_one_rate(name: str) -> None:
    devices = read_devices()
    gpu = devices.find_gpu("H100")
    assert find_compute(devices, gpu, name) == find_compute(devices, gpu, "fp8")
    model = build_model(
        resolve_model("llama-3.1-8b"), MachineSpec("H100", dtype=name, bytes_per_s=1e9), devices
    )
    assert model.weight_bytes == 1.0


def test_memory_that_is_unknown_is_said_since_nothing_was_checked(tmp_path: Path) -> None:
    devices = _with(tmp_path, NEW)
    model = build_model(resolve_model("llama-3.1-70b"), MachineSpec("new", bytes_per_s=1e9), devices)
    assert "the memory of New is unknown: whether the weights fit was not checked" in model.notices
    known = build_model(resolve_model("llama-3.1-8b"), MachineSpec("H100", bytes_per_s=1e9), devices)
    assert not any("memory" in notice for notice in known.notices)


def test_an_unverified_memory_is_said_and_a40_has_its_own() -> None:
    devices = read_devices()
    small = build_model(resolve_model("llama-3.2-1b"), MachineSpec("T4", bytes_per_s=1e9), devices)
    assert any(notice.startswith("t4: memory_bytes is unverified: 1.6e+10") for notice in small.notices)
    with pytest.raises(CatalogError, match="do not fit into its 48 GB"):
        build_model(resolve_model("llama-3.1-70b"), MachineSpec("A40", bytes_per_s=1e9), devices)
