"""What a report says of where its figures come from."""

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from bench.estimate.results import Analysis
from bench.record.atomic_write import write_text_safely
from bench.record.notices import KINDS, Notice
from bench.report.html import render_report, suspect_lines, write_report
from bench.report.provenance import check_rows
from bench.report.result_files import write_frame, write_results
from tests.helpers.sweeps import make_analysis, make_notice, make_run, make_samples, make_spot

SAMPLES = make_samples(num_rounds=2, num_samples=2)
ANALYSIS = make_analysis(SAMPLES)
EVIL = "<script>alert(1)</script>\" onload='x' {{ 7*7 }} &amp;"


def words(page: str) -> str:
    """The page as a reader sees it: no styles, no tags, no entities, single spaces."""
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_the_page_holds_every_section() -> None:
    run = make_run(notices=(make_notice(), Notice(kind="half_line", detail="dropped")))
    said = words(render_report(run, SAMPLES, ANALYSIS))
    for part in (
        "beyond C* = 7,208 tokens (95 % interval 6,890 to 7,545 tokens",
        "Both arms by prefix length",
        "C* (p95 load) crossover 7,391 [7,010–7,802] 4,096–8,192 512–32,768 7,424",
        "P* crossover 3,604",
        "Break-even bandwidth and tails",
        "0.5× bandwidth",
        "right answer (posix/best) passed; max difference 0.0078; control difference 1.4",
        "layer-scaling error relative error 2.10 %; tokens 512",
        "drift_load : load got 9 % slower over the sweep.",
        "half_line (harmless)",
        "price of the harness (null backend) tokens 512; seconds 0.210 ms",
        "load: posix, best layout posix-direct; cold; backend posix, preset best, num threads 8",
        "recompute (bfloat16) 0.02 + 2e-05 n + 4e-09 n² 0.400 %",
        "Storage name Samsung PM1743",
        "AMD EPYC 9654",
        "torch 2.13.0",
        "budget 180 s",
    ):
        assert part in said, part


def test_the_page_needs_nothing_from_outside_and_runs_nothing() -> None:
    page = render_report(make_run(), SAMPLES, ANALYSIS)
    assert "<script" not in page and "http://" not in page and "https://" not in page
    assert set(re.findall(r'(?:src|srcset|href)="([^:"]*:[^;"]*)', page)) == {"data:image/svg+xml"}
    assert "<link" not in page and "@import" not in page and "url(" not in page


def test_names_from_outside_are_escaped_everywhere() -> None:
    info = make_run().series
    evil = Notice(kind=EVIL, detail=EVIL)
    run = make_run(
        model_name=EVIL,
        storage={"name": EVIL, EVIL: EVIL},
        machine={"device_name": EVIL, EVIL: [EVIL]},
        software={EVIL: EVIL},
        harness={EVIL: EVIL},
        checks={EVIL: {EVIL: EVIL}},
        notices=(evil,),
        series={
            key: one.model_copy(update={"label": EVIL, "settings": {EVIL: EVIL}}) for key, one in info.items()
        },
    )
    points = tuple(replace(point, notices=(EVIL,)) for point in ANALYSIS.points)
    spots = (make_spot(verdict="inconclusive", crossings=(), reason=EVIL),)
    page = render_report(run, SAMPLES, replace(ANALYSIS, points=points, spots=spots, notices=(evil,)))
    assert "<script" not in page and "onload='" not in page and '" onload' not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20
    assert "{{ 7*7 }} &amp;amp;" in page


def test_a_run_with_nothing_measured_is_still_a_page() -> None:
    run = make_run(series={}, checks={}, harness={}, machine={}, software={}, storage={})
    said = words(render_report(run, [], Analysis((), (), ())))
    assert "nothing can be said" in said and "No check was recorded" in said
    assert "No load series was measured." in said


