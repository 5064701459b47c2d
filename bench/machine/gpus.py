"""Facts of the GPUs, from NVIDIA's management library."""

from collections.abc import Callable
from typing import Any

import pynvml
from pydantic import BaseModel, ConfigDict

NVML: Any = pynvml  # which has no types
# why a GPU runs slower than it could; names of nvml.h (nvmlClocksThrottleReasons)
THROTTLE_REASONS = {
    0x2: "applications_clocks",
    0x4: "power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
}


class GpuFacts(BaseModel):
    """One GPU; None where the driver reports nothing.

    Args:
        pcie_generation, pcie_width: of the link now; an idle link may have slowed down.
        sm_clock_mhz, max_sm_clock_mhz: of the multiprocessors, now and at most.
        throttle_reasons: names of `THROTTLE_REASONS`; idling is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    memory_bytes: int | None
    driver: str | None
    cuda_driver: str | None
    pcie_generation: int | None
    pcie_width: int | None
    pcie_generation_max: int | None
    pcie_width_max: int | None
    persistence: bool | None
    mig: bool | None
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    power_limit_w: float | None
    throttle_reasons: tuple[str, ...]


def read_gpus() -> tuple[GpuFacts, ...]:
    """Every GPU of the machine in the driver's order; empty without a driver."""
    try:
        NVML.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(
            _describe(NVML.nvmlDeviceGetHandleByIndex(index)) for index in range(NVML.nvmlDeviceGetCount())
        )
    finally:
        NVML.nvmlShutdown()


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
    """The driver's answer, None where this GPU or driver has none."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def _describe(gpu: Any) -> GpuFacts:  # noqa: ANN401
    memory = _ask(NVML.nvmlDeviceGetMemoryInfo, gpu)  # none where the GPU shares the CPU's
    mig = _ask(NVML.nvmlDeviceGetMigMode, gpu)
    persistence = _ask(NVML.nvmlDeviceGetPersistenceMode, gpu)
    power_mw = _ask(NVML.nvmlDeviceGetPowerManagementLimit, gpu)
    return GpuFacts(
        name=NVML.nvmlDeviceGetName(gpu),
        memory_bytes=None if memory is None else memory.total,
        driver=_ask(NVML.nvmlSystemGetDriverVersion),
        cuda_driver=name_cuda_version(_ask(NVML.nvmlSystemGetCudaDriverVersion_v2)),
        pcie_generation=_ask(NVML.nvmlDeviceGetCurrPcieLinkGeneration, gpu),
        pcie_width=_ask(NVML.nvmlDeviceGetCurrPcieLinkWidth, gpu),
        pcie_generation_max=_ask(NVML.nvmlDeviceGetMaxPcieLinkGeneration, gpu),
        pcie_width_max=_ask(NVML.nvmlDeviceGetMaxPcieLinkWidth, gpu),
        persistence=None if persistence is None else bool(persistence),
        mig=None if mig is None else bool(mig[0]),
        sm_clock_mhz=_ask(NVML.nvmlDeviceGetClockInfo, gpu, NVML.NVML_CLOCK_SM),
        max_sm_clock_mhz=_ask(NVML.nvmlDeviceGetMaxClockInfo, gpu, NVML.NVML_CLOCK_SM),
        power_limit_w=None if power_mw is None else power_mw / 1000,
        throttle_reasons=name_throttle_reasons(
            _ask(NVML.nvmlDeviceGetCurrentClocksThrottleReasons, gpu) or 0
        ),
    )


def name_throttle_reasons(bits: int) -> tuple[str, ...]:
    """Names of the reasons whose bits are set; idling is none."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def name_cuda_version(number: int | None) -> str | None:
    """The library's 12040 as "12.4"."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"
