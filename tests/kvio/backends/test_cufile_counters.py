"""cuFile's level-3 statistics, registration and options, without a GPU."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from kvio.backends.gds.cufile_counters import ROOM_BYTES, parse_statistics
from kvio.backends.gds.gds_library import GdsUnavailableError, is_installed
from kvio.backends.gds.gds_options import DEFAULTS, OPTIONS, parse_gds_options, require_plain_allocator
from kvio.backends.gds.gds_process import Configuration
from kvio.backends.gds.registration import Registrations
from kvio.evidence.gds_path import CuFileReads, KvikioReads, PathCounters
from kvio.protocol import KVIOError

FIELDS = (
    *("read_bytes", "n_p2p_reads", "n_nvfs_reads", "n_posix_reads", "n_unaligned_reads"),
    *("n_dr_reads", "n_reads_err"),
)
GPU = np.dtype([(name, "<u8") for name in FIELDS])


def _level3(basic: list[str]) -> np.dtype[Any]:
    """As cufile.h of a version lays it out: the basic part grows, the GPUs come last."""
    detailed = np.dtype([("basic", np.dtype([(name, "<u8") for name in basic]))])
    return np.dtype(
        [("detailed", detailed), ("num_gpus", "<u4"), ("pad", "<u4"), ("per_gpu_stats", GPU, (16,))]
    )


OLD, NEW = _level3(["read_bytes"]), _level3(["read_bytes", "readv_bytes", "writev_bytes"])


def _written(dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    room = np.zeros(ROOM_BYTES, np.uint8)
    found = room[: dtype.itemsize].view(dtype)[0]
    found["detailed"]["basic"]["read_bytes"] = 12 * 2**20
    found["num_gpus"] = 2
    found["per_gpu_stats"][0] = (4 * 2**20, 1, 0, 0, 0, 0, 0)
    found["per_gpu_stats"][1] = (8 * 2**20, 1, 2, 3, 4, 5, 6)
    found["per_gpu_stats"][2]["n_posix_reads"] = 99  # no third GPU: not to be read
    return room


def test_reads_of_all_gpus_are_added_up() -> None:
    assert parse_statistics(_written(NEW), NEW) == CuFileReads(12 * 2**20, 12 * 2**20, 2, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(("library", "bindings"), [(OLD, NEW), (NEW, OLD)], ids=["older", "newer"])
def test_a_structure_of_another_version_contradicts_itself(
    library: np.dtype[Any], bindings: np.dtype[Any]
) -> None:
    misread = parse_statistics(_written(library), bindings)
    assert misread.num_bytes == 12 * 2**20
    assert misread.gpu_bytes != misread.num_bytes
    path, codes = PathCounters(False, KvikioReads(0, 12 * 2**20), misread).decide(
        payload_bytes=12 * 2**20, device_bytes=None
    )
    assert (path, "gds_unproven" in codes) == ("gds-unverified", True)


@pytest.mark.skipif(not is_installed("cuda.bindings.cufile"), reason="cuda-bindings is not installed")
def test_the_real_bindings_have_the_fields_that_are_read() -> None:
    from kvio.backends.gds.gds_library import import_cufile

    dtype = import_cufile().stats_level3_dtype
    assert parse_statistics(np.zeros(ROOM_BYTES, np.uint8), dtype) == CuFileReads(0, 0)
    assert dtype.itemsize < ROOM_BYTES


def test_counters_between_two_moments_are_differences_and_missing_stays_missing() -> None:
    before = PathCounters(False, KvikioReads(1, 2, 0), CuFileReads(5, 5, 1), 10)
    after = PathCounters(False, KvikioReads(4, 8, 1), CuFileReads(9, 9, 3), 30)
    assert after.moved_since(before) == PathCounters(False, KvikioReads(3, 6, 1), CuFileReads(4, 4, 2), 20)
    assert after.moved_since(PathCounters(False, None)) == PathCounters(False, None)


def test_every_option_has_a_value_of_ours_and_a_meaning() -> None:
    assert set(OPTIONS) == set(DEFAULTS)
    options = parse_gds_options({})
    assert (options.compat, options.io_threads, options.task_bytes) == (False, 8, 4 * 2**20)
    assert (options.threshold_bytes, options.bounce_bytes, options.register) == (0, 16 * 2**20, True)


def test_compat_mode_is_a_number_for_kvikio_and_never_auto() -> None:
    for text, number in (("off", 0), ("on", 1)):
        configuration = Configuration(parse_gds_options({"compat": text}), direct=True)
        assert configuration.defaults == {
            "compat_mode": number,
            "num_threads": 8,
            "task_size": 4 * 2**20,
            "gds_threshold": 0,
            "bounce_buffer_size": 16 * 2**20,
            "auto_direct_io_read": True,
        }
    with pytest.raises(KVIOError, match="compat=auto is neither on nor off"):
        parse_gds_options({"compat": "auto"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nthreads": "4"}, "no option 'nthreads'; it has: compat, io_threads"),
        ({"io_threads": "0"}, "io_threads=0 is not a whole number from 1 on"),
        ({"task_bytes": "4MiB"}, "task_bytes=4MiB is not a whole number from 4096 on"),
        ({"threshold_bytes": "-1"}, "threshold_bytes=-1 is not"),
        ({"register": "yes"}, "register=yes is neither on nor off"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(KVIOError, match=message):
        parse_gds_options(given)


def test_an_allocator_that_grows_segments_is_refused() -> None:
    require_plain_allocator({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False,max_split_size_mb:64"})
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        with pytest.raises(KVIOError, match=f"{name} asks for expandable_segments"):
            require_plain_allocator({name: "max_split_size_mb:64, expandable_segments:True"})


class FakeKvikio(SimpleNamespace):
    """Registers as kvikio does, but refuses the n-th."""

    def __init__(self, refused: int = 99) -> None:
        super().__init__(registered=[], deregistered=[], refused=refused)

    def memory_register(self, tensor: torch.Tensor) -> None:
        if len(self.registered) == self.refused:
            raise RuntimeError("cuFile error: 5030 GPU memory pinning failed\nat buffer.cpp:1")
        self.registered.append(tensor)

    def memory_deregister(self, tensor: torch.Tensor) -> None:
        self.deregistered.append(tensor)


def test_an_allocation_is_registered_once_and_released_with_its_last_slot() -> None:
    whole = torch.zeros(300, dtype=torch.uint8)
    slots = [whole[:100], whole[100:200], torch.zeros(100, dtype=torch.uint8)]
    bases = {slots[0].data_ptr(): 1, slots[1].data_ptr(): 1, slots[2].data_ptr(): 2}
    kvikio = cast(Any, FakeKvikio())
    registrations = Registrations(lambda address: bases[address])
    registrations.register(kvikio, slots)
    assert len(kvikio.registered) == 2
    registrations.release(kvikio, slots[:1])
    assert kvikio.deregistered == []
    registrations.release(kvikio, slots[1:])
    assert len(kvikio.deregistered) == 2


def test_a_refused_registration_releases_the_others_and_names_what_helps() -> None:
    slots = [torch.zeros(100, dtype=torch.uint8) for _ in range(3)]
    kvikio = cast(Any, FakeKvikio(refused=2))
    with pytest.raises(GdsUnavailableError, match=r"100 bytes .*pinning failed.*BAR1 .*gds\.register=off"):
        Registrations(lambda address: address).register(kvikio, slots)
    assert len(kvikio.deregistered) == 2
