"""What every way to read must do, over all that move bytes; a new backend is one line in `VARIANTS`."""

import errno
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.arms.read_evidence import ReadEvidence
from kvio.backends import BACKENDS, BackendKind
from kvio.backends.config import BackendConfig
from kvio.backends.local.file_handles import MAX_OPEN_FILES
from kvio.backends.local.hostmem_pinned import PinnedMemory
from kvio.backends.placement import Placement
from kvio.backends.selftest_process import TRIAL_FAILED
from kvio.evidence.cold_evidence import prove_cache_state, prove_data_path
from kvio.evidence.page_cache import evict, resident_bytes
from kvio.evidence.storage_device import describe_storage
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import uniform_layout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import POISON, KVBlocks
from kvio.loading.loader import ChunkLoader
from kvio.loading.read_plan import plan_jobs
from kvio.loading.transfer import Transfer, make_transfer
from kvio.protocol import Backend, HostTarget, KVIOError, Read, ShortReadError, Unavailable
from kvio.store.chunk_store import ChunkStore
from kvio.store.scratch import PREFIX
from tests.helpers.places import require_disk
from tests.helpers.servers import server_options
from tests.kvio.test_host_buffers import RecordingRegistrar

CPU = torch.device("cpu")
SLOT_BYTES = 65_536
LAYOUT = uniform_layout(4, 1024)


@dataclass(frozen=True)
class Variant:
    """A backend as it is tried here."""

    name: str
    direct: bool = False
    queue_depth: int = 1
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> BackendKind:
        return BACKENDS[self.name]

    def all_options(self) -> dict[str, str]:
        return server_options(self.name) if self.kind.on_server else dict(self.options)

    def setting(self, placement: Placement | None = None) -> BackendConfig:
        return BackendConfig(
            direct=self.direct, placement=placement, queue_depth=self.queue_depth, options=self.all_options()
        )

    @property
    def is_probed(self) -> bool:
        """Whether it is tried before; memory that nothing real pins is copied from in the same way without a GPU."""
        return self.name != "hostmem-pinned"

    def placement(self, root: Path) -> Placement | None:
        if not self.is_probed:
            return PinnedMemory(RecordingRegistrar)
        return None if self.kind.placement is None else self.kind.placement(self.all_options(), root)

    def __str__(self) -> str:
        queue = f"-{self.options['queue']}" if "queue" in self.options else ""
        return f"{self.name}{queue}-{'direct' if self.direct else 'buffered'}-{self.queue_depth}"


# kvikio has one configuration in a process: test_gds_host runs this file once for each
GDS_DIRECT = os.environ.get("KVCROSS_TEST_GDS_DIRECT") == "1"

VARIANTS = (
    Variant("hostmem"),
    Variant("hostmem-pinned"),
    Variant("hostmem-pinned", queue_depth=4),
    Variant("posix"),
    Variant("posix", direct=True),
    Variant("uring"),
    Variant("uring", direct=True),
    Variant("uring", queue_depth=8),
    Variant("uring", direct=True, queue_depth=8),
    Variant("s3"),
    Variant("nixl", options={"queue": "aio"}),
    Variant("nixl", direct=True, queue_depth=8, options={"queue": "aio"}),
    Variant("nixl", direct=True, queue_depth=8, options={"queue": "uring"}),
    Variant("nixl", queue_depth=8, options={"queue": "posix_aio"}),
    Variant("nixl-obj", queue_depth=8),
    Variant("mooncake"),
    Variant("mooncake", queue_depth=8),
    Variant("gds", direct=GDS_DIRECT, queue_depth=4, options={"compat": "on", "io_threads": "2"}),
)
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
of_files = pytest.mark.parametrize(
    "variant", [v for v in VARIANTS if v.kind.from_storage and not v.kind.on_server], ids=str
)


def test_every_backend_that_moves_bytes_is_held_to_the_contract() -> None:
    assert {variant.name for variant in VARIANTS} == {
        name
        for name, kind in BACKENDS.items()
        if kind.moves_bytes and name != "nixl-gds"  # needs a GPU
    }


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """Named as the scratch directory of a run, from which on keys are made."""
    directory = tmp_path / f"{PREFIX}contract-{tmp_path.name}"
    directory.mkdir()
    return directory


