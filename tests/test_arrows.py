"""Rooms import only what stands below them, without an exception for any single file (docs/architecture.md)."""

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# room -> rooms that it may import besides itself
BELOW = {
    "bench.cli": {
        "bench.report",
        "bench.sizing",
        "bench.reuse",
        "bench.predict",
        "bench.estimate",
        "bench.measure",
        "bench.machine",
        "bench.catalog",
        "bench.record",
        "kvio",
    },
    "bench.report": {
        "bench.reuse",
        "bench.predict",
        "bench.estimate",
        "bench.record",
        "kvio.layout",
        "kvio.errors",
    },
    "bench.sizing": {"bench.reuse", "bench.predict", "bench.estimate", "bench.catalog", "bench.record"},
    "bench.reuse": {"bench.predict", "bench.estimate", "bench.catalog", "bench.record"},
    "bench.predict": {"bench.estimate", "bench.catalog", "bench.record", "kvio.layout"},
    "bench.estimate": {"bench.record"},
    "bench.measure": {"bench.machine", "bench.arms", "bench.catalog", "bench.record", "kvio"},
    "bench.machine": {"bench.record", "kvio"},
    "bench.arms": {"bench.catalog", "bench.record", "kvio"},
    "bench.catalog": {"bench.record", "kvio.layout", "kvio.errors"},
    "bench.record": {"kvio.errors", "kvio.protocol"},
    "bench.__main__": {"bench", "kvio"},
    # inside the library: backends and loading above, what they read and prove with below
    "kvio.loading": {"kvio"},
    "kvio.backends": {"kvio"},
    "kvio.store": {"kvio.layout", "kvio.evidence"},
    "kvio.evidence": {"kvio.layout"},
    "kvio.layout": set(),
    "kvio": set(),
}
# every room of the library may import the files that lie beside the rooms
LIBRARY_GROUND = {
    "kvio.alignment",
    "kvio.child_process",
    "kvio.errors",
    "kvio.file_ranges",
    "kvio.host_buffers",
    "kvio.os_errors",
    "kvio.protocol",
    "kvio.streams",
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
MAX_FILES_IN_FOLDER = 15


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted([*(ROOT / "kvio").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _room(module: str) -> str:
    return next((room for room in BELOW if module == room or module.startswith(room + ".")), "")


def _within(name: str, rooms: set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


@pytest.mark.parametrize(("module", "path"), list(_modules()), ids=lambda value: str(value))
def test_a_module_imports_only_the_rooms_below_it(module: str, path: Path) -> None:
    room = _room(module)
    assert room or module == "bench", f"{module} is in no room"
    allowed = BELOW.get(room, set()) | ({room} - {"kvio"}) | {"kvio.errors"}
    if room.startswith("kvio"):
        allowed |= LIBRARY_GROUND
    ours = [name for name in _imports(path) if name.split(".")[0] in {"bench", "kvio"}]
    # `from a.b import c` is listed as a.b and a.b.c; one of the two must be allowed
    parents = {name for name in ours if any(other.startswith(name + ".") for other in ours)}
    assert [name for name in ours if name not in parents and not _within(name, allowed)] == []


def test_no_folder_holds_more_files_than_a_reader_takes_in() -> None:
    folders = Counter(path.parent for _, path in _modules())
    assert {str(folder): count for folder, count in folders.items() if count > MAX_FILES_IN_FOLDER} == {}


def test_no_two_modules_have_one_name() -> None:
    names = Counter(path.stem for _, path in _modules() if not path.stem.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_public_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for _, path in _modules()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_each_optional_package_is_imported_in_one_file_at_most() -> None:
    users: dict[str, list[str]] = {}
    for module, path in _modules():
        for name in {name.split(".")[0] for name in _imports(path)} & SINGLE_FILE:
            users.setdefault(name, []).append(module)
    assert {name: found for name, found in users.items() if len(found) > 1} == {}


def test_what_reads_results_never_needs_torch() -> None:
    light = ("bench.record", "bench.estimate", "bench.predict", "bench.reuse", "bench.sizing", "bench.report")
    for module, path in _modules():
        if module.startswith(light):
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
    names = [module for module, _ in _modules() if module.startswith("kvio")]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH_FIRST, *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
