"""Without numba the same loops run as plain Python, and long traces are refused with the way out."""

import numpy as np
import pytest

from bench.reuse import jit as compiled
from bench.reuse.block_queue import Queues, make_queues
from bench.reuse.jit import NumbaMissingError, kernel, require_compiled


def test_plain_loops_write_into_the_arrays_that_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "numba", None)
    fixed = np.array([1, 2])
    fixed.flags.writeable = False

    @kernel
    def mark(queues: Queues, steps: np.ndarray, by: int) -> int:
        queues.head[1] += by
        return int(steps[0] + steps[1])

    queues = make_queues(2, 3)
    assert mark(queues, fixed, 5) == 3
    assert queues.head.tolist() == [-1, 4]


def test_a_long_trace_without_numba_is_skipped_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "numba", None)
    require_compiled(10_000_000)
    with pytest.raises(NumbaMissingError, match=r"^skipped: 10000001 .*: pip install 'kvcross\[reuse\]'$"):
        require_compiled(10_000_001)


def test_no_trace_is_too_long_for_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "numba", object())
    require_compiled(10**10)
