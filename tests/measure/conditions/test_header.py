"""What the header of a sweep notices of its own files."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from bench.arms.file_cursor import CursorPosition
from bench.measure.budget import CostBook
from bench.measure.conditions.fingerprint import compare_models, digest_config, digest_weights
from bench.measure.conditions.header import note_findings, notice_repeats, open_record
from bench.measure.preflight import Findings
from bench.measure.resume import require_same
from bench.measure.setup import resolve_plan
from bench.measure.stores import create_stores, plan_stores
from bench.record.notices import Notice
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from bench.record.run import RunRecord, read_run
from kvio.store.chunk_store import ChunkStore
from tests.end_to_end.test_whole_sweeps import TINY
from tests.helpers.sweeps import make_run


@pytest.mark.parametrize(("backend", "noticed"), [("posix", True), ("uring", True), ("hostmem", False)])
def test_only_bytes_read_from_files_may_have_come_from_a_cache_below(
    tmp_path: Path, backend: str, *, noticed: bool
) -> None:
    load = LoadSpec(backend=backend, chunk_tokens=1)
    setup = resolve_plan(Plan(model="qwen3-0.6b", dtype="float32", num_samples=1, loads=(load,)))
    create_stores(setup, plan_stores(setup, tmp_path, longest=1))
    session: Any = SimpleNamespace(scratch=tmp_path)
    store = ChunkStore.open(tmp_path / "store-0")
    assert notice_repeats(setup, session, {tmp_path / "store-0": CursorPosition(store.num_chunks)}) == ()
    again = {tmp_path / "store-0": CursorPosition(store.num_chunks + 1)}
    assert bool(notice_repeats(setup, session, again)) == noticed


def test_a_series_whose_answer_there_was_no_time_to_check_is_named() -> None:
    setup = resolve_plan(
        Plan(
            model="qwen3-0.6b",
            dtype="float32",
            layers="all",
            hybrid=True,
            loads=(LoadSpec(), LoadSpec(backend="uring"), LoadSpec(backend="null")),
        )
    )
    run = make_run(plan=setup.plan, series=setup.series, checks={})
    passed = {name: {"passed": True} for name in ("answer:posix/best", "answer:hybrid/posix/best")}
    noted = note_findings(run, Findings(CostBook(lambda case: 1.0), checks=passed))
    unchecked = [n for n in noted.notices if n.kind == "answer_unchecked"]
    assert [(n.text.partition(":")[0], n.suspect) for n in unchecked] == [
        ("uring/best", True),
        ("hybrid/uring/best", True),
    ]
    again = note_findings(
        noted, Findings(CostBook(lambda case: 1.0))
    )  # a sweep gone on with has the checks of its beginning
    assert again.notices == noted.notices


def test_a_check_made_when_gone_on_with_takes_its_notice_back_and_leaves_those_of_other_checks() -> None:
    setup = resolve_plan(
        Plan(model="qwen3-0.6b", dtype="float32", loads=(LoadSpec(), LoadSpec(backend="uring")))
    )
    wrong = Notice(kind="wrong_answer", series="posix/best", detail="the logits check fails: by 3")
    failed = {"answer:posix/best": {"passed": False}}
    begun = note_findings(
        make_run(plan=setup.plan, series=setup.series, checks={}),
        Findings(CostBook(lambda case: 1.0), checks=failed, notices=[wrong], refused={4096: "no memory"}),
    )
    codes = [notice.kind for notice in begun.notices]
    assert codes == ["length_refused", "wrong_answer", "answer_unchecked"]
    passed = {"answer:uring/best": {"passed": True}}
    gone_on = note_findings(begun, Findings(CostBook(lambda case: 1.0), checks=passed))
    assert gone_on.notices == (wrong,)
    assert gone_on.checks == {**failed, **passed}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY))
    return path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    save_file({"a": torch.zeros(4)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def begun(config: Path, weights: Path, tmp_path: Path) -> RunRecord:
    """The header of a sweep that was just begun, read back from its folder."""
    plan = Plan(
        model=str(config),
        weights=str(weights),
        loads=(LoadSpec(backend="simulated"),),
        simulation=SimulationSpec(),
    )
    with open_record(resolve_plan(plan), tmp_path / "results", tmp_path, other_runs=0) as (_, folder):
        return read_run(folder)


def _differences(run: RunRecord) -> list[str]:
    return [text.partition(":")[0] for text in compare_models(run, resolve_plan(run.plan))]


def test_the_same_files_are_the_same_model(begun: RunRecord) -> None:
    assert begun.model_digest is not None and begun.weights_digest is not None
    assert compare_models(begun, resolve_plan(begun.plan)) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"intermediate_size": 256}, ["digest of the config"]),
        ({"num_hidden_layers": 4}, ["kv_bytes_per_token", "KV bytes at 64 tokens", "digest of the config"]),
    ],
)
def test_a_changed_config_is_found(
    begun: RunRecord, config: Path, change: dict[str, int], found: list[str]
) -> None:
    config.write_text(json.dumps(TINY | change))
    assert _differences(begun) == found


def test_fields_that_nothing_is_built_from_do_not_make_another_model(begun: RunRecord, config: Path) -> None:
    config.write_text(json.dumps({"transformers_version": "5.0", **dict(reversed(TINY.items()))}))
    assert compare_models(begun, resolve_plan(begun.plan)) == []


def _rename(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "other.safetensors")


def _grow(folder: Path) -> None:
    save_file({"a": torch.zeros(5)}, folder / "model.safetensors")


def _retype(folder: Path) -> None:
    save_file({"a": torch.zeros(8, dtype=torch.float16)}, folder / "model.safetensors")


def _index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")


def _empty(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("change", [_rename, _grow, _retype, _index, _empty])
def test_changed_weights_are_found(begun: RunRecord, weights: Path, change: Callable[[Path], None]) -> None:
    change(weights)
    assert _differences(begun) == ["digest of the weights"]


def test_weights_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(PlanError, match="weights cannot be read: Is a directory"):
        digest_weights(str(tmp_path))
    assert digest_weights(None) is None


def test_a_resumed_sweep_of_another_model_is_refused_in_one_line(
    begun: RunRecord, config: Path, tmp_path: Path
) -> None:
    require_same(tmp_path, begun, resolve_plan(begun.plan), tmp_path)
    config.write_text(json.dumps(TINY | {"intermediate_size": 256}))
    with pytest.raises(PlanError, match="digest of the config: ") as caught:
        require_same(tmp_path, begun, resolve_plan(begun.plan), tmp_path)
    assert "\n" not in str(caught.value)


def test_older_headers_are_compared_by_what_they_have(begun: RunRecord, config: Path) -> None:
    older: dict[str, Any] = {"model_digest": None, "weights_digest": None}
    run = begun.model_copy(update=older)
    config.write_text(json.dumps(TINY | {"intermediate_size": 256}))
    assert compare_models(run, resolve_plan(run.plan)) == []
    config.write_text(json.dumps(TINY | {"head_dim": 32}))
    assert _differences(run) == ["kv_bytes_per_token", "KV bytes at 64 tokens"]
    chunks = run.model_copy(update={"chunk_tokens": 128, "kv_bytes_at": {}})
    assert _differences(chunks) == ["kv_bytes_per_token", "chunk_tokens"]


def test_a_digest_tells_models_apart_and_stays_the_same_for_one() -> None:
    one, other = (resolve_plan(Plan(model=name)).model for name in ("qwen3-0.6b", "qwen3-1.7b"))
    assert digest_config(one) == digest_config(one) != digest_config(other)
