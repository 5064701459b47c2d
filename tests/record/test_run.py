"""Result folders survive kills, and say what is wrong with them."""

import csv
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.record.folder import create_folder, find_latest, remove_folder, slug
from bench.record.plan import Plan
from bench.record.run import RunRecord, read_run, write_run
from bench.record.sample import COLUMNS, Case, Outcome, RecordError, Sample
from bench.record.samples_csv import SampleWriter, read_samples


def _sample(number: int) -> Sample:
    outcome = Outcome(
        0.1 + 0.2,
        read_s=1e-9,
        num_bytes=147456,
        cache_state="direct",
        verified=True,
        depth_s={"1": 0.25, "3": 0.5},
        notices=("a", "b"),
    )
    return Sample(number, 1, 2, 3.5, Case("load", "posix/best", 256, 0), outcome)


def _run() -> RunRecord:
    return RunRecord(
        run_id="r",
        started_utc="2026-01-01T00:00:00Z",
        plan=Plan(model="m"),
        model_name="M",
        kv_bytes_per_token=8,
        chunk_tokens=16,
    )


def test_a_sample_comes_back_exactly_as_it_was_written(tmp_path: Path) -> None:
    written = [_sample(0), Sample(1, 0, 0, 4.0, Case("recompute", "recompute", 64), Outcome(1.5))]
    writer = SampleWriter(tmp_path)
    for sample in written:
        writer.append(sample)
    writer.close()
    assert read_samples(tmp_path) == (written, ())


def test_every_row_is_on_the_disk_before_the_next_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    writer = SampleWriter(tmp_path)
    sizes = [(tmp_path / "samples.csv").stat().st_size]
    for number in range(2):
        writer.append(_sample(number))
        sizes.append((tmp_path / "samples.csv").stat().st_size)
    writer.close()
    assert synced == sizes


def test_a_half_written_last_row_is_dropped_with_a_notice_and_writing_goes_on(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path)
    writer.append(_sample(0))
    writer.append(_sample(1))
    writer.close()
    path = tmp_path / "samples.csv"
    path.write_bytes(path.read_bytes()[:-20])
    samples, notices = read_samples(tmp_path)
    assert [sample.round for sample in samples] == [0]
    assert [notice.kind for notice in notices] == ["half_line"]
    writer = SampleWriter(tmp_path)
    writer.append(_sample(2))
    writer.close()
    assert [sample.round for sample in read_samples(tmp_path)[0]] == [0, 2]


def test_samples_of_another_schema_are_refused(tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RecordError, match="columns are not those of schema 5"):
        read_samples(tmp_path)


def test_a_row_that_cannot_be_read_is_named_by_its_line(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path)
    writer.append(_sample(0))
    writer.close()
    path = tmp_path / "samples.csv"
    path.write_text(path.read_text().replace("147456", "many"))
    with pytest.raises(RecordError, match=r"samples\.csv:2: .*many"):
        read_samples(tmp_path)


