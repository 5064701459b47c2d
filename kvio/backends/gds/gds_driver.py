"""What answers to the name libcuda.so.1 here."""

import ctypes
from typing import Literal

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
