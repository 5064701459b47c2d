"""What breaks in mid-sweep: the other ways to load go on, and what was measured stays."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.analyse.tune import search_settings
from bench.measure.plan import LoadSpec, Plan
from bench.measure.record import read_run, read_samples
from bench.measure.sweep import Hands, run_sweep
from kvio.backends.bucket import ObjectError
from kvio.backends.mooncake_address import MooncakeAddress
from kvio.backends.mooncake_client import StoreClient
from tests.servers import require_mooncake
from tests.test_cli import TINY
from tests.test_runner import Silent

MIB = 1 << 20


class Breaking(Silent):
    """An observer that breaks something when the second round begins."""

    def __init__(self, damage: Callable[[], None]) -> None:
        super().__init__()
        self._damage = damage

    def on_round(self, number: int, lengths: tuple[int, ...]) -> None:
        super().on_round(number, lengths)
        if number == 1:
            self._damage()


def three_rounds(progress: object) -> tuple[int, ...]:
    done: int = progress.rounds_done  # type: ignore[attr-defined]
    return (64,) if done < 3 else ()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    loads = tuple(
        LoadSpec(backend="posix", preset=preset, chunk_tokens=32) for preset in ("best", "mooncake")
    )
    return Plan(
        model=str(path),
        dtype="float32",
        tokens=(64,),
        loads=loads,
        num_samples=1,
        budget_s=300,
        working_set_bytes=32 * MIB,
    )


def test_a_way_to_load_that_cannot_be_opened_any_more_is_left_out_and_the_others_go_on(
    plan: Plan, tmp_path: Path
) -> None:
    def lose_a_store() -> None:
        (store,) = tmp_path.glob("kvcross-*/store-1")
        store.rename(tmp_path / "lost")

    hands = Hands(policy=three_rounds, search=search_settings, observer=Breaking(lose_a_store))
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hands=hands)
    run, (samples, _) = read_run(folder), read_samples(folder)
    (said,) = (notice.message for notice in run.notices if notice.code == "series_failed")
    lost = said.partition(":")[0]
    assert run.state == "complete"
    assert "was left out from then on: round 2: " in said
    assert {s.round for s in samples if s.case.series == lost} == {0}
    kept = {s.case.series for s in samples if s.round == 2 and s.case.arm == "load"}
    assert len(kept) == 1 and lost not in kept


def test_a_runs_own_store_that_is_gone_is_not_to_be_started_by_hand() -> None:
    require_mooncake()
    with pytest.raises(ObjectError) as caught:
        StoreClient(MooncakeAddress(), "127.0.0.1:1")
    assert str(caught.value) == (
        "Mooncake store of this run: Connection refused: the mooncake_master that it was started with is gone, "
        "and all that it held"
    )
