"""The matrix: modelled cells, the measured ones beside them, and curves that agree with both."""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bench.catalog.devices.device_catalog import read_devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import resolve_model
from bench.cli.matrix_command import CURVE_COLUMNS, matrix
from bench.predict.bounded import Spread
from bench.predict.machine_spec import Setting, build_model
from bench.predict.matrix import MatrixCell, choose_ranks, fill_matrix, matrix_frame, trace_bandwidth
from bench.predict.prediction import find_whole, gap_whole
from bench.record.plan import PlanError
from bench.record.units import round_digits
from bench.report.figures.matrix_figure import count_missing, draw_curves, draw_matrix
from bench.report.result_files import PlaceError

ROOT = Path(__file__).parent.parent
LLAMA = resolve_model("llama-3.1-8b")


def test_a_cell_says_what_a_prediction_of_its_setting_says() -> None:
    devices = read_devices()
    (cell,) = fill_matrix(["llama-3.1-8b"], ["H100"], ["pm9a3"], devices)
    cost = build_model(LLAMA, Setting("H100", storage="pm9a3"), devices)
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
    cost = build_model(LLAMA, Setting("H100", bytes_per_s=1e9), read_devices())
    curve = trace_bandwidth(cost, "llama-3.1-8b", "h100", longest=131_072)
    middle = len(curve.tokens) // 2
    (crossing,) = find_whole(replace(cost, storage=Spread(curve.bytes_per_s[middle])), 64, 131_072)
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
        resolve_model("llama-4-maverick"), Setting("h200-sxm", 8, bytes_per_s=1e10), read_devices()
    )
    curve = trace_bandwidth(cost, "maverick", "8x h200", longest=1_000_000)
    (lower, low), (upper, high) = curve.branches()
    assert (lower, upper) == (False, True)
    assert curve.tokens[low][-1] == curve.tokens[high][0]  # the turn belongs to both
    for wins_beyond, where in curve.branches():
        middle = (where.start + where.stop) // 2
        gap = gap_whole(replace(cost, storage=Spread(curve.bytes_per_s[middle])))
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
