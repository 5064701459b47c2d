"""The matrix: modelled cells, the measured ones beside them, and curves that agree with both."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bench.catalog.devices.device_catalog import Devices, read_devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import describe_config, read_catalogue, resolve_model
from bench.cli.matrix_command import matrix
from bench.estimate.results import Crossing, Estimate, SweetSpot
from bench.predict.bounded import Bounded
from bench.predict.machine_spec import MachineSpec, build_model
from bench.predict.matrix import (
    MatrixCell,
    choose_dtype,
    choose_ranks,
    fill_matrix,
    matrix_frame,
    trace_bandwidth,
    with_spot,
)
from bench.predict.prediction import answer, find_whole, gap_whole
from bench.record.atomic_write import PlaceError
from bench.record.notices import Notice
from bench.record.plan import PlanError
from bench.record.run import write_run
from bench.record.samples_csv import SampleWriter
from bench.record.units import round_digits
from bench.report.figures.matrix_figure import count_missing, draw_curves, draw_matrix, format_cell
from bench.report.matrix_files import CURVE_COLUMNS
from tests.helpers.commands import ROOT
from tests.helpers.sweeps import make_run, make_samples
from tests.helpers.tiny_configs import TINY_CONFIGS

LLAMA = resolve_model("llama-3.1-8b")


def test_a_cell_says_what_a_prediction_of_its_setting_says() -> None:
    devices = read_devices()
    (cell,) = fill_matrix(["llama-3.1-8b"], ["H100"], ["pm9a3"], devices)
    cost = build_model(LLAMA, MachineSpec("H100", storage="pm9a3"), devices)
    (crossing,) = find_whole(cost, 64, 131_072)
    assert (cell.origin, cell.verdict, cell.load_wins_beyond) == ("modelled", "crossover", True)
    assert cell.crossover_tokens == crossing.tokens.value
    assert cell.read_bytes_per_s == 6e9


def test_the_fewest_gpus_that_hold_the_weights_are_taken() -> None:
    devices = read_devices()
    assert choose_ranks(LLAMA, "L4", devices, "bfloat16") == 1
    assert choose_ranks(resolve_model("llama-3.1-70b"), "H100", devices, "bfloat16") == 2
    assert choose_ranks(resolve_model("deepseek-v3"), "H100", devices, "bfloat16") is None
    (cell,) = fill_matrix(["deepseek-v3"], ["H100"], ["pm9a3"], devices)
    assert (cell.verdict, cell.reason) == (None, "the weights do not fit into 8 GPUs")


def test_the_curve_of_bandwidth_runs_through_the_crossovers() -> None:
    cost = build_model(LLAMA, MachineSpec("H100", bytes_per_s=1e9), read_devices())
    curve = trace_bandwidth(cost, "llama-3.1-8b", "h100", longest=131_072)
    middle = len(curve.tokens) // 2
    (crossing,) = find_whole(replace(cost, storage=Bounded(curve.bytes_per_s[middle])), 64, 131_072)
    assert crossing.tokens.value == pytest.approx(curve.tokens[middle], rel=0.002)
    assert list(curve.bytes_per_s) == sorted(curve.bytes_per_s, reverse=True)


def test_modelled_squares_are_hatched_and_measured_ones_are_not() -> None:
    cells = [
        MatrixCell(
            "modelled", "m", "d", "s", verdict="crossover", crossover_tokens=2048, load_wins_beyond=True
        ),
        MatrixCell(
            "measured", "m", "d", "s", verdict="crossover", crossover_tokens=1024, load_wins_beyond=False
        ),
    ]
    with mpl.rc_context():
        figure = Figure()
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        draw_matrix(axes, cells)
    squares = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [square.get_hatch() for square in squares] == ["///", None]
    assert [text.get_text() for text in axes.texts] == [
        round_digits(2048),
        f"only below\n{round_digits(1024)}",
    ]


def test_an_unknown_storage_stops_the_matrix() -> None:
    with pytest.raises(CatalogError, match="near it: pm9a3"):
        fill_matrix(["llama-3.1-8b"], ["H100"], ["pm9a4"], read_devices())


def test_missing_cells_of_the_table_are_empty() -> None:
    frame = matrix_frame([MatrixCell("modelled", "m", "d", "s", reason="too big")])
    assert (
        frame.to_csv(index=False, lineterminator="\n").splitlines()[1]
        == "modelled,m,d,s,1,,,,,,,,,,,,too big,"
    )


def test_the_command_writes_modelled_and_measured_answers_and_their_figures(tmp_path: Path) -> None:
    matrix(models="llama-3.1-8b", gpus="H100", ssds="pm9a3", results=ROOT / "results", folder=tmp_path)
    frame = pd.read_csv(tmp_path / "matrix.csv")
    measured = [pd.read_csv(path) for path in sorted((ROOT / "results").glob("*/*/*/crossover.csv"))]
    spots = pd.concat([table.query("kind == 'whole' and statistic == 'p50'") for table in measured])
    assert frame["origin"].tolist() == ["modelled", *["measured"] * len(spots)]
    assert len(spots) > len(measured)  # one of them loads in several ways
    expected = spots["crossover_tokens"].dropna().tolist()
    found = frame[frame["origin"] == "measured"]["crossover_tokens"].dropna()
    assert expected
    assert found.tolist() == pytest.approx(expected, rel=1e-6)
    for name in ("matrix.png", "bandwidth-llama-3.1-8b.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_cannot_be_made_and_results_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceError, match="file: cannot be written: File exists"):
        matrix(models="qwen3-0.6b", gpus="H100", ssds="pm9a3", results=tmp_path, folder=tmp_path / "file")
    with pytest.raises(PlanError, match="--results /nowhere: there is no such folder"):
        matrix(models="qwen3-0.6b", gpus="H100", ssds="pm9a3", results=Path("/nowhere"), folder=tmp_path)


def test_a_curve_that_folds_back_is_drawn_in_two_branches_that_say_who_wins() -> None:
    cost = build_model(
        resolve_model("llama-4-maverick"), MachineSpec("h200-sxm", 8, bytes_per_s=1e10), read_devices()
    )
    curve = trace_bandwidth(cost, "maverick", "8x h200", longest=1_000_000)
    (lower, low), (upper, high) = curve.branches()
    assert (lower, upper) == (False, True)
    assert curve.tokens[low][-1] == curve.tokens[high][0]  # the turn belongs to both
    for wins_beyond, where in curve.branches():
        middle = (where.start + where.stop) // 2
        gap = gap_whole(replace(cost, storage=Bounded(curve.bytes_per_s[middle])))
        n = curve.tokens[middle]
        assert (gap(0.9 * n) < 0 < gap(1.1 * n)) if wins_beyond else (gap(1.1 * n) < 0 < gap(0.9 * n))
    axes = Figure().subplots()
    draw_curves(axes, [curve], {})
    assert axes.lines[0].get_linestyle() != axes.lines[1].get_linestyle()
    labels = axes.get_legend_handles_labels()[1]
    assert labels == [f"maverick (bfloat16) on 8x h200: load wins {where}" for where in ("beyond", "up to")]


def test_cells_that_cannot_be_computed_are_counted_with_their_reason_and_stand_in_the_key() -> None:
    cells = fill_matrix(["llama-3.1-8b", "deepseek-v3"], ["h100-sxm"], ["pm9a3", "cm7-r"], read_devices())
    assert count_missing(cells) == [(2, "the weights do not fit into 8 GPUs")]
    axes = Figure().subplots()
    draw_matrix(axes, cells)
    legend = axes.get_legend()
    assert legend is not None
    assert "—: the weights do not fit into 8 GPUs" in [text.get_text() for text in legend.get_texts()]
    assert count_missing(fill_matrix(["llama-3.1-8b"], ["h100-sxm"], ["pm9a3"], read_devices())) == []


@pytest.mark.parametrize(
    ("models", "gpus", "dtype", "reason"),
    [
        ("llama-3.1-8b", "A100,H100", "fp8", "A100 SXM 80GB has no float8 units: take --dtype bfloat16"),
        ("llama-3.1-8b,phi-4", "T4", "bfloat16", "40 attention heads (10 of K and V)"),
    ],
    ids=["no-fp8-units", "ranks-do-not-divide"],
)
def test_a_curve_that_cannot_be_computed_is_left_out_with_its_reason(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    models: str,
    gpus: str,
    dtype: str,
    reason: str,
) -> None:
    matrix(models=models, gpus=gpus, ssds="pm9a3", dtype=dtype, results=tmp_path, folder=tmp_path / "out")
    said = capsys.readouterr().out.replace("\n", " ")
    assert f"no curve of bandwidth: 1 of 2: {reason}" in said
    assert f"cannot be computed: 1 of the modelled cells: {reason}" in said
    curves = pd.read_csv(tmp_path / "out" / "bandwidth.csv")
    assert len(curves.groupby(["model", "device"])) == 1
    for model in models.split(","):
        assert (tmp_path / "out" / f"bandwidth-{model}.png").exists()


def test_curves_of_nothing_are_a_table_without_rows(tmp_path: Path) -> None:
    matrix(
        models="deepseek-v3", gpus="L4", ssds="pm9a3", dtype="bf16", results=tmp_path, folder=tmp_path / "out"
    )
    assert pd.read_csv(tmp_path / "out" / "bandwidth.csv").columns.tolist() == list(CURVE_COLUMNS)


def test_other_names_of_a_dtype_take_as_many_gpus() -> None:
    devices, model = read_devices(), resolve_model("llama-3.1-70b")
    names = ("fp8", "float8", "fp8_e4m3", "bf16", "bfloat16")
    assert [choose_ranks(model, "H100", devices, name) for name in names] == [1, 1, 1, 2, 2]
    with pytest.raises(CatalogError, match="dtype 'int3' has no modelled rate"):
        fill_matrix(["llama-3.1-8b"], ["H100"], ["pm9a3"], devices, dtype="int3")


def test_a_cell_on_unknown_memory_says_that_the_fit_was_not_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[gpus.new]\nname = "New"\nbf16_flops_per_s = 1e15\n')
    (cell,) = fill_matrix(["llama-3.1-70b"], ["new"], ["pm9a3"], read_devices(file))
    assert cell.verdict is not None
    assert cell.reason.endswith("the memory of New is unknown: whether the weights fit was not checked")


DRIFTED = Notice(kind="other_revision", detail="rounds of two revisions of kvcross are pooled")
DEEPSEEK = resolve_model("deepseek-v3")


def _cell(model: str, gpu: str, storage: str, dtype: str = "auto") -> MatrixCell:
    (cell,) = fill_matrix([model], [gpu], [storage], read_devices(), dtype=dtype)
    return cell


def test_a_cell_is_undecided_where_a_prediction_is() -> None:
    cell = _cell("llama-3.1-8b", "H100", "pm9a3")
    cost = build_model(resolve_model("llama-3.1-8b"), MachineSpec("H100", storage="pm9a3"), read_devices())
    notices = answer(cost, [1024], longest=131_072).spots[0].notices
    assert cell.undecided == "multiple_crossings within the bounds too"
    assert Notice(kind="undecided", detail="multiple_crossings") in notices
    assert format_cell(cell) == "3,200?"
    alone = _cell("llama-3.1-8b", "L40S", "pm9a3")
    assert (alone.crossover_low_tokens, alone.undecided) == (None, "load_always_wins within the bounds too")


def test_a_cell_has_every_crossing_with_its_direction() -> None:
    cell = _cell("deepseek-v3", "B200", "d7-ps1010", "bfloat16")
    (below, first), (beyond, last) = cell.turns
    assert (cell.verdict, below, beyond) == ("multiple_crossings", False, True)
    assert first == pytest.approx(664, abs=1)
    assert last == pytest.approx(cell.crossover_tokens, rel=1e-5)
    assert format_cell(cell) == "<664,\n>117,000"


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
    assert format_cell(cell) == says
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
        build_model(DEEPSEEK, MachineSpec("H200", 8, bytes_per_s=1e9), read_devices())


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
    llama, setting = resolve_model("llama-3.1-8b"), MachineSpec("mine", dtype="fp8", bytes_per_s=1e9)
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
    assert (
        format_cell(MatrixCell("measured", "m", "d", "s", crossover_tokens=2000.0, suspect="x")) == "2,000!"
    )
