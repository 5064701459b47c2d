"""The one place that imports kvikio and cuFile's bindings, when they are chosen.

What answers to the name libcuda.so.1 here.
"""

import ctypes
import importlib.metadata
import importlib.util
from types import ModuleType
from typing import Literal

from kvio.errors import KVIOError

CUDA_SUCCESS = 0  # CUresult of cuda.h

DriverKind = Literal["gpu", "no device", "stand-in", "absent"]


def find_driver_kind() -> DriverKind:
    """Whether the driver has a GPU; "stand-in": a library of that name which is no driver at all.

    kvikio loads libcuda.so.1 even to read into host memory, so that tests without a GPU give it one.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "absent"
    if not hasattr(driver, "cuInit"):
        return "stand-in"
    return "gpu" if driver.cuInit(0) == CUDA_SUCCESS else "no device"


def find_allocation(address: int) -> int:
    """Where the device allocation begins that holds `address`: cuFile registers whole allocations.

    Raises:
        OSError: there is no driver, or the address is none of its.
    """
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    get_range = ctypes.CDLL("libcuda.so.1").cuMemGetAddressRange_v2
    code = get_range(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    if code:
        raise OSError(f"cuMemGetAddressRange gives CUresult {code} for address {address:#x}")
    return base.value


INSTALL = "pip install -c constraints.txt -e '.[gds]'"


class GdsUnavailableError(KVIOError):
    """A part of GPUDirect Storage is not here, or refuses to work; what, and what helps."""


def import_kvikio() -> ModuleType:
    """The kvikio package.

    Raises:
        GdsUnavailableError: it is not installed, or cannot be loaded.
    """
    try:
        import kvikio
        import kvikio.cufile_driver
        import kvikio.defaults
    except (ImportError, OSError) as error:  # OSError: a shared library that it needs
        raise GdsUnavailableError(f"kvikio cannot be loaded ({_first_line(error)}); {INSTALL}") from error
    module: ModuleType = kvikio
    return module


def import_cufile() -> ModuleType:
    """cuFile's bindings, `cuda.bindings.cufile`.

    Raises:
        GdsUnavailableError: they are not installed, or find no libcufile.
    """
    try:
        from cuda.bindings import cufile
    except (ImportError, OSError, RuntimeError) as error:  # RuntimeError: no libcufile was found
        raise GdsUnavailableError(f"cuFile cannot be loaded ({_first_line(error)}); {INSTALL}") from error
    module: ModuleType = cufile
    return module


def is_installed(module: str) -> bool:
    """Whether `module` could be imported, without importing it (kvikio may spin where there is no GPU)."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
