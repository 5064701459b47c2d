"""Storage where no read can be proved is told before anything is measured."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.measure.conditions import storage_check as provable
from bench.measure.conditions.storage_check import foresee_storage
from bench.measure.setup import Setup, work_out
from bench.record.plan import LoadSpec, Plan, PlanError, SimulationSpec
from kvio.evidence.cold_evidence import ReadCounters
from kvio.evidence.disk import PhysicalDevice
from kvio.evidence.storage_device import BlockDevice, Storage
from tests.places import memory_folder, require_disk


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def _setup(*backends: str, **changes: object) -> Setup:
    loads = tuple(LoadSpec(backend=name) for name in backends)
    return work_out(Plan(model="qwen3-0.6b", loads=loads).model_copy(update=changes))


def test_loads_that_all_read_files_in_memory_are_refused(in_memory: Path) -> None:
    with pytest.raises(PlanError) as refused:
        foresee_storage(_setup("posix", "uring"), in_memory)
    assert str(refused.value) == (
        f"{in_memory} is on tmpfs (in memory): no read there is ever cold or direct, so no sample of a load would count; "
        "try --data-dir FOLDER on a local disk, or --backend hostmem for loads from memory"
    )


def test_beside_another_place_files_in_memory_are_a_notice(in_memory: Path) -> None:
    (notice,) = foresee_storage(_setup("hostmem", "posix"), in_memory)
    assert (notice.code, notice.suspect) == ("storage_unproved", True)
    assert notice.message == (
        f"posix/best: {in_memory} is on tmpfs (in memory): no read there is ever cold or direct, so none of these samples "
        "will count; try --data-dir FOLDER on a local disk"
    )


@pytest.mark.parametrize("backends", [("hostmem",), ("null", "hostmem"), ("s3",)], ids="+".join)
def test_who_reads_no_files_may_have_them_anywhere(in_memory: Path, backends: tuple[str, ...]) -> None:
    assert foresee_storage(_setup(*backends), in_memory) == ()


def test_a_simulation_and_a_missing_folder_are_no_matter(in_memory: Path) -> None:
    assert foresee_storage(_setup("simulated", simulation=SimulationSpec()), in_memory) == ()
    assert foresee_storage(_setup("posix"), in_memory / "gone") == ()


def test_of_a_local_disk_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert foresee_storage(_setup("posix"), require_disk(tmp_path)) == ()


def _disk(*, behind_loop: bool) -> BlockDevice:
    disk = PhysicalDevice("nvme0n1", "259:0", behind_loop=behind_loop, counts_reads=not behind_loop)
    return BlockDevice("loop0" if behind_loop else "nvme0n1", "7:0", ("7:0",), (disk,))


@pytest.mark.parametrize(
    ("device", "counters", "why"),
    [
        (_disk(behind_loop=True), ReadCounters(None, None), "the file below its loop device may be cached"),
        (None, ReadCounters(0, None), "the kernel has no counters that prove reads there"),
        (
            _disk(behind_loop=False),
            ReadCounters(None, 0),
            "the kernel has no counters that prove reads there",
        ),
    ],
    ids=["loop", "network", "no process counter"],
)
def test_where_nothing_proves_a_read_a_notice_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: BlockDevice | None,
    counters: ReadCounters,
    why: str,
) -> None:
    storage = Storage("ext4", device, (), in_guest=False)
    monkeypatch.setattr(provable, "describe_storage", lambda path: storage)
    monkeypatch.setattr(provable, "read_counters", lambda device: counters)
    (notice,) = foresee_storage(_setup("posix"), tmp_path)
    assert notice.message.startswith(f"posix/best: {tmp_path} is on {storage.name}: {why}")
    assert notice.message.endswith(
        "so none of these samples will count; try --data-dir FOLDER on a local disk"
    )