def test_a_failed_check_is_marked() -> None:
    run = make_run(checks={"answer:x": {"passed": False, "message": "logits differ"}})
    assert '<dd class="bad">FAILED; logits differ</dd>' in render_report(run, SAMPLES, ANALYSIS)


def test_writing_twice_gives_equal_bytes_and_leaves_no_part_file(tmp_path: Path) -> None:
    path = write_report(tmp_path, make_run(), SAMPLES, analysis=ANALYSIS)
    first = path.read_bytes()
    assert write_report(tmp_path, make_run(), SAMPLES, analysis=ANALYSIS).read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars"),
]
FRAME = """<!doctype html><body style="margin:0">
<iframe id="page" style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe><script>
addEventListener("load", () => {{
  const frame = document.getElementById("page"), root = frame.contentDocument.documentElement;
  const image = frame.contentDocument.querySelector("img");
  const wide = [...frame.contentDocument.querySelectorAll("section, table, td, dl, p, h1")]
    .filter(e => e.getBoundingClientRect().right > frame.contentWindow.innerWidth + 0.5).length;
  document.body.dataset.seen = JSON.stringify({{inner: frame.contentWindow.innerWidth,
    scroll: root.scrollWidth, wide: wide, image: image.naturalWidth, shown: image.clientWidth,
    text: root.innerText.length}});
}});</script></body>"""


def browse(folder: Path, *arguments: str) -> str:
    """What headless Chromium prints for these arguments, in a fresh profile."""
    assert CHROMIUM is not None
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [CHROMIUM, *FLAGS, profile, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def see(folder: Path, page: str, width: int) -> dict[str, int]:
    """Sizes of `page` in a real browser at a viewport of `width` pixels."""
    frame = folder / "frame.html"
    frame.write_text(FRAME.format(width=width, page=html.escape(page)), encoding="utf-8")
    found = re.search(r'data-seen="([^"]*)"', browse(folder, "--dump-dom", frame.as_uri()))
    assert found is not None, "the wrapper page did not load"
    sizes: dict[str, int] = json.loads(html.unescape(found.group(1)))
    return sizes


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [320, 390, 1200])
@pytest.mark.parametrize("name", ["Qwen3-8B", EVIL + "x" * 120], ids=["plain", "hostile"])
def test_the_page_fits_a_phone_and_a_desktop(tmp_path: Path, width: int, name: str) -> None:
    run = make_run(model_name=name, storage={"name": name, "path": "y" * 200}, notices=(make_notice(),))
    seen = see(tmp_path, render_report(run, SAMPLES, ANALYSIS), width)
    assert seen["inner"] == width
    assert seen["scroll"] <= width
    assert seen["wide"] == 0
    assert seen["image"] > 0 and 0.75 * width < seen["shown"] + 250 * (width > 640)
    assert seen["text"] > 2000


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_a_real_browser_paints_the_page(tmp_path: Path) -> None:
    path = write_report(tmp_path, make_run(), SAMPLES, analysis=ANALYSIS)
    shot = tmp_path / "shot.png"
    browse(tmp_path, "--window-size=1200,900", f"--screenshot={shot}", path.as_uri())
    assert shot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert shot.stat().st_size > 30_000


def test_each_suspect_code_is_explained_once_and_not_again_where_a_footnote_does() -> None:
    run = make_run(notices=(make_notice(), make_notice("busy_machine")))
    points = (replace(ANALYSIS.points[0], notices=("not_cold", "drift_load")), *ANALYSIS.points[1:])
    assert suspect_lines(run, SAMPLES, replace(ANALYSIS, points=points)) == (
        f"suspect: drift_load: {KINDS['drift_load'].meaning}",
        f"suspect: busy_machine: {KINDS['busy_machine'].meaning}",
    )
    assert suspect_lines(make_run(), SAMPLES, ANALYSIS) == ()
    limited = [replace(s, outcome=replace(s.outcome, notices=("above_limit",))) for s in SAMPLES]
    assert suspect_lines(make_run(), limited, ANALYSIS) == (
        f"suspect: above_limit: {KINDS['above_limit'].meaning}",
    )


