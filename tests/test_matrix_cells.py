"""What a cell of the matrix says besides C*: other crossings, doubts, what fits, and the weights' dtype."""

from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from bench.catalog.devices.device_catalog import Devices, read_devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import describe_config, read_catalogue, resolve_model
from bench.cli.matrix_command import matrix
from bench.estimate.results import Crossing, Estimate, SweetSpot
from bench.predict.machine_spec import Setting, build_model
from bench.predict.matrix import MatrixCell, choose_dtype, fill_matrix, with_spot
from bench.predict.prediction import answer
from bench.record.notices import Notice
from bench.record.run import write_run
from bench.record.samples_csv import SampleWriter
from bench.report.figures.matrix_figure import draw_matrix, say_cell
from tests.sweeps import make_run, make_samples
from tests.tiny_configs import TINY_CONFIGS

DRIFTED = Notice(code="other_revision", message="rounds of two revisions of kvcross are pooled")
DEEPSEEK = resolve_model("deepseek-v3")


def _cell(model: str, gpu: str, storage: str, dtype: str = "auto") -> MatrixCell:
    (cell,) = fill_matrix([model], [gpu], [storage], read_devices(), dtype=dtype)
    return cell


def test_a_cell_is_undecided_where_a_prediction_is() -> None:
    cell = _cell("llama-3.1-8b", "H100", "pm9a3")
    cost = build_model(resolve_model("llama-3.1-8b"), Setting("H100", storage="pm9a3"), read_devices())
    notices = answer(cost, [1024], longest=131_072).spots[0].notices
    assert cell.undecided == "multiple_crossings within the bounds too"
    assert f"undecided: {cell.undecided}" in notices
    assert say_cell(cell) == "3,200?"
    alone = _cell("llama-3.1-8b", "L40S", "pm9a3")
    assert (alone.crossover_low_tokens, alone.undecided) == (None, "load_always_wins within the bounds too")


def test_a_cell_has_every_crossing_with_its_direction() -> None:
    cell = _cell("deepseek-v3", "B200", "d7-ps1010", "bfloat16")
    (below, first), (beyond, last) = cell.turns
    assert (cell.verdict, below, beyond) == ("multiple_crossings", False, True)
    assert first == pytest.approx(664, abs=1)
    assert last == pytest.approx(cell.crossover_tokens, rel=1e-5)
    assert say_cell(cell) == "<664,\n>117,000"


@pytest.mark.parametrize(
    ("crossings", "verdict", "says"),
    [
        ((), "load_always_wins", "load\nalways"),
        (((False, 94.4),), "crossover", "only below\n94"),
        (((True, 94.4), (False, 120_345.0)), "multiple_crossings", ">94,\n<120,000"),
        (((True, 3201.6),), "inconclusive", "3,200?"),
        ((), "inconclusive", "open"),
    ],
)
def test_a_measured_cell_says_its_crossings_in_whole_tokens(
    crossings: tuple[tuple[bool, float], ...], verdict: str, says: str
) -> None:
    found = tuple(
        Crossing(Estimate(tokens), (64, 128), load_wins_beyond=beyond) for beyond, tokens in crossings
    )
    spot = SweetSpot("posix", "whole", "p50", verdict, None, found, reason="why")  # type: ignore[arg-type]
    cell = with_spot(MatrixCell("measured", "m", "d", "s"), spot)
    assert say_cell(cell) == says
    assert cell.undecided == ("why" if verdict == "inconclusive" else "")


def test_signs_are_explained_where_they_stand() -> None:
    def key_of(*cells: MatrixCell) -> list[str]:
        axes = Figure().subplots()
        draw_matrix(axes, cells)
        legend = axes.get_legend()
        return [] if legend is None else [text.get_text() for text in legend.get_texts()]

    plain = MatrixCell("modelled", "m", "d", "s", verdict="load_always_wins")
    doubted = MatrixCell("modelled", "m", "d", "s", verdict="load_always_wins", undecided="crossover")
    several = MatrixCell(
        "modelled", "m", "d", "s", verdict="multiple_crossings", crossover_tokens=900, crossings="<64 >900"
    )
    assert key_of(plain) == ["modelled", "measured"]
    assert key_of(doubted)[2:] == ["?: undecided, the bounds hold another verdict too"]
    assert key_of(several)[2:] == ["<, >: load wins below, beyond"]


def test_a_cell_says_how_many_tokens_fit_where_its_range_does_not() -> None:
    cell = _cell("llama-3.1-8b", "L4", "pm9a3")
    assert cell.fitting_tokens == 51_418
    assert "at most 51,418 tokens do" in cell.reason
    assert "do not fit" not in _cell("llama-3.1-8b", "H200", "pm9a3").reason


def test_weights_are_taken_as_published_where_the_gpu_has_float8_units() -> None:
    devices = read_devices()
    chosen = [choose_dtype(DEEPSEEK, gpu, devices) for gpu in ("H200", "A100", "L4")]
    assert chosen == ["fp8", "bfloat16", "fp8"]
    assert choose_dtype(resolve_model("llama-3.1-8b"), "H200", devices) == "bfloat16"
    assert choose_dtype(DEEPSEEK, "H200", devices, "bf16") == "bfloat16"
    native = _cell("deepseek-v3", "H200", "d7-ps1010")
    assert (native.dtype, native.num_gpus) == ("fp8", 8)
    assert "supposed" not in native.reason


