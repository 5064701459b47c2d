"""What a placement in a store of the user's removes, and when it looks which runs live: no store is needed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kvio.backends.mooncake import mooncake_placement as mooncake_depot
from kvio.backends.mooncake.mooncake_client import MooncakeAddress
from kvio.backends.mooncake.mooncake_placement import MooncakePlacement, owned_prefix
from kvio.backends.s3.object_placement import BucketPlacement
from kvio.protocol import KVIOError
from kvio.store.scratch import open_scratch

OPTIONS = {"master": "127.0.0.1:1", "prefix": "kv"}


class _Client:
    """Remembers what it is asked to remove."""

    def __init__(self) -> None:
        self.removed: list[tuple[str, tuple[str, ...]]] = []

    def remove_below(self, folder: str, *, but: Sequence[str] = ()) -> int:
        self.removed.append((folder, tuple(sorted(but))))
        return 0


def test_what_a_killed_process_of_the_run_placed_is_removed_though_this_one_placed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = _Client()
    monkeypatch.setattr(mooncake_depot, "shared_client", lambda address, master: client)
    with open_scratch(tmp_path) as scratch:
        placement = MooncakePlacement(OPTIONS, scratch)
        placement.open()  # of the run; the preflight's process has a placement of its own, and is killed
        placement.remove()
        placement.remove()
        own = owned_prefix("kv", tmp_path)
        assert client.removed == [(own, (scratch.name,)), (f"{own}/{scratch.name}", ())]


def test_a_run_that_begins_while_the_store_is_connected_to_is_spared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = _Client()

    def connect(address: MooncakeAddress, master: str) -> _Client:
        (tmp_path / "kvcross-newborn").mkdir()
        return client

    monkeypatch.setattr(mooncake_depot, "shared_client", connect)
    with open_scratch(tmp_path) as scratch:
        MooncakePlacement(OPTIONS, scratch).open()
        assert client.removed[0][1] == tuple(sorted(["kvcross-newborn", scratch.name]))


def test_a_store_that_was_never_reached_is_not_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(address: MooncakeAddress, master: str) -> _Client:
        asked.append(master)
        raise KVIOError("no answer")

    monkeypatch.setattr(mooncake_depot, "shared_client", refuse)
    with open_scratch(tmp_path) as scratch:
        placement = MooncakePlacement(OPTIONS, scratch)
        with pytest.raises(KVIOError, match="no answer"):
            placement.open()
        placement.remove()
    assert asked == ["127.0.0.1:1"]


def test_of_a_bucket_too_all_of_the_run_is_removed_whoever_placed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install -e '.[s3]'")
    removed: list[str] = []
    with open_scratch(tmp_path) as scratch:
        placement = BucketPlacement(
            {"bucket": "kv", "endpoint": "http://127.0.0.1:1", "prefix": "p"}, scratch
        )
        key = f"p/{scratch.name}/tmp123/chunk-000000.kv"  # as placed by the preflight's process

        class Held:
            def list_keys(self, folder: str) -> list[str]:
                return [one for one in (key,) if one.startswith(f"{folder}/")]

            def remove(self, keys: Sequence[str]) -> None:
                removed.extend(keys)

        monkeypatch.setattr(placement, "_bucket", Held())
        placement.remove()
    assert removed == [key]
