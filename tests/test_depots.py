"""What is placed to find out what that takes is taken back at once."""

import json
from pathlib import Path

from bench.measure.depots import RunDepots
from bench.measure.setup import work_out
from bench.measure.stores import create_stores, plan_stores
from bench.record.plan import LoadSpec, Plan
from kvio.backends.mooncake.mooncake_client import read_mooncake, shared_client
from kvio.backends.mooncake.mooncake_placement import Keys
from kvio.errors import KVIOError
from kvio.store.scratch import open_scratch
from tests.servers import shared_mooncake
from tests.test_cli import TINY
from tests.test_preflight import Silent


def test_what_was_placed_for_now_is_gone_afterwards_and_the_rest_stays(tmp_path: Path) -> None:
    options = {**shared_mooncake().options, "prefix": f"test/{tmp_path.name}"}
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    loads = (LoadSpec(backend="mooncake", chunk_tokens=32, options=options),)
    setup = work_out(Plan(model=str(tmp_path / "tiny.json"), dtype="float32", loads=loads, num_samples=1))
    client = shared_client(read_mooncake(options), options["master"])
    with open_scratch(tmp_path) as scratch:
        depots = RunDepots(setup.loads, scratch)
        depots.begin()
        stores = create_stores(setup, plan_stores(setup, scratch, longest=32))
        (path,) = stores["mooncake/best"].glob("chunk-000000*")
        key = Keys(options["prefix"], None).find(path, 0, size_bytes=path.stat().st_size).key
        with depots.placed_for_now(stores, Silent(), before_each=lambda: None) as failed:
            assert failed == {}
            assert client.size_bytes(key) == path.stat().st_size
        assert client.size_bytes(key) is None
        assert depots.place(stores, Silent(), before_each=lambda: None) == {}
        assert client.size_bytes(key) == path.stat().st_size
        assert depots.withdraw() == ()
        assert client.size_bytes(key) is None


def test_placing_ends_with_what_is_raised_before_a_file(tmp_path: Path) -> None:
    options = {**shared_mooncake().options, "prefix": f"test/{tmp_path.name}"}
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    loads = (LoadSpec(backend="mooncake", chunk_tokens=32, options=options),)
    setup = work_out(Plan(model=str(tmp_path / "tiny.json"), dtype="float32", loads=loads, num_samples=1))
    asked: list[int] = []

    def before_each() -> None:
        asked.append(len(asked))
        if len(asked) == 3:
            raise KVIOError("no time is left")

    with open_scratch(tmp_path) as scratch:
        depots = RunDepots(setup.loads, scratch)
        depots.begin()
        stores = create_stores(setup, plan_stores(setup, scratch, longest=128))
        failed = depots.place(stores, Silent(), before_each=before_each)
        assert [str(error) for error in failed.values()] == ["no time is left"]
        assert asked == [0, 1, 2]
        assert depots.withdraw() == ()