def test_the_verdict_is_marked_where_something_makes_it_suspect() -> None:
    assert '<span class="chip crossover">crossover</span>' in render_report(make_run(), SAMPLES, ANALYSIS)
    doubted = render_report(make_run(notices=(make_notice(),)), SAMPLES, ANALYSIS)
    assert '<span class="chip bad">crossover, suspect</span>' in doubted


def test_what_the_device_multiplies_is_said_with_what_that_means_for_the_dtype() -> None:
    rates = {"bfloat16": 2.08e10, "float32": 1.37e11}
    run = make_run(checks={"dtype": {"flops_per_s": rates, "ratio": 0.1518}})
    assert check_rows(run) == (
        (
            "matrix multiplication alone",
            "bfloat16 0.0208 TFLOP/s, float32 0.137 TFLOP/s: the dtype asked for has 15.2 % of the other's rate",
            "",
        ),
    )
    alone = make_run(checks={"dtype": {"flops_per_s": {"float32": 1.25e11}, "ratio": 1.0}})
    assert check_rows(alone) == (("matrix multiplication alone", "float32 0.125 TFLOP/s", ""),)
    edited = make_run(checks={"dtype": {"flops_per_s": "fast", "ratio": "x"}})
    assert check_rows(edited) == (("matrix multiplication alone", "flops per s fast; ratio x", ""),)


SAMPLES_FILES = make_samples(tokens=(1024, 8192, 32768), num_rounds=2, num_samples=1)


def write(folder: Path) -> dict[str, bytes]:
    paths = write_results(folder, make_run(), SAMPLES_FILES, analysis=ANALYSIS)
    return {path.name: path.read_bytes() for path in paths}


def test_all_files_are_written_and_no_half_ones_are_left(tmp_path: Path) -> None:
    written = write(tmp_path)
    names = ["crossover.csv", "crossover.png", "crossover.svg", "report.html", "summary.csv"]
    assert sorted(written) == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_writing_again_over_leftovers_gives_equal_bytes(tmp_path: Path) -> None:
    first = write(tmp_path)
    (tmp_path / "summary.csv.1.part").write_text("half")  # of a process that was killed
    (tmp_path / "report.html").write_text("old")
    assert write(tmp_path) == first
    assert (tmp_path / "summary.csv.1.part").read_text() == "half"


def test_a_missing_cell_is_empty_and_never_zero(tmp_path: Path) -> None:
    write_frame(tmp_path / "a.csv", pd.DataFrame({"prefix_tokens": [1024, 8192], "load_s": [0.3, None]}))
    assert (tmp_path / "a.csv").read_bytes() == b"prefix_tokens,load_s\n1024,0.3\n8192,\n"


def test_no_text_cell_is_a_formula_and_no_number_is_changed(tmp_path: Path) -> None:
    frame = pd.DataFrame({"series": ["=1+1", "@x", "+x", "-x", "a=b", None], "load_s": [-1.5] * 6})
    write_frame(tmp_path / "a.csv", frame.convert_dtypes())
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[1:] == ["'=1+1,-1.5", "'@x,-1.5", "'+x,-1.5", "'-x,-1.5", "a=b,-1.5", ",-1.5"]


def test_two_processes_that_write_the_same_file_at_once_do_not_fail_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, ours = tmp_path / "summary.csv", os.fsync, os.getpid()
    written: list[str] = []

    def fsync(descriptor: int) -> None:
        if not written:  # ours is half done when the other comes
            written.append("theirs")
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda: ours + 1)
                write_text_safely(path, "theirs")
            assert path.read_text() == "theirs"
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_text_safely(path, "ours")
    assert [file.name for file in tmp_path.iterdir()] == ["summary.csv"]
    assert path.read_text() == "ours"
