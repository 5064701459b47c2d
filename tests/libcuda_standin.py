"""A stand-in for libcuda.so.1, so that kvikio reads into host memory on a machine without a driver.  For tests only.

kvikio looks up all of these when it loads the driver (cpp/src/shim/cuda.cpp of github.com/rapidsai/kvikio, 26.10;
cuCtxCreate_v2 and cuMemcpyBatchAsync in its build for CUDA 12).  Each gives CUDA_ERROR_NOT_INITIALIZED, but for
cuDriverGetVersion: kvikio asks for it again and again until it succeeds.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

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
