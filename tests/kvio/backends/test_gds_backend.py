"""The real kvikio, as far as it goes without a GPU: reads into host memory, in processes under a time limit."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.record.notices import KINDS
from bench.record.samples_csv import read_samples
from kvio.backends import find_backend
from kvio.backends.gds.driver_probe import probe_driver
from kvio.backends.gds.gds_library import find_driver_kind, is_installed
from kvio.protocol import Unavailable
from tests.end_to_end.test_whole_sweeps import tiny
from tests.helpers.commands import ROOT, run_bench

NOT_INITIALIZED = 3  # CUresult of cuda.h
SYMBOLS = """
cuCtxCreate_v2 cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxGetCurrent cuCtxGetDevice cuCtxPopCurrent_v2 cuCtxPushCurrent_v2
cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain
cuEventCreate cuEventDestroy_v2 cuEventQuery cuEventRecord cuEventSynchronize cuGetErrorName cuGetErrorString
cuLaunchHostFunc cuMemFreeHost cuMemGetAddressRange_v2 cuMemHostAlloc cuMemHostRegister_v2 cuMemHostUnregister
cuMemcpyAsync cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyHtoDAsync_v2
cuPointerGetAttribute cuPointerGetAttributes cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize
"""


def build_standin(folder: Path, *, willing: Sequence[str] = ()) -> Path:
    """The folder, with a libcuda.so.1 in it; to be put into LD_LIBRARY_PATH.

    Args:
        willing: functions, of `SYMBOLS` or not, that claim success.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for libcuda.so.1 with")
    codes = {**dict.fromkeys(SYMBOLS.split(), NOT_INITIALIZED), **dict.fromkeys(willing, 0)}
    lines = [f"int {name}(void) {{ return {code}; }}" for name, code in codes.items()]
    lines.append("int cuDriverGetVersion(int *v) { *v = 13000; return 0; }")
    source = folder / "libcuda.c"
    source.write_text("\n".join(lines))
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder


LIMIT_S = 120  # seconds; kvikio spins where it finds no driver version
__all__ = ["tiny"]  # a fixture

needs_kvikio = pytest.mark.skipif(
    not is_installed("kvikio"), reason="kvikio is not installed: pip install --no-deps, as .ci/run does"
)
without_driver = pytest.mark.skipif(
    find_driver_kind() == "gpu", reason="a real driver is here: the gds tests read through it"
)
pytestmark = [needs_kvikio, without_driver]


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_standin(tmp_path_factory.mktemp("libcuda"))


@pytest.fixture(scope="module")
def said(standin: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `tests.helpers.gds_reading` found, once for all tests of it."""
    folder, elsewhere = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("elsewhere")
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.gds_reading", str(folder)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(standin)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_reads_arrive_at_their_places(said: dict[str, Any]) -> None:
    assert said["swapped"]
    assert said["odd"] == 5000 and said["odd_right"]


def test_the_path_is_kvikios_own_by_its_own_count(said: dict[str, Any]) -> None:
    assert said["counters_before"] is None
    assert said["moved"]["path"] == {
        "compat": True,
        "kvikio": {"posix_bytes": 65_536, "gds_bytes": 0, "num_errors": 0},
        "cufile": None,
        "nvfs_bytes": None,
    }
    assert said["path"] == ["kvikio-compat", []]


def test_the_stand_in_is_named(said: dict[str, Any]) -> None:
    assert said["notices"] == ["standin_driver"]


def test_a_file_that_ends_is_a_short_read_and_what_follows_is_right(said: dict[str, Any]) -> None:
    kind, text = said["short"]
    assert kind == "ShortReadError"
    assert text.endswith("short: 5000 of 8192 bytes at offset 0, the end")
    assert said["after_failure"]


def test_what_cannot_be_read_is_named_in_one_line(said: dict[str, Any]) -> None:
    assert said["gone"][1].endswith("gone: No such file or directory")
    assert said["folder"][1].endswith("reading 4096 bytes at offset 0: Is a directory")


def test_several_jobs_are_in_flight_and_their_file_stays_open_for_them(said: dict[str, Any]) -> None:
    assert said["two"] == [1, 2]


def test_a_file_takes_two_descriptors_and_closing_gives_them_back(said: dict[str, Any]) -> None:
    assert said["open_files"] == 2
    assert said["left_open"] == 0


def test_a_process_holds_one_configuration(said: dict[str, Any]) -> None:
    assert "differs from compat=False" in said["off"][1]
    assert "differs from direct=True" in said["direct"][1]
    assert "differs from io_threads=4; sweep them one after the other" in said["other"][1]


def test_no_log_file_is_dropped_into_the_working_directory(said: dict[str, Any]) -> None:
    assert said["log_files"] == []


@pytest.mark.slow
@pytest.mark.parametrize("direct", ["0", "1"], ids=["buffered", "direct"])
def test_the_contract_of_all_backends_holds(standin: Path, direct: str, tmp_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(standin), "KVCROSS_TEST_GDS_DIRECT": direct}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/kvio/backends/test_backend_contract.py",
        "-k",
        "gds",
        "-p",
        "no:xdist",
    ]
    done = subprocess.run(
        [*command, "--basetemp", str(tmp_path / "contract")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_trial_reads_what_it_wrote_and_leaves_nothing(
    standin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin))
    assert find_backend("gds").probe(tmp_path, {"compat": "on"}) is None
    assert list(tmp_path.iterdir()) == []


def test_cufile_is_refused_where_there_is_no_gpu(tmp_path: Path) -> None:
    refused = Unavailable(
        "cuFile reads into a GPU, and there is none", "--backend-option gds.compat=on, or --backend posix"
    )
    assert find_backend("gds").probe(tmp_path, {}) == refused


@pytest.mark.skipif(find_driver_kind() != "absent", reason="a driver is here")
def test_without_libcuda_nothing_is_read(tmp_path: Path) -> None:
    found = find_backend("gds").probe(tmp_path, {"compat": "on"})
    assert found is not None
    assert found.reason == "there is no libcuda.so.1, which kvikio loads even to read into host memory"
    assert found.remedy == "install the NVIDIA driver, or --backend posix"


@pytest.mark.skipif(Path("/proc/modules").exists(), reason="cuFile spins only where /proc/modules is missing")
def test_cufile_that_spins_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent")
    folder = build_standin(tmp_path, willing=context)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    probe = probe_driver(limit_s=5.0)
    assert (probe.outcome, probe.what) == ("hung", "cuFile was while opening for 5 s and was killed")


@pytest.mark.slow
def test_a_sweep_reads_through_kvikio_and_says_that_the_driver_is_a_stand_in(
    standin: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin))
    settings = ("--dtype", "float32", "--tokens", "64,128", "--samples", "1", "--working-set", "32MiB")
    backend = (
        "--backend",
        "gds",
        "--backend-option",
        "gds.compat=on",
        "--backend-option",
        "gds.task_bytes=1MiB",
        "--rounds",
        "1",
    )
    finished = run_bench("sweep", tiny, *settings, *backend, "--budget", "300s", cwd=tmp_path)
    assert finished.returncode == 3, finished.stderr
    folder = tmp_path / finished.stdout.strip().splitlines()[-1]
    loads = [sample for sample in read_samples(folder)[0] if sample.case.arm == "load"]
    assert {sample.outcome.data_path for sample in loads} == {"kvikio-compat"}
    assert all("standin_driver" in sample.outcome.notices for sample in loads)
    assert KINDS["standin_driver"].meaning in finished.stdout
    assert not list(tmp_path.glob("*.log"))
