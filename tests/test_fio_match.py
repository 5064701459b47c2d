"""Whether fio and a sweep read alike, from what a job of ours says of itself and from a sweep's settings."""

import json
from pathlib import Path

import pytest

from bench.measure.setup import work_out
from bench.record.plan import LoadSpec, Plan
from bench.report.fio import read_fio
from bench.report.fio_match import Reading, differences, reading_of
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.fio_job import plain_name, read_description, write_job
from kvio.layout.presets import PRESETS, adapt_preset
from tests.sweeps import make_run

READING = Reading(
    model="Qwen3-8B",
    layout="lmcache",
    chunk_bytes=4096,
    request_bytes=4096,
    read_bytes=4096,
    direct=False,
    in_flight=4,
)


def _as_fio_says(text: str, path: Path) -> Reading:
    """The reading in what fio would write of a job, which hands back its options as they are."""
    options = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    job = {
        "jobname": "kv",
        "desc": options["description"],
        "job options": options,
        "read": {
            "io_bytes": 8 * int(options["bs"]),
            "bw_bytes": 1,
            "total_ios": 8,
            "clat_ns": {"mean": 1},
        },
    }
    (path / "fio.json").write_text(json.dumps({"jobs": [job]}))
    return read_fio(path / "fio.json")[0].reading


@pytest.mark.parametrize("layout", PRESETS)
@pytest.mark.parametrize("model", ["qwen3-8b", "gpt-oss-20b"])
def test_the_job_of_a_layout_reads_as_a_sweep_of_that_layout(tmp_path: Path, layout: str, model: str) -> None:
    setup = work_out(Plan(model=model, loads=(LoadSpec(backend="posix", preset=layout),)))
    (load,) = setup.loads
    job = write_job(
        load.geometry,
        model=setup.model.name,
        engine="psync",
        directory="/d",
        working_set_bytes=1 << 40,
    )
    run = make_run(series=setup.series, model_name=setup.model.name)
    fio, sweep = _as_fio_says(job.text, tmp_path), reading_of(run, load.name)
    assert differences(fio, sweep) == ()
    for direct in (not load.geometry.direct,):
        other = ChunkGeometry(setup.layout, adapt_preset(load.geometry.preset, direct=direct))
        if other.direct == direct:
            text = write_job(
                other, model=setup.model.name, engine="psync", directory="/d", working_set_bytes=1 << 40
            ).text
            assert len(differences(_as_fio_says(text, tmp_path), sweep)) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "Qwen3-0.6B"}, "model: Qwen3-8B, here Qwen3-0.6B"),
        ({"layout": "vllm-fs"}, "layout: lmcache, here vllm-fs"),
        ({"chunk_bytes": 8 << 20}, "chunk: 0.00391 MiB, here 8 MiB"),
        ({"request_bytes": None}, "read: 0.00391 MiB, here not recorded"),
        ({"direct": True}, "buffered, here direct"),
        ({"in_flight": None}, "in flight: 4, here not recorded"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_each_difference_is_said(change: dict[str, object], said: str) -> None:
    changed = {name: getattr(READING, name) for name in Reading.__slots__} | change
    assert differences(READING, Reading(**changed)) == (said,)


def test_a_job_whose_block_size_was_changed_no_longer_says_what_it_reads(tmp_path: Path) -> None:
    setup = work_out(Plan(model="qwen3-8b", loads=(LoadSpec(backend="posix", preset="lmcache"),)))
    text = write_job(
        setup.loads[0].geometry,
        model="m",
        engine="libaio",
        directory="/d",
        working_set_bytes=1 << 34,
        in_flight=3,
    ).text
    assert _as_fio_says(text, tmp_path).layout == "lmcache"
    found = _as_fio_says(text.replace("bs=37748736", "bs=1048576"), tmp_path)
    assert (found.layout, found.model, found.read_bytes, found.in_flight) == (None, None, 1 << 20, 12)


def test_a_name_is_one_word_of_a_description_and_other_descriptions_are_left_alone() -> None:
    assert plain_name("my model;x${HOME}#") == "my_model_x__HOME__"
    assert read_description("kvcross model=a layout=b") == {"model": "a", "layout": "b"}
    assert read_description("model=a layout=b") == read_description("") == {}
