"""Memory before it is missed: what a model needs, and what the device has."""

import ctypes
import ctypes.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import torch
from transformers import PretrainedConfig

from bench.arms import ranks as group
from bench.record.sample import Arm, CannotHoldError, Case, Outcome

GIB = 2**30
M_TRIM_THRESHOLD, M_MMAP_MAX, M_TOP_PAD = -1, -4, -2  # malloc.h of glibc


class MemoryShortError(CannotHoldError):
    """The device lacks memory; the message has both numbers."""


def available_bytes(device: torch.device) -> int:
    """Bytes that can be allocated on `device` now; of host memory that several ranks share, this one's part."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return int(psutil.virtual_memory().available) // group.size()


def require_memory(needed_bytes: int, device: torch.device, *, purpose: str) -> None:
    """Stop before an allocation that cannot succeed; of several ranks all stop, or none.

    Raises:
        MemoryShortError: more is needed than the device has free.
    """
    available = needed_bytes + group.min_over_ranks(available_bytes(device) - needed_bytes)
    if needed_bytes > available:
        raise MemoryShortError(
            f"{purpose} needs {needed_bytes / GIB:.1f} GiB on {device}, {available / GIB:.1f} GiB are free; "
            "try fewer tokens, layers=fit, or a smaller dtype"
        )


def workspace_bytes(
    config: PretrainedConfig, num_tokens: int, *, past_tokens: int, element_bytes: int, fused: bool
) -> int:
    """About the most that one forward needs besides weights and KV.

    Args:
        config: of the text model.
        num_tokens: that the forward runs.
        past_tokens: before them.
        element_bytes: of the activations.
        fused: attention never holds all scores at once.
    """
    hidden = config.hidden_size
    inner = max(getattr(config, "intermediate_size", 0) or 0, getattr(config, "ffn_dim", 0), hidden)
    inner = max(inner // group.size(), hidden)
    rows = num_tokens * (3 * inner + 8 * hidden) * element_bytes
    pairs = num_tokens * (past_tokens + num_tokens)
    masks = 2 * pairs * element_bytes if getattr(config, "sliding_window", None) or past_tokens else 0
    scores = 0 if fused else 3 * pairs * (config.num_attention_heads // group.size()) * max(4, element_bytes)
    return int(rows + masks + scores)


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory for the next call; True where that is glibc.

    By default glibc gives every tensor above 32 MiB back to the kernel when it is freed, and the next forward
    faults the same pages in again.  The first touch of a page can take ten times as long as writing to it
    later (2.5 GB: 3.8 s against 0.35 s in a virtual machine), and none of that is compute.

    Source: mallopt(3).
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(ctypes.util.find_library("c"))
    if not hasattr(libc, "mallopt"):
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 64 * 2**20}
    return all(libc.mallopt(name, value) == 1 for name, value in settings.items())


class MemoryGuard:
    """An arm whose device running out of memory, in whatever call, is a `MemoryShortError`."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm

    def warm_up(self, case: Case) -> None:
        """Warm up, or refuse a case that does not fit."""
        with _translate(case):
            self.arm.warm_up(case)

    def prepare(self, case: Case) -> None:
        """Prepare, or refuse a case that does not fit."""
        with _translate(case):
            self.arm.prepare(case)

    def run(self, case: Case) -> Outcome:
        """Run, or refuse a case that does not fit."""
        with _translate(case):
            return self.arm.run(case)

    def close(self) -> None:
        """Close the arm."""
        self.arm.close()


@contextmanager
def _translate(case: Case) -> Iterator[None]:
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        first_line = str(error).partition("\n")[0]
        raise MemoryShortError(f"{case.arm} at {case.prefix_tokens} tokens: {first_line}") from error
