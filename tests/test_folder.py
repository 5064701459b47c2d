"""Result folders have safe names and are never shared."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.record.folder import create_folder, find_latest, remove_folder, slug

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen3-8B", "qwen-qwen3-8b"),
        ("../../etc/passwd", "etc-passwd"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("<script>\n", "script"),
        ("a" * 200, "a" * 64),
    ],
)
def test_any_text_becomes_a_folder_name(text: str, name: str) -> None:
    assert slug(text) == name


def test_two_sweeps_of_the_same_second_get_two_folders(tmp_path: Path) -> None:
    made = {create_folder(tmp_path, model_name="m", machine="x", started=NOON)[1] for _ in range(5)}
    assert len(made) == 5
    assert all(folder.parent == tmp_path / "m" / "x" for folder in made)


def test_a_folder_goes_with_those_for_its_model_and_machine_unless_they_hold_others(tmp_path: Path) -> None:
    first, second = (create_folder(tmp_path, model_name="m", machine="x", started=NOON)[1] for _ in range(2))
    (first / "run.json").write_text("{}")
    remove_folder(first)
    assert [path for path in tmp_path.rglob("*") if path.is_dir()] == [
        second.parent.parent,
        second.parent,
        second,
    ]
    remove_folder(second)
    assert tmp_path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_the_latest_result_is_the_newest_with_a_header(tmp_path: Path) -> None:
    assert find_latest(tmp_path) is None
    older = create_folder(tmp_path, model_name="m", machine="x", started=NOON)[1]
    newer = create_folder(tmp_path, model_name="a", machine="x", started=NOON.replace(hour=13))[1]
    create_folder(tmp_path, model_name="m", machine="x", started=NOON.replace(hour=14))
    for folder in (older, newer):
        (folder / "run.json").write_text("{}")
    assert find_latest(tmp_path) == newer
