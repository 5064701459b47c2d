"""No page of the KV cache is touched for the first time while it is timed."""

import json
import time
from pathlib import Path

import pytest
import torch

from bench.measure.setup import work_out
from bench.measure.worker.model_session import Workbench, open_workbench
from bench.record.plan import Plan
from kvio.loading.blocks import POISON, KVBlocks
from tests.test_cli import TINY


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    setup = work_out(Plan(model=str(path), dtype="float32", device="cpu", layers="all"))
    return open_workbench(setup, layers=(0, 1), longest=64, now_s=time.monotonic, seed=0)


def test_blocks_that_recompute_and_first_token_step_use_were_written_before(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[KVBlocks] = []

    def make_empty(layout: object, tokens: int, device: torch.device) -> KVBlocks:
        blocks = KVBlocks(bench.layout, tokens, device)
        for tensor in (*blocks.groups, blocks.state):
            tensor.zero_()  # what pages read as that nobody has written
        made.append(blocks)
        return blocks

    monkeypatch.setattr("bench.measure.worker.model_session.KVBlocks", make_empty)
    prefill = bench.prefill(64)
    assert prefill.blocks is made[0]
    assert all(bool((group == POISON).all()) for group in prefill.blocks.groups)
    assert all(group.shape[1] == 64 for group in prefill.blocks.groups)
