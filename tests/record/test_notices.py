"""Every notice that the product gives is of a known kind, and those of old results still open."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.record.folder import open_results
from bench.record.notices import KINDS, OLD_CODES, Notice, keep_latest
from bench.record.run import read_run, write_run
from kvio.evidence.cold_evidence import NOTICES
from tests.helpers.commands import ROOT
from tests.helpers.sweeps import make_run

COMMITTED = sorted(path.parent for path in (ROOT / "results").rglob("run.json"))


def _kinds(path: Path) -> Iterator[str]:
    """The kinds of the notices that a file makes: of `Notice(kind=...)`, by value or by a constant of the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Notice":
            for given in node.keywords:
                if given.arg == "kind" and isinstance(given.value, ast.Constant):
                    yield str(given.value.value)
                elif given.arg == "kind" and isinstance(given.value, ast.Name):
                    yield str(constants.get(given.value.id, "failed"))


def test_every_kind_of_notice_that_the_product_gives_is_in_the_table() -> None:
    found = {kind for path in (ROOT / "bench").rglob("*.py") for kind in _kinds(path)} | NOTICES
    assert {"failed", "seldom_usable", "few_rounds", "server_caches_unknown"} <= found
    assert sorted(found - KINDS.keys()) == []
    assert set(OLD_CODES.values()) <= KINDS.keys()
    assert not OLD_CODES.keys() & KINDS.keys()


def test_the_last_notice_of_each_kind_and_series_is_kept() -> None:
    notices = [
        Notice(kind="busy_machine", detail="rounds 1-2"),
        Notice(kind="series_failed", series="a", detail="gone"),
        Notice(kind="series_failed", series="b", detail="gone"),
        Notice(kind="busy_machine", detail="rounds 1-3"),
    ]
    assert keep_latest(notices) == (notices[3], notices[1], notices[2])


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_every_committed_result_opens(folder: Path) -> None:
    run, samples = open_results(folder)
    assert samples
    assert all(notice.kind in KINDS and notice.detail for notice in run.notices)
    assert all(notice.series is None or notice.series in run.series for notice in run.notices)


def test_notices_of_an_older_header_are_read_with_their_series(tmp_path: Path) -> None:
    write_run(tmp_path, make_run())
    header = json.loads((tmp_path / "run.json").read_text())
    one, other = list(header["series"])[:2]
    header["schema_number"] = 4
    header["notices"] = [
        {"code": "cufile_unseen", "message": f"{one}, {other}: 2 reads", "suspect": True},
        {"code": "skipped", "message": "gds skipped: no GPU", "suspect": False},
    ]
    (tmp_path / "run.json").write_text(json.dumps(header))
    run = read_run(tmp_path)
    assert run.notices == (
        Notice(kind="gds_unproven", series=one, detail="2 reads"),
        Notice(kind="gds_unproven", series=other, detail="2 reads"),
        Notice(kind="backend_unavailable", detail="gds skipped: no GPU"),
    )
    assert [notice.suspect for notice in run.notices] == [True, True, False]
