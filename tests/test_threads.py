"""Where no more threads can be started, that is one line, and not a traceback."""

import threading
import time
from pathlib import Path

import pytest
import torch

from kvio.backends import find_backend
from kvio.backends.config import BackendSetting
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.loader import ChunkLoader
from kvio.os_errors import SAID, ThreadsError, needing_threads

GEOMETRY = ChunkGeometry(uniform_layout(2, 4096), adapt_preset(find_preset("best"), num_threads=8))


@pytest.fixture
def five_more(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Lets five more threads be started, as a limit of processes would; the threads that were."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_if_allowed(thread: threading.Thread) -> None:
        if len(started) == 5:
            raise RuntimeError(SAID)
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_allowed)
    return started


def test_more_reading_threads_than_can_be_started_are_one_line_and_none_is_left(
    five_more: list[threading.Thread], tmp_path: Path
) -> None:
    setting = BackendSetting(direct=True, depot=None, directory=tmp_path)
    with pytest.raises(ThreadsError) as caught:
        ChunkLoader(
            GEOMETRY,
            lambda: find_backend("posix").make(setting),
            device=torch.device("cpu"),
            now_s=time.monotonic,
        )
    assert str(caught.value) == (
        "8 reading threads cannot all be started here; try fewer --threads, or a higher limit of processes "
        "(ulimit -u, pids.max of the container)"
    )
    assert len(five_more) == 5
    assert not any(thread.is_alive() for thread in five_more[:4])  # of the lanes that were whole


def test_other_runtime_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^something else$"), needing_threads("a thread"):
        raise RuntimeError("something else")
