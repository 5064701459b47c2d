"""Objects in a real Mooncake store: placed, read whole and by ranges, refused in one line, and withdrawn."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest

from kvio.backends import find_backend
from kvio.backends.config import BackendConfig
from kvio.backends.mooncake import mooncake_backend as mooncake_probe
from kvio.backends.mooncake import mooncake_client
from kvio.backends.mooncake.mooncake_backend import _KEPT, MooncakeBackend
from kvio.backends.mooncake.mooncake_client import (
    INSTALL,
    LIBRARIES,
    StoreClient,
    close_clients,
    read_mooncake,
    shared_client,
)
from kvio.backends.mooncake.mooncake_master import ADDRESS_NAME, OwnMaster, StoreSegment
from kvio.backends.mooncake.mooncake_placement import Keys, MooncakePlacement, Placed, owned_prefix
from kvio.backends.s3.bucket import ObjectError
from kvio.layout.object_places import CONTAINER_PREFIX
from kvio.layout.presets import find_preset
from kvio.protocol import KVIOError, Read, ShortReadError, make_host_target
from kvio.store.scratch import clean_stale, open_scratch
from tests.helpers.commands import ROOT
from tests.helpers.servers import MOONCAKE_BYTES, MooncakeServer, require_mooncake, shared_mooncake

CONTENT = np.random.default_rng(5).bytes(20_000)


@pytest.fixture
def server() -> MooncakeServer:
    return shared_mooncake()


@pytest.fixture
def options(server: MooncakeServer, tmp_path: Path) -> dict[str, str]:
    """Of the shared store, under a prefix of this test's own."""
    return {**server.options, "prefix": f"test/{tmp_path.name}"}


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    with open_scratch(tmp_path) as directory:
        yield directory


def _file(scratch: Path, name: str = "chunk-000000.kv", content: bytes = CONTENT) -> Path:
    (scratch / "store-0").mkdir(exist_ok=True)
    path = scratch / "store-0" / name
    path.write_bytes(content)
    return path


def _client(options: dict[str, str]) -> StoreClient:
    return shared_client(read_mooncake(options), options["master"])


def _key(options: dict[str, str], path: Path, offset: int = 0, packed_bytes: int | None = None) -> str:
    return Keys(options["prefix"], packed_bytes).find(path, offset, size_bytes=path.stat().st_size).key


def _write(options: dict[str, str], key: str, content: bytes) -> None:
    """Put an object there as another client of the store would."""
    target = make_host_target(len(content))
    target.view[:] = content
    client = _client(options)
    client.register(target)
    client.put(key, target, len(content))
    client.deregister(target)


def _read(
    options: dict[str, str], *reads: Read, packed_bytes: int | None = None, directory: Path | None = None
) -> tuple[bytes, str | None]:
    target = make_host_target(32_768)
    setting = BackendConfig(options=options, packed_bytes=packed_bytes, directory=directory)
    with closing(MooncakeBackend(setting)) as backend:
        backend.attach([target])
        for read in reads:
            backend.open(read.path)
        backend.submit(0, reads, target)
        backend.wait()
        return bytes(target.view), backend.take_way()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"protocol": "rdma"}, "the Mooncake store that a run starts is on loopback over TCP, .*'protocol'"),
        ({"replicas": "2", "prefix": "a"}, "'replicas'"),
        ({"master": "127.0.0.1"}, "the master is no host:port; try --option master=127.0.0.1:50051"),
        ({"master": "etcd://127.0.0.1:1"}, "the master is no host:port"),
        (
            {"master": "a:1", "protocol": "tcp6"},
            "no protocol 'tcp6'; try --option protocol= one of tcp, rdma",
        ),
        ({"master": "a:1", "replicas": "no"}, "replicas is 'no'"),
        ({"master": "a:1", "replicas": "0"}, "replicas is '0'"),
    ],
    ids=["own protocol", "own replicas", "no port", "etcd", "protocol", "words", "none"],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(KVIOError, match=said):
        read_mooncake(options)


@pytest.mark.parametrize("where", ["redis://:geheim@a:1", "http://a:1/metadata?key=geheim"])
def test_an_address_with_a_secret_is_refused_and_not_repeated(where: str) -> None:
    with pytest.raises(KVIOError, match="holds credentials or a query") as caught:
        read_mooncake({"master": "a:1", "metadata": where})
    assert "geheim" not in str(caught.value)
    with pytest.raises(KVIOError, match="the master is no host:port") as caught:
        read_mooncake({"master": "me:geheim@a:1"})
    assert "geheim" not in str(caught.value)