@cache
def _why_not(name: str, directory: Path) -> Unavailable | None:
    options = next(variant.all_options() for variant in VARIANTS if variant.name == name)
    return BACKENDS[name].probe(directory, options)


def _require(variant: Variant, directory: Path) -> None:
    """Skip what cannot be tried on this machine, saying why."""
    why = _why_not(variant.name, directory.parents[1]) if variant.is_probed else None
    if why is not None:
        assert not why.reason.startswith(TRIAL_FAILED), why.reason  # a broken backend must not be skipped
        pytest.skip(f"{variant.name}: {why.reason}; try: {why.remedy}")
    if variant.direct and not _takes_direct(directory.parents[1]):
        pytest.skip("the file system of the test directory refuses O_DIRECT")


@cache
def _takes_direct(directory: Path) -> bool:
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
    return True


def _content(num_bytes: int, seed: int = 0) -> bytes:
    """Every byte depends on its position, so that nothing passes for anything else."""
    return np.random.default_rng(seed).bytes(num_bytes)


def _file(directory: Path, num_bytes: int, name: str = "chunk", seed: int = 0) -> Path:
    path = directory / name
    path.write_bytes(_content(num_bytes, seed))
    return path


class Rig:
    """A backend with the targets that the loader would give it."""

    def __init__(self, backend: Backend, transfer: Transfer) -> None:
        self.backend = backend
        self.targets = transfer.targets

    def submit(self, reads: Sequence[Read], slot: int = 0) -> None:
        for read in reads:
            self.backend.open(read.path)
        self.backend.submit(slot, reads, self.targets[slot])

    def read(self, reads: Sequence[Read], slot: int = 0) -> int:
        """Bytes that arrived of one job, alone in flight."""
        self.submit(reads, slot)
        (arrival,) = self.backend.wait()
        assert arrival.ticket == slot
        return arrival.num_bytes

    def held(self, slot: int = 0) -> bytes:
        target = self.targets[slot]
        return bytes(target.view) if isinstance(target, HostTarget) else target.tensor.numpy().tobytes()


@contextmanager
def _rig(variant: Variant, paths: Sequence[Path] = ()) -> Iterator[Rig]:
    placement = variant.placement(paths[0].parent) if paths else variant.placement(Path(f"/{PREFIX}nothing"))
    if placement is not None:
        placement.upload(paths)
    backend = variant.kind.make(variant.setting(placement))
    transfer = make_transfer(
        SLOT_BYTES,
        CPU,
        num_slots=backend.queue_depth + 1,
        into=variant.kind.target_memory,
        now_s=time.monotonic,
    )
    with closing(transfer), closing(backend):
        backend.attach(transfer.targets)
        yield Rig(backend, transfer)


def _num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, and opens one itself each time


def _wait_for_files(most: int) -> None:
    """Sockets of a client that is gone are closed by threads of its library, soon."""
    deadline_s = time.monotonic() + 10
    while _num_open_files() > most and time.monotonic() < deadline_s:
        os.sched_yield()


def _pinned_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmPin:")))


