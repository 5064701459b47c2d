"""Every notice that a sweep can give is explained."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from bench.record.notices import EXPLANATIONS
from kvio.evidence.cold_evidence import NOTICES
from tests.helpers.commands import ROOT

SPELLED = re.compile(r"([a-z]+(?:_[a-z]+)+): ")  # how the analysis begins a notice


def _codes(path: Path) -> Iterator[str]:
    """The codes of notices that stand in a file: of `Notice(code=...)`, and of texts that begin with one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "code":
            if isinstance(node.value, ast.Constant):
                yield str(node.value.value)
            elif isinstance(node.value, ast.Name) and node.value.id in names:
                yield str(names[node.value.id])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "estimate" in path.parts:
            yield from SPELLED.findall(node.value[:40])[:1] if SPELLED.match(node.value) else ()


def test_every_code_of_a_notice_has_an_explanation_of_its_own() -> None:
    found = {code for path in (ROOT / "bench").rglob("*.py") for code in _codes(path)} | set(NOTICES)
    assert {"failed", "skipped", "seldom_usable", "few_rounds", "server_caches_unknown"} <= found
    assert sorted(found - set(EXPLANATIONS)) == []