def test_nothing_is_supposed_of_the_way_to_a_users_store() -> None:
    assert read_mooncake({"master": "127.0.0.1:50051"}).host is None  # its memory may be anywhere
    assert read_mooncake({}).host == "127.0.0.1"


def test_each_object_of_a_larger_file_has_a_key_of_its_own(scratch: Path) -> None:
    owner = owned_prefix("kv", scratch.parent)
    folder = f"{owner}/{scratch.name}/store-0"
    keys = Keys("kv", 8192)
    path = scratch / "store-0" / f"{CONTAINER_PREFIX}0001.kv"
    assert keys.find(path, 8192, size_bytes=20_480) == Placed(f"{folder}/{path.name}@0001", 8192, 8192)
    assert [part.num_bytes for part in keys.all_of(path, 20_480)] == [8192, 8192, 4096]
    state = scratch / "store-0" / "state-000000.kv"
    assert list(keys.all_of(state, 20_480)) == [Placed(f"{folder}/{state.name}", 0, 20_480)]
    assert list(keys.all_of(state, 0)) == []


def test_the_layout_of_mooncake_packs_its_chunks_and_reads_a_batch_of_them() -> None:
    preset = find_preset("mooncake")
    assert (preset.container_bytes, preset.request_bytes, preset.queue_depth) == (256_000_000, None, 32)


def test_placed_files_are_read_back_whole_and_by_ranges(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch)
    MooncakePlacement(options, scratch).upload([path])
    held, way = _read(options, Read(path, 0, 20_000, 7))
    assert (held[7:20_007], way) == (CONTENT, "mooncake-tcp-whole")
    held, way = _read(options, Read(path, 100, 5000, 0), Read(path, 0, 100, 5000))
    assert (held[:5100], way) == (CONTENT[100:5100] + CONTENT[:100], "mooncake-tcp-ranged")
    assert _read(options, Read(path, 0, 20_000, 0), Read(path, 1, 1, 20_000))[1] == "mooncake-tcp-mixed"


def test_an_object_of_a_larger_file_is_read_whole(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch, f"{CONTAINER_PREFIX}0000.kv")
    MooncakePlacement(options, scratch).upload([path], packed_bytes=8192)
    held, way = _read(options, Read(path, 8192, 8192, 0), Read(path, 16_384, 3616, 8192), packed_bytes=8192)
    assert (held[:11_808], way) == (CONTENT[8192:], "mooncake-tcp-whole")
    held, way = _read(options, Read(path, 12_288, 4096, 0), packed_bytes=8192)
    assert (held[:4096], way) == (CONTENT[12_288:16_384], "mooncake-tcp-ranged")
    assert _client(options).size_bytes(_key(options, path, 16_384, 8192)) == 3616


def test_an_object_cut_short_in_the_store_is_a_short_read(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch)
    _write(options, _key(options, path), CONTENT[:5000])
    with pytest.raises(ShortReadError, match=r"chunk-000000\.kv: 5000 of 20000 bytes at offset 0"):
        _read(options, Read(path, 0, 20_000, 0))
    with pytest.raises(ShortReadError, match="1000 of 4096 bytes at offset 4000"):
        _read(options, Read(path, 4000, 4096, 0))
    with pytest.raises(ShortReadError, match="0 of 4096 bytes at offset 8192"):
        _read(options, Read(path, 8192, 4096, 0))


def test_an_object_longer_than_was_placed_is_refused(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch)
    _write(options, _key(options, path), CONTENT + b"more")
    with pytest.raises(ObjectError, match=r"chunk-000000\.kv: 20004 bytes, 20000 were placed"):
        _read(options, Read(path, 0, 20_000, 0))


def test_an_object_that_was_evicted_is_named(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch)
    placement = MooncakePlacement(options, scratch)
    placement.upload([path])
    placement.remove()
    for read in (Read(path, 0, 20_000, 0), Read(path, 5, 50, 0)):
        with pytest.raises(
            ObjectError, match=r"store-0/chunk-000000\.kv: there is no such object; it was evicted"
        ):
            _read(options, read)


def test_what_the_store_kept_of_an_earlier_object_is_noticed(options: dict[str, str], scratch: Path) -> None:
    """Mooncake says that all is well where an object of that key is there already, and keeps the old one."""
    path = _file(scratch)
    _write(options, _key(options, path), CONTENT[::-1])
    with pytest.raises(ObjectError, match="other bytes came back than were placed"):
        MooncakePlacement(options, scratch).upload([path])