@every_variant
def test_each_read_comes_to_its_place(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    path = _file(tmp_path, 16_384)
    content = _content(16_384)
    with _rig(variant, [path]) as rig:
        # halves swapped: a backend that forgets either offset is found out
        assert rig.read([Read(path, 0, 8192, 8192), Read(path, 8192, 8192, 0)]) == 16_384
        assert rig.held()[:16_384] == content[8192:] + content[:8192]


@every_variant
def test_jobs_in_flight_together_keep_their_files_and_targets_apart(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    paths = [_file(tmp_path, 16_384, str(number), seed=number) for number in range(40)]
    with _rig(variant, paths) as rig:
        waiting = list(enumerate(paths))
        in_flight: dict[int, int] = {}
        free = list(range(rig.backend.queue_depth))
        while waiting or in_flight:
            while waiting and free:
                number, path = waiting.pop()
                slot = free.pop()
                rig.submit([Read(path, 4096, 4096, 0), Read(path, 8192, 4096, 8192)], slot)
                in_flight[slot] = number
            arrivals = rig.backend.wait()
            assert arrivals
            for arrival in arrivals:
                content = _content(16_384, seed=in_flight.pop(arrival.ticket))
                held = rig.held(arrival.ticket)
                assert arrival.num_bytes == 8192
                assert (held[:4096], held[8192:12_288]) == (content[4096:8192], content[8192:12_288])
                free.append(arrival.ticket)


@every_variant
def test_an_odd_tail_is_read_where_it_can_be_and_refused_where_not(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    path = _file(tmp_path, 5001)
    with _rig(variant, [path]) as rig:
        if variant.direct:
            with pytest.raises(KVIOError, match=r"length 5000 .*not a multiple of 4096"):
                rig.read([Read(path, 0, 5000, 0)])
        else:
            assert rig.read([Read(path, 1, 5000, 3)]) == 5000
            assert rig.held()[3:5003] == _content(5001)[1:]


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant.direct], ids=str)
@pytest.mark.parametrize(
    ("read", "named"),
    [((1, 4096, 0), "offset 1 "), ((0, 5000, 0), "length 5000 "), ((0, 4096, 512), "buffer address ")],
)
def test_what_o_direct_cannot_read_is_refused(
    tmp_path: Path, variant: Variant, read: tuple[int, int, int], named: str
) -> None:
    _require(variant, tmp_path)
    path = _file(tmp_path, 16_384)
    with _rig(variant) as rig, pytest.raises(KVIOError, match=f"{named}.*not a multiple of 4096"):
        rig.read([Read(path, *read)])


@every_variant
@pytest.mark.parametrize("num_bytes", [0, 4096, 5000])
def test_a_truncated_file_is_a_short_read_never_a_fast_one(
    tmp_path: Path, variant: Variant, num_bytes: int
) -> None:
    _require(variant, tmp_path)
    path = _file(tmp_path, 16_384)
    os.truncate(path, num_bytes)
    with (
        _rig(variant, [path]) as rig,
        pytest.raises(ShortReadError, match=f"chunk: {num_bytes} of 8192 bytes .*offset 0"),
    ):
        rig.read([Read(path, 0, 8192, 0)])


@of_files
def test_a_vanished_file_is_named(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    with _rig(variant) as rig, pytest.raises(KVIOError, match=r"gone\.kv: No such file or directory"):
        rig.read([Read(tmp_path / "gone.kv", 0, 4096, 0)])


@of_files
def test_a_directory_in_place_of_a_file_is_one_line(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    expected = "Is a directory|Invalid argument|without O_DIRECT"  # when it is read, or opened with O_DIRECT
    with _rig(variant) as rig, pytest.raises(KVIOError, match=expected):
        rig.read([Read(tmp_path, 0, 4096, 0)])


@every_variant
def test_a_read_that_failed_leaves_the_backend_usable_after_a_drain(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    good, bad = _file(tmp_path, 16_384, "good"), _file(tmp_path, 16_384, "bad", seed=1)
    os.truncate(bad, 4096)
    with _rig(variant, [good, bad]) as rig:
        for slot in range(rig.backend.queue_depth):
            rig.submit([Read(bad if slot == 0 else good, 0, 8192, 0)], slot)
        with pytest.raises(ShortReadError, match="bad"):
            for _ in range(rig.backend.queue_depth):
                rig.backend.wait()
        rig.backend.drain()
        assert rig.read([Read(good, 8192, 8192, 0)]) == 8192
        assert rig.held()[:8192] == _content(16_384)[8192:]


@every_variant
def test_nothing_is_written_into_a_target_after_a_drain(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    path = _file(tmp_path, SLOT_BYTES)
    with _rig(variant, [path]) as rig:
        for slot in range(rig.backend.queue_depth):
            rig.submit([Read(path, 0, SLOT_BYTES, 0)], slot)
        rig.backend.wait()  # the others are under way now
        rig.backend.drain()
        for target in rig.targets:
            poison = np.full(SLOT_BYTES, POISON, np.uint8)
            if isinstance(target, HostTarget):
                target.view[:] = poison.data
            else:
                target.tensor.copy_(torch.from_numpy(poison))
        assert rig.read([Read(path, 0, 4096, 0)], slot=rig.backend.queue_depth) == 4096
        for slot in range(rig.backend.queue_depth):
            assert rig.held(slot) == bytes([POISON]) * SLOT_BYTES


@every_variant
def test_close_gives_back_descriptors_threads_and_pinned_memory(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    paths = [_file(tmp_path, 4096, str(number), seed=number) for number in range(5)]
    with _rig(variant, paths) as rig:  # what a library keeps for the whole process is not the backend's
        rig.read([Read(paths[0], 0, 4096, 0)])
        rig.backend.close()
    del rig
    gc.collect()
    threads, files, pinned = set(threading.enumerate()), _num_open_files(), _pinned_kib()
    with _rig(variant, paths) as rig:
        for path in paths:
            assert rig.read([Read(path, 0, 4096, 0)]) == 4096
        rig.submit([Read(paths[0], 0, 4096, 0)])  # in flight while it is closed
        rig.backend.close()
        rig.backend.close()
    del rig
    gc.collect()
    _wait_for_files(files)
    assert (set(threading.enumerate()), _num_open_files(), _pinned_kib()) == (threads, files, pinned)


@of_files
def test_a_thread_keeps_a_bounded_number_of_files_open(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    with _rig(variant) as rig:
        before = _num_open_files()
        for number in range(MAX_OPEN_FILES + 10):
            path = _file(tmp_path, 4096, str(number), seed=number)
            assert rig.read([Read(path, 0, 4096, 0)]) == 4096
        assert _num_open_files() == before + MAX_OPEN_FILES
        rig.submit([Read(path, 0, 4096, 0)])
        rig.backend.drain()  # nothing in flight holds the file any more
        rig.backend.shut(path)
        assert _num_open_files() == before + MAX_OPEN_FILES - (2 if variant.name == "gds" else 1)


IN_A_CHILD = """
import json, os, resource, sys
from pathlib import Path
from kvio.backends import find_backend
from kvio.protocol import KVIOError
from kvio.backends.config import BackendConfig
name, directory, limit, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
kind = find_backend(name)
where = os.open(directory, os.O_RDONLY)
backends = [kind.make(BackendConfig(options=options)) for _ in range(12)]
if limit:
    limit += len(os.listdir("/proc/self/fd"))  # those of the libraries come on top
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
elif os.geteuid() == 0:
    os.setuid(65534)
os.fchdir(where)
try:
    for backend in backends:
        backend.open(Path("chunk"))
except KVIOError as error:
    print(error)
"""


def _in_a_child(variant: Variant, directory: Path, limit: int = 0) -> str:
    """What opening the chunk in 12 backends says, with few descriptors or without privileges."""
    options = json.dumps(variant.all_options())
    command = [sys.executable, "-c", IN_A_CHILD, variant.name, str(directory), str(limit), options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


once_per_file_backend = pytest.mark.parametrize(
    "variant",
    list({v.name: v for v in reversed(VARIANTS) if v.kind.from_storage and not v.kind.on_server}.values()),
    ids=str,
)


@once_per_file_backend
def test_too_many_open_files_says_what_to_raise(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    _file(tmp_path, 4096)
    assert "raise ulimit -n or use fewer threads" in _in_a_child(variant, tmp_path, limit=8)


@once_per_file_backend
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    tmp_path.chmod(0o755)
    _file(tmp_path, 4096).chmod(0o000)
    assert _in_a_child(variant, tmp_path) == "chunk: Permission denied\n"


def _store(directory: Path, variant: Variant) -> ChunkStore:
    preset = adapt_preset(find_preset("best"), chunk_tokens=16, direct=variant.direct, num_threads=3)
    return ChunkStore.create(directory, ChunkGeometry(LAYOUT, preset), num_chunks=24, seed=2)


@contextmanager
def _loader(store: ChunkStore, variant: Variant) -> Iterator[tuple[ChunkLoader, Placement | None]]:
    placement = variant.placement(store.directory)
    setting = variant.setting(placement)
    with closing(
        ChunkLoader(
            store.geometry,
            lambda: variant.kind.make(setting),
            device=CPU,
            now_s=time.monotonic,
            into=variant.kind.target_memory,
        )
    ) as loader:
        yield loader, placement


@every_variant
def test_a_load_brings_every_token_and_its_data_path_is_proved(tmp_path: Path, variant: Variant) -> None:
    _require(variant, tmp_path)
    storage = describe_storage(require_disk(tmp_path))
    store = _store(tmp_path, variant)
    jobs = plan_jobs(store, range(24), first_token=0, prefix_tokens=384)
    blocks = KVBlocks(LAYOUT, 384, CPU)
    blocks.poison()
    paths = [store.chunk_path(number) for number in range(24)]
    with _loader(store, variant) as (loader, placement):
        if placement is not None:
            placement.upload(paths)
        for path in paths:
            evict(path)
        assert sum(resident_bytes(path) or 0 for path in paths) == 0
        evidence = ReadEvidence(storage, read_path=variant.kind.read_path)
        before = evidence.read_counters()
        split = loader.load(blocks, jobs)
        moved = evidence.read_counters().moved_since(before)
    for number in range(24):
        here = blocks.groups[0][:, 16 * number : 16 * number + 16].numpy().reshape(-1)
        assert np.array_equal(here, store.read_payload(number))
    assert split.num_bytes == 24 * 131_072
    assert split.queue_depth == 3 * variant.queue_depth
    state, _ = prove_cache_state(
        asked_direct=variant.direct, payload_bytes=split.num_bytes, resident_before=0, moved=moved
    )
    way = split.way or variant.name
    path, against = prove_data_path(
        backend=way,
        asked_direct=variant.direct,
        state=state,
        payload_bytes=split.num_bytes,
        moved=moved,
    )
    assert against == ()
    if variant.kind.on_server:
        ways = {"s3": "s3-whole", "nixl-obj": "nixl-obj", "mooncake": "mooncake-tcp-whole"}
        assert way == ways[variant.name]
        return
    if variant.kind.from_storage:
        assert state == ("direct" if variant.direct else "cold")
    queue = variant.options.get("queue")
    assert way == (f"nixl-posix-{queue}" if queue else variant.name)
    ways = {"gds": "kvikio-compat", "hostmem": "hostmem", "hostmem-pinned": "hostmem-pinned"}
    assert path == ways.get(variant.name, f"{way}-{'direct' if variant.direct else 'buffered'}")


@of_files
def test_a_failure_in_one_thread_stops_the_load_and_the_next_one_works(
    tmp_path: Path, variant: Variant
) -> None:
    _require(variant, tmp_path)
    store = _store(tmp_path, variant)
    threads, files, pinned = set(threading.enumerate()), _num_open_files(), _pinned_kib()
    jobs = plan_jobs(store, range(24), first_token=0, prefix_tokens=384)
    blocks = KVBlocks(LAYOUT, 384, CPU)
    with _loader(store, variant) as (loader, _):
        aside = store.chunk_path(0).rename(tmp_path / "aside")
        with pytest.raises(KVIOError, match=r"chunk-000000\.kv: No such file"):
            loader.load(blocks, jobs)
        blocks.poison()
        assert all(torch.all(group == POISON) for group in blocks.groups)
        aside.rename(store.chunk_path(0))
        loader.load(blocks, jobs)
        for number in range(24):
            here = blocks.groups[0][:, 16 * number : 16 * number + 16].numpy().reshape(-1)
            assert np.array_equal(here, store.read_payload(number))
    gc.collect()
    assert (set(threading.enumerate()), _num_open_files(), _pinned_kib()) == (threads, files, pinned)
