"""With a suffix a load reads the chunks that hold it and the states at its end: those are counted, written and no more."""

import json
from pathlib import Path

import pytest

from bench.measure.setup import Setup, work_out
from bench.measure.stores import chunks_at_once, most_tokens, plan_stores
from bench.record.plan import LoadSpec, Plan, PlanError
from kvio.layout.planes import KVLayout, Plane
from tests.test_cli import TINY
from tests.tiny_configs import TINY_CONFIGS


def set_up(tmp_path: Path, config: dict[str, object] = TINY, **more: object) -> Setup:
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    loads = (LoadSpec(chunk_tokens=32),)
    plan = {"model": str(tmp_path / "tiny.json"), "dtype": "float32", "loads": loads, **more}
    return work_out(Plan.model_validate(plan))


def test_the_bytes_of_a_suffix_have_the_states_at_its_end(tmp_path: Path) -> None:
    setup = set_up(tmp_path, TINY_CONFIGS["qwen3_next"] | {"model_type": "qwen3_next"}, suffix_tokens=64)
    layout = setup.layout
    assert layout.state_bytes > 0
    assert setup.load_bytes(32, 64) == 64 * layout.bytes_per_token + layout.state_bytes
    assert setup.load_bytes(32, 0) == 32 * layout.bytes_per_token + layout.state_bytes


def test_a_window_that_is_full_moves_on_by_the_tokens_of_the_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed = KVLayout((Plane(0, "k", 8, window_tokens=16), Plane(1, "k", 8)))
    monkeypatch.setattr("bench.catalog.models.geometry.Geometry.layout", lambda *_: windowed)
    assert set_up(tmp_path).load_bytes(320, 64) == 16 * 8 + 64 * 8


def test_a_sample_reads_the_chunks_of_the_suffix_alone(tmp_path: Path) -> None:
    setup = set_up(tmp_path, suffix_tokens=64)
    geometry = setup.loads[0].geometry
    assert [chunks_at_once(setup, geometry, tokens) for tokens in (32, 1024, 1030)] == [2, 2, 3]
    assert chunks_at_once(set_up(tmp_path), geometry, 1024) == 32


def test_files_are_those_of_the_suffix_for_every_length_of_a_round_however_long_the_prefix(
    tmp_path: Path,
) -> None:
    asked = {"suffix_tokens": 64, "tokens": (64, 512, 1024), "num_samples": 3, "num_rounds": 1}
    (plan,) = plan_stores(set_up(tmp_path, **asked), tmp_path, longest=1024)
    assert (plan.least_chunks, plan.num_chunks) == (3, 3 * 2 * 3)  # least: where it begins in mid-chunk
    chosen = set_up(tmp_path, suffix_tokens=64, num_samples=3, num_rounds=1)
    assert plan_stores(chosen, tmp_path, longest=1024)[0].num_chunks == 6 * 2 * 3  # 32, 64 ... 1024


def test_a_prefix_is_as_long_as_the_model_allows_where_only_a_suffix_is_read(tmp_path: Path) -> None:
    chunk_bytes = set_up(tmp_path).loads[0].geometry.padded_bytes
    room = {"suffix_tokens": 64, "working_set_bytes": 3 * chunk_bytes}
    setup = set_up(tmp_path, **room)
    assert most_tokens(setup, tmp_path / "scratch") == setup.most_tokens - 64
    assert plan_stores(setup, tmp_path, longest=setup.most_tokens - 64)[0].num_chunks == 3
    with pytest.raises(
        PlanError, match="does not hold the 3 chunks of 32 tokens that a suffix of 64 may take"
    ):
        most_tokens(set_up(tmp_path, **{**room, "working_set_bytes": 2 * chunk_bytes}), tmp_path / "scratch")