def test_a_full_store_is_one_clear_line(options: dict[str, str], scratch: Path) -> None:
    path = _file(scratch)
    os.truncate(path, 3 * MOONCAKE_BYTES)  # more than was asked for and the room beside it
    with pytest.raises(
        ObjectError, match="the store is full, or nothing is mounted in it; free some"
    ) as caught:
        MooncakePlacement(options, scratch).upload([path])
    assert "\n" not in str(caught.value)


def test_fewer_copies_than_asked_for_are_refused(options: dict[str, str], scratch: Path) -> None:
    with pytest.raises(ObjectError, match=r"1 of 2 copies were made, .*; try --option replicas=1"):
        MooncakePlacement({**options, "replicas": "2"}, scratch).upload([_file(scratch)])


def test_a_missing_server_is_one_clear_line(scratch: Path) -> None:
    require_mooncake()
    with pytest.raises(
        ObjectError, match=r"Mooncake store at 127\.0\.0\.1:1: Connection refused; start mooncake_master"
    ):
        MooncakePlacement({"master": "127.0.0.1:1"}, scratch).open()
    with pytest.raises(KVIOError, match="Mooncake store of this run: it was not started, or has ended"):
        MooncakeBackend(BackendConfig(directory=scratch))


def test_signals_leave_a_read_whole(options: dict[str, str], scratch: Path) -> None:
    content = np.random.default_rng(6).bytes(24_000_000)
    path, target, caught = _file(scratch, content=content), make_host_target(len(content)), []
    placement = MooncakePlacement(options, scratch)
    placement.upload([path])
    before = signal.signal(signal.SIGALRM, lambda number, frame: caught.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        with closing(MooncakeBackend(BackendConfig(options=options))) as backend:
            backend.attach([target])
            backend.open(path)
            while len(caught) < 20:
                backend.submit(0, [Read(path, 0, len(content), 0)], target)
                assert backend.wait()[0].num_bytes == len(content)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert bytes(target.view) == content
    placement.remove()


@pytest.mark.skipif(Path("/dev/infiniband").exists(), reason="there is an RDMA device here")
def test_a_fallback_from_rdma_is_refused(server: MooncakeServer, scratch: Path) -> None:
    with pytest.raises(
        ObjectError, match="rdma was asked for, and Mooncake uses tcp: no RDMA device was opened"
    ):
        MooncakePlacement({**server.options, "protocol": "rdma"}, scratch).open()


def test_a_directory_in_place_of_a_file_cannot_be_placed(options: dict[str, str], scratch: Path) -> None:
    (scratch / "store-0").mkdir()
    with pytest.raises(KVIOError, match="store-0: Is a directory"):
        MooncakePlacement(options, scratch).upload([scratch / "store-0"])
    with pytest.raises(KVIOError, match=r"gone\.kv: No such file or directory"):
        MooncakePlacement(options, scratch).upload([scratch / "gone.kv"])


def test_withdrawing_removes_this_run_and_nothing_else(options: dict[str, str], scratch: Path) -> None:
    placement, client = MooncakePlacement(options, scratch), _client(options)
    path, state = _file(scratch), _file(scratch, "state-000000.kv")
    (scratch.parent / f"{scratch.name}-2").mkdir()  # another run, which lives
    others = [f"{options['prefix']}/thesis", _key(options, path).replace(scratch.name, f"{scratch.name}-2")]
    for other in others:
        _write(options, other, b"mine")
    placement.open()
    placement.upload([path, state])
    assert [client.size_bytes(_key(options, one)) for one in (path, state)] == [20_000, 20_000]
    placement.remove()
    placement.remove()
    assert [client.size_bytes(_key(options, one)) for one in (path, state)] == [None, None]
    assert [client.size_bytes(other) for other in others] == [4, 4]


PLACE = """
import json, signal, sys
from pathlib import Path
from kvio.backends.mooncake.mooncake_placement import MooncakePlacement
from kvio.store.scratch import open_scratch
with open_scratch(Path(sys.argv[1])) as scratch:
    (scratch / "store-0").mkdir()
    path = scratch / "store-0" / "chunk-000000.kv"
    path.write_bytes(bytes(4096))
    placement = MooncakePlacement(json.loads(sys.argv[2]), scratch)
    placement.open()
    placement.upload([path])
    print(path, flush=True)
    signal.pause()
"""


def _place_elsewhere(folder: Path, options: dict[str, str]) -> tuple[subprocess.Popen[str], Path]:
    """A process that has placed a file, and holds it until it is killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", PLACE, str(folder), json.dumps(options)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_the_next_run_removes_what_a_killed_one_left_and_spares_the_living(
    options: dict[str, str], tmp_path: Path
) -> None:
    client = _client(options)
    child, path = _place_elsewhere(tmp_path, options)
    dead = _key(options, path)
    foreign = f"{options['prefix']}/0123456789abcdef/kvcross-foreign/store-0/chunk-000000.kv"
    _write(options, foreign, b"another machine")
    try:
        with open_scratch(tmp_path) as scratch:
            MooncakePlacement(options, scratch).open()
            assert client.size_bytes(dead) == 4096  # it lives
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert client.size_bytes(dead) == 4096
    clean_stale(tmp_path)
    with open_scratch(tmp_path) as scratch:
        MooncakePlacement(options, scratch).open()
    assert client.size_bytes(dead) is None
    assert client.size_bytes(foreign) == 15


def test_a_store_of_the_runs_own_serves_its_processes_and_ends_with_it(scratch: Path) -> None:
    require_mooncake()
    path, placement = _file(scratch), MooncakePlacement({}, scratch)
    before = set(psutil.Process().children())
    placement.open()
    placement.upload([path])
    started = [one for one in psutil.Process().children() if one not in before]
    assert sorted("master" in " ".join(one.cmdline()[:1]) for one in started) == [False, True]
    held, way = _read({}, Read(path, 0, 20_000, 0), directory=path.parent)
    assert (held[:20_000], way) == (CONTENT, "mooncake-tcp-whole")
    placement.remove()
    placement.remove()
    assert not any(one.is_running() for one in started)
    assert not (scratch / ADDRESS_NAME).exists()


def test_a_part_of_a_run_takes_back_the_memory_that_it_gave(scratch: Path) -> None:
    """As the logits check does: what the store is asked for next must not go where nobody is any more."""
    require_mooncake()
    whole = MooncakePlacement({}, scratch)
    whole.open()
    try:
        for number in range(2):
            path = _file(scratch, f"chunk-00000{number}.kv")
            part = MooncakePlacement({}, scratch / "store-0")
            part.upload([path])
            assert _read({}, Read(path, 0, 20_000, 0), directory=path.parent)[0][:20_000] == CONTENT
            part.remove()
    finally:
        whole.remove()


def test_kill_9_ends_the_store_of_a_run(tmp_path: Path) -> None:
    require_mooncake()
    child, path = _place_elsewhere(tmp_path, {})
    assert path.name == "chunk-000000.kv"
    started = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert len(started) == 2
    gone, alive = psutil.wait_procs(started, timeout=20)
    assert (len(gone), alive) == (2, [])


def test_a_store_that_dies_is_one_line_and_its_late_bytes_find_memory(tmp_path: Path, scratch: Path) -> None:
    require_mooncake()
    master = OwnMaster(scratch)
    segment = StoreSegment(master.address, 1 << 20, folder=scratch)
    options = {"master": master.address, "prefix": "dying"}
    path, kept = _file(scratch), len(_KEPT)
    try:
        MooncakePlacement(options, scratch).upload([path])
        segment.stop()
        with pytest.raises(
            ObjectError, match=r"the transfer failed; do the processes .* run\? \(error -800\)"
        ):
            _read(options, Read(path, 0, 20_000, 0))
        assert len(_KEPT) == kept + 1
    finally:
        segment.stop()
        close_clients(master.address)
        master.stop()


def test_more_than_the_machines_memory_is_refused_before_anything_starts(scratch: Path) -> None:
    with pytest.raises(
        KVIOError, match=r"does not fit into the .* GB of memory .*; try a smaller --working-set"
    ):
        StoreSegment("127.0.0.1:1", 1 << 50, folder=scratch)


def test_the_probe_reads_real_bytes_and_leaves_nothing(tmp_path: Path) -> None:
    require_mooncake()
    assert find_backend("mooncake").probe(tmp_path, {}) is None
    assert list(tmp_path.iterdir()) == []


def test_a_probe_says_what_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = find_backend("mooncake").probe
    why = probe(tmp_path, {"protocol": "rdma"})
    assert why is not None
    assert why.remedy == "name a store of yours with --option master=HOST:PORT"
    monkeypatch.setattr(mooncake_client.importlib.util, "find_spec", lambda name: None)
    why = probe(tmp_path, {})
    assert why is not None
    assert (why.reason, why.remedy) == ("mooncake is not installed", INSTALL)


def test_a_library_that_the_system_lacks_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packages" / "mooncake"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    missing = "libibverbs.so.1: cannot open shared object file: No such file or directory"
    (package / "store.py").write_text(f"raise ImportError({missing!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setattr(mooncake_probe, "is_installed", lambda: True)
    why = find_backend("mooncake").probe(tmp_path, {})
    assert why is not None
    assert (why.reason, why.remedy) == (f"Mooncake cannot be loaded: {missing}", LIBRARIES)
