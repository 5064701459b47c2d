"""What is particular to NIXL: its probe, its queues, its GPU path."""

import json
from pathlib import Path

import pytest

from kvio.backends import find_backend
from kvio.backends.nixl.nixl_plugin import load_nixl, read_queue
from kvio.protocol import KVIOError

MADE = find_backend("nixl")


def _require(directory: Path) -> None:
    why = MADE.probe(directory, {})
    if why is not None:
        pytest.skip(f"{why.reason}; try: {why.remedy}")


def test_the_probe_reads_real_bytes_and_leaves_nothing(tmp_path: Path) -> None:
    _require(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_the_wheel_the_probe_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvio.backends.nixl.nixl_plugin.WHEELS", ("kvcross_absent",))
    with pytest.raises(KVIOError, match="nixl is not installed"):
        load_nixl()
    for name in ("nixl", "nixl-gds", "nixl-obj"):
        why = find_backend(name).probe(tmp_path, {})
        assert why is not None
        assert json.dumps([why.reason, why.remedy]) == json.dumps(
            ["nixl is not installed", "pip install -c constraints.txt -e '.[nixl]'"]
        )


def test_an_unknown_queue_lists_those_there_are() -> None:
    with pytest.raises(KVIOError, match="no queue 'fast'; try --option queue= one of aio, uring, posix_aio"):
        read_queue({"queue": "fast"})
    assert read_queue({}) == "aio"


@pytest.mark.gds
def test_gds_mt_reads_into_a_gpu(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    assert find_backend("nixl-gds").probe(tmp_path, {}) is None
