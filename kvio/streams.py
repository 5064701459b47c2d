"""The side stream that copies run on, and its time; the host itself where the device is the CPU."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self

import torch


class Mark(Protocol):
    """A moment in a stream."""

    def synchronize(self) -> None:
        """Wait until the stream has come here."""

    def elapsed_time(self, end: Self, /) -> float:
        """Milliseconds until a later mark, as CUDA counts them."""


class SideStream(Protocol):
    """Where copies are queued up."""

    def entered(self) -> AbstractContextManager[object]:
        """What torch does within goes into this stream."""

    def mark(self) -> Mark:
        """Here, now."""

    def synchronize(self) -> None:
        """Wait until all is done."""


class CudaSideStream:
    """A stream of its own on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def entered(self) -> AbstractContextManager[object]:
        """What torch does within goes into this stream."""
        return torch.cuda.stream(self._stream)

    def mark(self) -> Mark:
        """An event."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def synchronize(self) -> None:
        """Wait until all is done."""
        self._stream.synchronize()


class HostMark:
    """A moment of the host, where everything is done when it returns."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def synchronize(self) -> None:
        """Wait for nothing."""

    def elapsed_time(self, end: Self, /) -> float:
        """Milliseconds until `end`."""
        return 1e3 * (end.seconds - self.seconds)


class HostSideStream:
    """No stream: copies are done when they return."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def entered(self) -> AbstractContextManager[object]:
        """Change nothing."""
        return nullcontext()

    def mark(self) -> Mark:
        """Now."""
        return HostMark(self._now_s())

    def synchronize(self) -> None:
        """Wait for nothing."""


def make_side_stream(device: torch.device, now_s: Callable[[], float]) -> SideStream:
    """The side stream of this device."""
    return CudaSideStream(device) if device.type == "cuda" else HostSideStream(now_s)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make `device` the current one of this thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
