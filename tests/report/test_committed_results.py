"""The committed reference sweeps give the numbers that are committed beside them."""

from pathlib import Path

import pandas as pd
import pytest

from bench.estimate.analysis import analyse
from bench.record.folder import open_results
from bench.report.frames import crossover_frame, summary_frame
from tests.helpers.commands import ROOT

COMMITTED = sorted(path.parent for path in (ROOT / "results").rglob("run.json"))


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_a_committed_sweep_gives_its_committed_numbers(folder: Path, tmp_path: Path) -> None:
    analysis = analyse(*open_results(folder))
    for name, frame in (("summary", summary_frame(analysis)), ("crossover", crossover_frame(analysis))):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        found, expected = (pd.read_csv(place / f"{name}.csv") for place in (tmp_path, folder))
        wording = ["notices", "reason"]
        pd.testing.assert_frame_equal(
            found.drop(columns=wording, errors="ignore"),
            expected.drop(columns=wording, errors="ignore"),
            check_dtype=False,
            rtol=1e-9,
        )
