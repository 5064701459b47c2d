"""From the catalogues to the rates that a cost model needs, with all that had to be supposed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.catalog.devices.datasheet import Figure, other_figures, pick_figure, range_of
from bench.catalog.devices.device_catalog import Devices, Gpu, Kernel, Link, Ssd, read_devices
from bench.catalog.models.fields import CatalogError
from bench.predict.bounded import Bounded

# bytes/s of a copy over those of the standard: 55 of 63 GB/s on PCIe 5 x16, 25.5 of 31.5 on PCIe 4 x16 (links.toml)
LINK_SHARE = 0.84
# of the datasheet's memory bandwidth, what a kernel that only reads reaches; source: github ai-dynamo/aiconfigurator
# commit 095f58a5, mem_bw_empirical_scaling_factor of its systems/*.yaml
MEMORY_SHARE = 0.8
MAX_DRIVES = 10_000
DRIVES = re.compile(r"(\d{1,7})\s*[x×]\s*(\S.*)", re.I)
WEIGHT_BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}
FOUR_BITS = re.compile(r"(?:fp|int|w)4")
DTYPE_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp8_e4m3": "fp8",
    "float8": "fp8",
    "float8_e4m3fn": "fp8",
}


@dataclass(frozen=True, slots=True)
class ComputeRates:
    """What one GPU's kernels reach, operations per second."""

    gemm: Bounded  # matrix products
    # by length of a causal prompt; between lengths linear in log length, outside the nearest
    attention: Mapping[int, float]
    attention_spread: tuple[float, float] | None = None

    def attention_at(self, tokens: float) -> float:
        """Rate of attention over a causal prompt of that many tokens."""
        lengths = list(self.attention)
        rates = [self.attention[length] for length in lengths]
        return float(np.interp(np.log(max(tokens, 1.0)), np.log(lengths), rates))


def read_weight_dtype(name: str) -> str:
    """The dtype of weights that users call so, as a key of WEIGHT_BYTES.

    Raises:
        CatalogError: no rate is modelled for it.
    """
    dtype = DTYPE_NAMES.get(name.lower(), name.lower())
    if dtype not in WEIGHT_BYTES:
        near = "; fp8 is the nearest: weights of twice the bytes" if FOUR_BITS.search(dtype) else ""
        known = ", ".join(WEIGHT_BYTES)
        raise CatalogError(f"dtype {name!r:.40} has no modelled rate; known: {known}{near}")
    return dtype


def find_compute(devices: Devices, gpu: Gpu, dtype: str) -> tuple[ComputeRates, tuple[str, ...]]:
    """Rates of a GPU's kernels with weights of that dtype, and what was supposed to find them.

    Measured kernels where the table has the GPU; else the typical shares of the peak of the GPUs that it
    has, with their range.  float8 weights speed up matrix products by the ratio of the peaks, attention not.

    Raises:
        CatalogError: the peak of this GPU in this dtype is unknown, or the dtype is.
    """
    dtype = read_weight_dtype(dtype)
    peak, notices = _peak(gpu.bf16_flops_per_s, f"{gpu.key}: bf16_flops_per_s")
    kernel = devices.kernels.get(gpu.key)
    if kernel is not None:
        middle = (kernel.gemm_low * kernel.gemm_high) ** 0.5
        rates = ComputeRates(Bounded(middle, kernel.gemm_low, kernel.gemm_high), kernel.attention)
        longest = max(kernel.attention)
        notices += (f"attention beyond {longest:,} tokens runs at the rate measured there",)
    else:
        rates = _typical(peak)
        notices += (f"no kernel was measured on {gpu.name}: shares of the peak as on other GPUs",)
    if dtype != "fp8":
        return rates, notices
    _require_fp8_units(gpu)
    fast, more = _peak(gpu.fp8_flops_per_s, f"{gpu.key}: fp8_flops_per_s")
    gemm = rates.gemm.times(fast / peak)
    notices += (
        *more,
        "fp8 products reach the same share of their peak as bfloat16; attention stays in bfloat16",
    )
    return ComputeRates(gemm, rates.attention, rates.attention_spread), notices


def _require_fp8_units(gpu: Gpu) -> None:
    if gpu.fp8_units is False:
        raise CatalogError(
            f"{gpu.name} has no float8 units: take --dtype bfloat16, or a GPU of a later generation"
            " (float8 weights with bfloat16 products are not modelled)"
        )


def _peak(figures: tuple[Figure, ...], what: str) -> tuple[float, tuple[str, ...]]:
    figure = pick_figure(figures)
    if figure is None:
        raise CatalogError(f"{what} is unknown; give it: --catalogue FILE.toml")
    return figure.value, format_unverified(figure, what)


def format_unverified(figure: Figure, what: str) -> tuple[str, ...]:
    """The notice that an unverified figure is due."""
    return () if figure.verified else (f"{what} is unverified: {figure.value:g}, no public source was read",)


