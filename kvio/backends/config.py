"""What a backend is, and the settings that it is made with."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from kvio.backends.placement import Placement, SamplePlacement
from kvio.evidence.gds_path import PathCounters
from kvio.file_ranges import Span, SpanMap
from kvio.protocol import Backend, KVIOError, ServerAddress, Unavailable


@dataclass(slots=True)
class HostMemory(SamplePlacement):
    """Parts of files in DRAM, shared by the threads that read them."""

    held: SpanMap[bytes] = field(default_factory=SpanMap)
    name: str = "host memory"

    def load_into_memory(self, spans: Sequence[Span]) -> None:
        """Hold these parts of files and nothing else.

        Raises:
            KVIOError: a file cannot be read.
        """
        self.held.keep(spans)
        for span in spans:
            if span not in self.held.contents:
                try:
                    with span.path.open("rb") as stream:
                        stream.seek(span.start)
                        self.held.put(span, stream.read(span.num_bytes))
                except OSError as error:
                    raise KVIOError(f"{span.path}: {error.strerror}") from error

    def remove(self) -> None:
        """Hold nothing."""
        self.held.keep([])


class SimulatedDevice:
    """A device with a known answer: one read at a time, `latency_s + bytes / bytes_per_s`, times a jitter.

    Nothing sleeps: each read advances the virtual clock through `advance_s`.  Reads of all threads queue up
    behind one another, so latencies add up whatever the queue depth.

    Args:
        bytes_per_s, latency_s: of the device.
        advance_s: moves the virtual clock on by so many seconds.
        jitter: standard deviation of the logarithm of each read's time; 0 for none.
        seed: of the jitter.
    """

    def __init__(
        self,
        bytes_per_s: float,
        latency_s: float,
        *,
        advance_s: Callable[[float], None],
        jitter: float = 0.0,
        seed: int = 0,
    ) -> None:
        if bytes_per_s <= 0 or latency_s < 0 or jitter < 0:
            raise KVIOError(
                f"a device of {bytes_per_s} bytes/s, {latency_s} s latency and jitter {jitter} is impossible"
            )
        self.bytes_per_s = bytes_per_s
        self.latency_s = latency_s
        self.jitter = jitter
        self._advance_s = advance_s
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()

    def serve(self, num_bytes: int) -> None:
        """Let the clock pass for one read of `num_bytes`."""
        with self._lock:
            factor = float(np.exp(self.jitter * self._random.standard_normal())) if self.jitter else 1.0
            self._advance_s(factor * (self.latency_s + num_bytes / self.bytes_per_s))


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """Settings shared by the backends of all threads; each takes what concerns it.

    Args:
        direct: open with O_DIRECT.
        placement: where the chunks lie that are held in this process (hostmem).
        device: the modelled device (simulated).
        queue_depth: jobs that one thread keeps in flight, of backends that can.
        directory: of the chunk files; libraries that write logs write them there.
        packed_bytes: `ChunkGeometry.packed_bytes`, for stores whose objects are the stack's own.
        options: what only one backend knows, by its names; recorded, so never a credential.
    """

    direct: bool = False
    placement: Placement | None = None
    device: SimulatedDevice | None = None
    queue_depth: int = 1
    directory: Path | None = None
    packed_bytes: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)


Probe = Callable[[Path, Mapping[str, str]], Unavailable | None]


def is_part_of_python(directory: Path, options: Mapping[str, str]) -> None:
    """The probe of backends that need nothing but Linux and Python."""
    return None


@dataclass(frozen=True, slots=True)
class BackendKind:
    """What a backend reads and what it can do; each backend's file ends with its own."""

    meaning: str  # what it reads, in a few words
    make: Callable[[BackendConfig], Backend]  # a backend for one thread
    moves_bytes: bool = True  # False: nothing arrives, so there is nothing to copy or to verify
    from_storage: bool = True  # the bytes come from storage at the time of the read
    target_memory: Literal["host", "device"] = (
        "host"  # its targets: bounce buffers in host memory, or device memory
    )
    max_in_flight: int = 1  # jobs in flight of one thread; 1 where queue depth comes from threads
    reads_at_once: int | None = None  # `Backend.reads_at_once`
    options: Mapping[str, str] = field(default_factory=dict)  # name to meaning
    # where the chunks lie, given the options and the directory of the files; None reads the files
    placement: Callable[[Mapping[str, str], Path], Placement] | None = None
    # address, given the options, of the server that sends the bytes; None where they are read here
    server: Callable[[Mapping[str, str]], ServerAddress] | None = None
    needs_gpu: bool = False  # it cannot be measured where the device is the CPU
    # the counters of its own libraries, where the kernel's do not tell its data paths apart
    read_path: Callable[[], PathCounters | None] = lambda: None
    probe: Probe = (
        is_part_of_python  # why it cannot read in this directory with these options; None where it can
    )

    @property
    def on_server(self) -> bool:
        """Whether a server sends the bytes."""
        return self.server is not None