def test_weights_that_are_larger_than_published_are_said_to_be() -> None:
    assert _cell("deepseek-v3", "H200", "pm9a3", "bf16").reason == (
        "the weights do not fit into 8 GPUs; bfloat16 weights are supposed; the published checkpoint is fp8, smaller; "
        "try --dtype fp8"
    )
    assert "try" not in _cell("deepseek-v3", "A100", "pm9a3").reason
    due = "the published checkpoint is mxfp4, smaller and not modelled: fp8 is the nearest"
    assert due in _cell("gpt-oss-120b", "H100", "pm9a3").reason
    with pytest.raises(
        CatalogError, match=r"such GPUs hold them, .* \(bfloat16 weights are supposed; the published"
    ):
        build_model(DEEPSEEK, Setting("H200", 8, bytes_per_s=1e9), read_devices())


def test_what_weights_are_published_in_is_read_from_the_catalogue_and_from_configurations() -> None:
    published = {
        key: model.published_dtype for key, model in read_catalogue().items() if model.published_dtype
    }
    assert published == {
        "gpt-oss-20b": "mxfp4",
        "gpt-oss-120b": "mxfp4",
        "deepseek-v3": "fp8",
        "deepseek-r1": "fp8",
        "kimi-k2": "fp8",
    }
    for given, expected in (({"quant_method": "fp8"}, "fp8"), ({"bits": 4}, None), ("fp8", None)):
        config = {"model_type": "llama", **TINY_CONFIGS["llama"], "quantization_config": given}
        model = describe_config(config, "here", key="k", name="n", source="s")
        assert (model.published_dtype, "quantization_config" in model.config) == (expected, False)


def test_a_dtype_of_four_bits_is_refused_with_the_nearest_that_is_modelled() -> None:
    for name in ("mxfp4", "nvfp4", "int4", "w4a16"):
        with pytest.raises(CatalogError, match=f"'{name}' has no modelled rate; .*; fp8 is the nearest"):
            fill_matrix(["gpt-oss-120b"], ["H100"], ["pm9a3"], read_devices(), dtype=name)


def _user_gpu(folder: Path, more: str) -> Devices:
    file = folder / "mine.toml"
    file.write_text(f'[gpus.mine]\nname = "Mine"\nbf16_flops_per_s = 1e15\n{more}')
    return read_devices(file)


def test_a_figure_is_asked_for_only_where_the_gpu_may_have_float8_units(tmp_path: Path) -> None:
    llama, setting = resolve_model("llama-3.1-8b"), Setting("mine", dtype="fp8", bytes_per_s=1e9)
    for more, says in (("", "give it: --catalogue"), ("fp8_units = false\n", "Mine has no float8 units")):
        (tmp_path / says[:4]).mkdir()
        with pytest.raises(CatalogError, match=says):
            build_model(llama, setting, _user_gpu(tmp_path / says[:4], more))
    without = {key for key, gpu in read_devices().gpus.items() if gpu.fp8_units is False}
    assert without == {"a100-sxm-80gb", "a100-pcie-80gb", "rtx-3090", "a40", "a10", "t4"}
    assert not any(read_devices().gpus[key].fp8_flops_per_s for key in without)


def test_the_tables_have_the_dtype_the_doubt_and_all_crossings(tmp_path: Path) -> None:
    matrix(models="deepseek-v3", gpus="B200", ssds="d7-ps1010", results=tmp_path, folder=tmp_path / "out")
    (row,) = pd.read_csv(tmp_path / "out" / "matrix.csv").to_dict("records")
    assert (row["dtype"], row["num_gpus"], row["fitting_tokens"]) == ("fp8", 4, 225_598)
    assert row["crossings"].split()[0][0] == "<"
    assert set(pd.read_csv(tmp_path / "out" / "bandwidth.csv")["dtype"]) == {"fp8"}


def test_a_measured_cell_is_of_the_newest_sweep_of_its_setting_and_says_what_makes_it_suspect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run_id, notices in (("20250101T000000Z-aaaaaa", ()), ("20250102T000000Z-bbbbbb", (DRIFTED,))):
        folder = tmp_path / "results/qwen3-8b/machine" / run_id
        folder.mkdir(parents=True)
        write_run(folder, make_run(run_id=run_id, notices=notices))
        with closing(SampleWriter(folder)) as writer:
            for sample in make_samples():
                writer.append(sample)
    matrix("qwen3-8b", "L40S", "pm9a3", results=tmp_path / "results", folder=tmp_path / "out")
    assert "measured: 1 from" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "out/matrix.csv")
    (cell,) = rows[rows.origin == "measured"].to_dict("records")
    assert cell["suspect"] == "other_revision"
    assert say_cell(MatrixCell("measured", "m", "d", "s", crossover_tokens=2000.0, suspect="x")) == "2,000!"
