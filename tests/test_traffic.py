"""What the physical devices below a file system read and wrote."""

from pathlib import Path

import pytest

from kvio.evidence.disk import PhysicalDevice
from kvio.evidence.io_counters import Traffic, read_traffic
from kvio.evidence.storage_device import BlockDevice


def _device(**changes: bool) -> BlockDevice:
    return BlockDevice(
        "md0", "9:0", ("9:0",), tuple(PhysicalDevice(name, "8:0", **changes) for name in ("a", "b"))
    )


def _tree(root: Path, **sectors: tuple[int, int]) -> Path:
    for name, (read, written) in sectors.items():
        (root / "sys/block" / name).mkdir(parents=True)
        (root / "sys/block" / name / "stat").write_text(f"  11  22 {read}  44 55 66 {written} 88 0 99 100\n")
    return root


def test_bytes_read_and_written_are_summed_over_the_devices(tmp_path: Path) -> None:
    root = _tree(tmp_path, a=(10, 3), b=(5, 4))
    assert read_traffic(_device(), root) == Traffic(15 * 512, 7 * 512)


def test_devices_that_do_not_all_count_count_nothing(tmp_path: Path) -> None:
    root = _tree(tmp_path, a=(10, 3))
    assert read_traffic(_device(), root) is None
    assert read_traffic(_device(counts_reads=False), _tree(tmp_path, b=(5, 4))) is None


@pytest.mark.parametrize("before", [Traffic(11, 0), Traffic(0, 21)], ids=["read", "written"])
def test_a_counter_that_was_reset_tells_nothing(before: Traffic) -> None:
    assert Traffic(10, 20).moved_since(Traffic(4, 5)) == Traffic(6, 15)
    assert Traffic(10, 20).moved_since(before) is None