def _typical(peak: float) -> ComputeRates:
    """The mean shares of the shipped kernels alone, so that a user's table does not change other GPUs."""
    devices = read_devices()
    shares = [_shares(kernel, devices.gpus[kernel.key]) for kernel in devices.kernels.values()]
    gemm = np.array([share for share, _ in shares])
    lengths = shares[0][1]  # all of them have the same
    attention = {n: float(np.mean([table[n] for _, table in shares])) * peak for n in lengths}
    return ComputeRates(
        Bounded(float(gemm.mean()), float(gemm.min()), float(gemm.max())).times(peak), attention
    )


def _shares(kernel: Kernel, gpu: Gpu) -> tuple[float, dict[int, float]]:
    peak, _ = _peak(gpu.bf16_flops_per_s, gpu.key)
    middle = (kernel.gemm_low * kernel.gemm_high) ** 0.5
    return middle / peak, {tokens: rate / peak for tokens, rate in kernel.attention.items()}


def find_memory(gpu: Gpu) -> tuple[float | None, tuple[str, ...]]:
    """Bytes per second at which a pass reads weights and KV from device memory; None when unknown."""
    figure = pick_figure(gpu.memory_bytes_per_s)
    if figure is None:
        return None, (f"the memory bandwidth of {gpu.name} is unknown: reading weights costs nothing here",)
    return figure.value * MEMORY_SHARE, format_unverified(figure, f"{gpu.key}: memory_bytes_per_s")


def find_link(devices: Devices, gpu: Gpu) -> tuple[Bounded | None, tuple[str, ...]]:
    """Bytes per second from host memory into one GPU: measured where somebody did, None when unknown."""
    figure = pick_figure(gpu.link_bytes_per_s)
    if figure is not None:
        return _spread(gpu.link_bytes_per_s), format_unverified(figure, f"{gpu.key}: link_bytes_per_s")
    if gpu.link is None:
        return None, (f"the host link of {gpu.name} is unknown: nothing limits loading but the storage",)
    link = devices.links[gpu.link]
    measured = pick_figure(link.measured_bytes_per_s)
    if measured is not None:
        return _spread(link.measured_bytes_per_s), ()
    nominal = pick_figure(link.bytes_per_s)
    if nominal is None:
        return None, (f"the rate of {link.name} is unknown: nothing limits loading but the storage",)
    return Bounded(nominal.value * LINK_SHARE), (
        f"{link.name}: {LINK_SHARE:g} of its nominal rate, unmeasured",
    )


def find_storage_rate(devices: Devices, name: str) -> tuple[str, Bounded, tuple[str, ...]]:
    """Name and read rate of a drive or tier: measured if somebody did, else nominal.

    "4x NAME" is what was measured of four together, where somebody did, else four times one.

    Raises:
        CatalogError: there is none of that name, or no rate of it is known.
    """
    store, num_drives = _find_store(devices, name)
    nominal = store.read_bytes_per_s if isinstance(store, Ssd) else store.bytes_per_s
    measured = store.measured_read_bytes_per_s if isinstance(store, Ssd) else store.measured_bytes_per_s
    figures = measured or nominal
    figure = pick_figure(figures)
    if figure is None:
        raise CatalogError(f"{store.name}: no read rate is known; give it: --bandwidth 10GB/s")
    how = "measured" if measured else "the datasheet's rate, which a file system rarely reaches"
    also = "".join(f", {one.value / 1e9:g} GB/s too ({one.source})" for one in other_figures(figures))
    within = ": the bounds hold each" if also else ""
    notices: tuple[str, ...] = (
        f"{store.name}: {figure.value / 1e9:g} GB/s is {how} ({figure.source}){also}{within}",
    )
    notices += format_unverified(figure, f"{store.key}: read rate")
    label = store.name if num_drives == 1 else f"{num_drives}x {store.name}"
    if num_drives > 1:
        notices += (f"{label}: striped without loss",)
    return label, _spread(figures).times(num_drives), notices


def _find_store(devices: Devices, name: str) -> tuple[Ssd | Link, int]:
    """The entry of that whole name, else of the set that "Nx NAME" means, else of one of its drives; how many of it."""
    named = DRIVES.fullmatch(name.strip())
    if named is None or devices.is_storage(name):
        return devices.find_storage(name), 1
    num_drives, drive = int(named[1]), named[2]
    if num_drives > MAX_DRIVES:
        raise CatalogError(f"storage {name!r:.60}: {num_drives} drives are more than {MAX_DRIVES:,}")
    if num_drives < 1:
        raise CatalogError(f"storage {name!r:.60}: {num_drives} drives hold nothing")
    together = devices.find_set(drive, num_drives)
    return (devices.find_storage(drive), num_drives) if together is None else (together, 1)


def _spread(figures: Sequence[Figure]) -> Bounded:
    """The figure that is used, with bounds that hold every source's value."""
    figure = pick_figure(figures)
    if figure is None:
        raise ValueError("no figure, so there is no rate")
    return Bounded(figure.value, *range_of(figures))
