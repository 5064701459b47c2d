"""The rooms may only know each other in the directions that docs/design.md draws."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# room -> rooms whose modules it may import
ALLOWED = {
    "kvio": {"kvio"},
    "bench.catalog": {"bench.catalog", "kvio.layout", "kvio.errors"},
    "bench.arms": {"bench.arms", "bench.catalog", "kvio"},
    "bench.measure": {"bench.measure", "bench.arms", "bench.catalog", "kvio"},
    "bench.analyse": {
        "bench.analyse",
        "bench.catalog",
        "bench.measure.record",
        "bench.measure.plan",
        "bench.measure.policy",
        "bench.measure.settings",
        "bench.arms.case",
        "kvio.layout",
        "kvio.errors",
    },
    "bench.show": {
        "bench.show",
        "bench.analyse",
        "bench.measure.record",
        "bench.measure.writing",
        "bench.measure.plan",
        "bench.measure.settings",
        "bench.arms.case",
        "kvio.fiojob",
        "kvio.layout",
        "kvio.errors",
    },
    "bench.stacks": {"bench.stacks", "bench.measure", "bench.catalog", "kvio"},
    "bench.verbs": {"bench", "kvio"},
    "bench.__main__": {"bench", "kvio"},
}
# optional packages and the one file that may import each
SINGLE_FILE = {
    "kvikio",
    "cuda",
    "nixl",
    "nixl_cu12",
    "nixl_cu13",
    "obstore",
    "mooncake",
    "liburing",
    "flash_attn",
    "ray",
}


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted([*(ROOT / "kvio").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _room(module: str) -> str:
    return next((room for room in ALLOWED if module == room or module.startswith(room + ".")), "")


def _within(name: str, rooms: set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


@pytest.mark.parametrize(("module", "path"), list(_modules()), ids=lambda value: str(value))
def test_a_module_imports_only_the_rooms_it_may(module: str, path: Path) -> None:
    room = _room(module)
    if not room:
        assert module in {"bench.__init__"}, f"{module} is in no room"
        return
    ours = [name for name in _imports(path) if name.split(".")[0] in {"bench", "kvio"}]
    # `from a.b import c` is listed as a.b and a.b.c; one of the two must be allowed
    parents = {name for name in ours if any(other.startswith(name + ".") for other in ours)}
    bad = [name for name in ours if name not in parents and not _within(name, ALLOWED[room])]
    assert bad == []


def test_each_optional_package_is_imported_in_one_file_at_most() -> None:
    users: dict[str, list[str]] = {}
    for module, path in _modules():
        for name in {name.split(".")[0] for name in _imports(path)} & SINGLE_FILE:
            users.setdefault(name, []).append(module)
    assert {name: found for name, found in users.items() if len(found) > 1} == {}


def test_analyse_and_show_never_need_torch() -> None:
    for module, path in _modules():
        if module.startswith(("bench.analyse", "bench.show", "bench.measure.record", "bench.arms.case")):
            assert not {"torch", "transformers"} & {name.split(".")[0] for name in _imports(path)}, module


IMPORT_EACH_FIRST = """
import importlib, sys
import torch
for name in sys.argv[1:]:
    for known in [known for known in sys.modules if known.split(".")[0] == "kvio"]:
        del sys.modules[known]
    importlib.import_module(name)
"""


def test_every_module_of_the_library_can_be_the_first_to_be_imported() -> None:
    names = [module.removesuffix(".__init__") for module, _ in _modules() if module.startswith("kvio")]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH_FIRST, *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