def test_the_header_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_run(tmp_path, _run())
    assert read_run(tmp_path) == _run()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    content = json.loads(_run().model_dump_json())
    (tmp_path / "run.json").write_text(json.dumps({**content, "schema_number": 99}))
    with pytest.raises(RecordError, match="schema 99 is newer than 5"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no run.json here"),
        ("{", "not readable as JSON"),
        ("[]", "no schema_number"),
        ('{"schema_number": 4.0}', "schema_number is 4.0, which is no whole number"),
        ('{"schema_number": true}', "schema_number is True, which is no whole number"),
        ('{"schema_number": 1}', "run_id"),
    ],
)
def test_a_broken_header_is_refused_in_one_line(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordError, match=says) as caught:
        read_run(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_for_a_folder_and_missing_samples_are_refused_in_plain_words(tmp_path: Path) -> None:
    write_run(tmp_path, _run())
    with pytest.raises(RecordError, match=r"run\.json: a file; name the folder of a sweep") as caught:
        read_run(tmp_path / "run.json")
    with pytest.raises(RecordError, match=r"no samples\.csv here, so nothing can be derived") as missing:
        read_samples(tmp_path)
    assert "Errno" not in f"{caught.value}{missing.value}"


def test_every_column_is_named_once() -> None:
    assert len(set(COLUMNS)) == len(COLUMNS)


def _as_schema_1(folder: Path) -> None:
    """A folder as the first schema left it: no column for the share that a hybrid loaded."""
    writer = SampleWriter(folder)
    writer.append(_sample(0))
    writer.close()
    path = folder / "samples.csv"
    rows = [row for row in csv.reader(path.read_text().splitlines())]
    place = rows[0].index("load_fraction")
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([row[:place] + row[place + 1 :] for row in rows])
    write_run(folder, _run())
    header = folder / "run.json"
    header.write_text(header.read_text().replace('"schema_number": 5', '"schema_number": 1'))


def test_samples_of_the_first_schema_are_read_and_left_as_they_are(tmp_path: Path) -> None:
    _as_schema_1(tmp_path)
    before = (tmp_path / "samples.csv").read_bytes()
    assert read_samples(tmp_path) == ([_sample(0)], ())
    assert read_run(tmp_path).schema_number == 5
    assert (tmp_path / "samples.csv").read_bytes() == before


def test_going_on_with_the_first_schema_writes_its_rows_anew_with_all_columns(tmp_path: Path) -> None:
    _as_schema_1(tmp_path)
    writer = SampleWriter(tmp_path)
    writer.append(_sample(1))
    writer.close()
    assert (tmp_path / "samples.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    assert read_samples(tmp_path) == ([_sample(0), _sample(1)], ())


def test_a_share_that_was_loaded_comes_back(tmp_path: Path) -> None:
    hybrid = Sample(0, 0, 0, 0.0, Case("hybrid", "hybrid/posix/best", 64), Outcome(1.5, load_fraction=0.25))
    writer = SampleWriter(tmp_path)
    writer.append(hybrid)
    writer.close()
    assert read_samples(tmp_path) == ([hybrid], ())


def _lines(folder: Path, count: int = 4) -> list[str]:
    """Lines of a samples.csv with so many rows."""
    writer = SampleWriter(folder)
    for number in range(count):
        writer.append(_sample(number))
    writer.close()
    return (folder / "samples.csv").read_text().splitlines(keepends=True)


SHORT = {
    "cut in a number": lambda line: line[:12] + "\n",
    "cut in a quoted cell": lambda line: line[: line.index('""3""')] + "\n",
    "zeros of a crash": lambda line: "\0" * 50 + "\n",
    "zeros in a row": lambda line: line.replace("direct", "\0irect"),
}


@pytest.mark.parametrize("kind", SHORT)
def test_an_incomplete_last_line_is_dropped_with_a_notice_and_stays_away(tmp_path: Path, kind: str) -> None:
    lines = _lines(tmp_path)
    (tmp_path / "samples.csv").write_text("".join([*lines[:-1], SHORT[kind](lines[-1])]))
    samples, notices = read_samples(tmp_path)
    assert ([s.round for s in samples], [n.kind for n in notices]) == ([0, 1, 2], ["half_line"])
    writer = SampleWriter(tmp_path)
    writer.append(_sample(7))
    writer.close()
    samples, notices = read_samples(tmp_path)
    assert ([s.round for s in samples], notices) == ([0, 1, 2, 7], ())


@pytest.mark.parametrize("kind", SHORT)
def test_an_incomplete_line_in_the_middle_is_refused_by_its_number(tmp_path: Path, kind: str) -> None:
    lines = _lines(tmp_path)
    lines[2] = SHORT[kind](lines[2])
    (tmp_path / "samples.csv").write_text("".join(lines))
    with pytest.raises(
        RecordError, match=r"samples\.csv:3: the line is incomplete .*; delete that line, or sweep again"
    ):
        read_samples(tmp_path)


EDITED = {
    "arm": ("foo", "'foo' is none of recompute, load, hybrid, gemm"),
    "cache_state": ("banana", "'banana' is none of "),
    "round": ("-1", "round is -1"),
    "started_s": ("nan", "started_s is nan"),
    "num_bytes": ("18446744073709551615", "num_bytes is 18446744073709551615"),
    "seconds": ("1e308", r"seconds is 1e\+308"),
    "read_s": ("-0.5", r"read_s is -0\.5"),
    "prefix_tokens": ("0", "prefix_tokens is 0"),
    "depth_s": ("[]]", "Extra data"),
}


@pytest.mark.parametrize("column", EDITED)
def test_what_cannot_have_been_measured_is_refused_by_its_line(tmp_path: Path, column: str) -> None:
    value, says = EDITED[column]
    _edit(tmp_path, {column: value})
    with pytest.raises(RecordError, match=rf"samples\.csv:3: {says}"):
        read_samples(tmp_path)


def test_a_prefix_longer_than_any_models_is_refused_by_its_line(tmp_path: Path) -> None:
    _edit(tmp_path, {"prefix_tokens": "99999999999999"})
    with pytest.raises(
        RecordError, match=r"samples\.csv:3: prefix_tokens is 99999999999999; delete that line"
    ):
        read_samples(tmp_path)


def test_a_rate_beyond_any_memory_is_refused_unless_nothing_was_moved(tmp_path: Path) -> None:
    rate = {"num_bytes": "900000000000000", "seconds": "2.5"}
    _edit(tmp_path, rate)
    with pytest.raises(RecordError, match=r"samples\.csv:3: .* beyond any memory's rate"):
        read_samples(tmp_path)
    (tmp_path / "samples.csv").unlink()
    _edit(tmp_path, {**rate, "data_path": "null"})
    assert len(read_samples(tmp_path)[0]) == 4


def _edit(folder: Path, cells: dict[str, str]) -> None:
    """A samples.csv with these cells in its third line."""
    rows = list(csv.DictReader(_lines(folder)))
    rows[1].update(cells)
    with (folder / "samples.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("chunk_tokens", 0, "chunk_tokens: Input should be greater than 0"),
        ("kv_bytes_per_token", -5, "kv_bytes_per_token: Input should be greater than or equal to 0"),
        ("kv_bytes_per_token", 10**30, "kv_bytes_per_token: Input should be less than or equal to"),
        ("kv_bytes_at", {"0": 1}, r"kv_bytes_at\.0"),
        ("built_layers", {"indices": [], "total": 2}, r"built_layers\.indices: .* at least 1 item"),
        (
            "built_layers",
            {"indices": [0], "total": 0},
            r"built_layers\.total: Input should be greater than 0",
        ),
        (
            "series",
            {"load": {"arm": "load", "label": "l", "settings": {"backend": {}}}},
            r"series\.load\.settings: Value error, backend is dict, not text, a number or null",
        ),
        ("started_utc", "yesterday", "started_utc: Value error, Invalid isoformat string: 'yesterday'"),
        ("finished_utc", "not a time", "finished_utc: Value error, Invalid isoformat string: 'not a time'"),
    ],
)
def test_a_header_edited_into_what_no_sweep_can_have_written_is_refused(
    tmp_path: Path, field: str, value: object, says: str
) -> None:
    content = json.loads(_run().model_dump_json())
    (tmp_path / "run.json").write_text(json.dumps({**content, field: value}))
    with pytest.raises(RecordError, match=says):
        read_run(tmp_path)


def test_files_that_a_spreadsheet_has_saved_are_read(tmp_path: Path) -> None:
    write_run(tmp_path, _run())
    writer = SampleWriter(tmp_path)
    writer.append(_sample(0))
    writer.close()
    for name in ("run.json", "samples.csv"):
        path = tmp_path / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_run(tmp_path) == _run()
    assert read_samples(tmp_path)[0] == [_sample(0)]


def test_a_repetition_that_was_copied_in_is_refused(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path)
    for order in (0, 1):
        writer.append(replace(_sample(3), order=order))
    writer.close()
    with pytest.raises(
        RecordError,
        match=r"round 3 has sample 2 of load posix/best at 256 tokens 2 times; all but one were copied in$",
    ):
        read_samples(tmp_path)


def test_a_last_line_that_no_row_can_be_the_beginning_of_is_refused(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path)
    writer.append(_sample(0))
    writer.close()
    with (tmp_path / "samples.csv").open("a") as stream:
        stream.write("x" * 100_001)
    with pytest.raises(
        RecordError, match=r"the last line has 100001 characters and no end, which no row has"
    ):
        read_samples(tmp_path)


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
