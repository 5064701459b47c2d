"""Findings about compute: CPU, torch, attention kernels, GPUs, container."""

from collections.abc import Iterator

import torch

from bench.machine.doctor.finding import Finding
from bench.machine.facts import MachineFacts
from bench.machine.gpus import GpuFacts
from bench.record.units import format_bytes

BF16_ISA = frozenset({"amx_bf16", "avx512_bf16", "bf16"})
BUSY_SHARE, STEAL_SHARE = 0.25, 0.02  # above these, timings are noise


def examine_machine(facts: MachineFacts) -> Iterator[Finding]:
    """The CPU, its noise, the container, torch and the GPUs."""
    where = "virtual machine" if facts.in_guest else "bare metal"
    memory = format_bytes(facts.memory_limit_bytes or facts.memory_bytes)
    yield Finding("machine", "ok", f"{facts.cpu_model}, {facts.usable_cores:g} cores, {memory}, {where}")
    yield _examine_load(facts)
    if facts.governor == "powersave":
        yield Finding("governor", "warning", "powersave", "cpupower frequency-set -g performance")
    elif facts.governor is not None:
        yield Finding("governor", "ok", facts.governor)
    yield _examine_container(facts)
    if torch.cuda.is_available():
        yield from _examine_cuda()
    else:
        yield from _examine_cpu(facts)
    yield from _examine_gpus(facts.gpus)


def _examine_load(facts: MachineFacts) -> Finding:
    noise = facts.noise
    what = f"{noise.busy_share:.0%} busy, load {noise.load_average:g}"
    if noise.steal_share is not None:
        what += f", {noise.steal_share:.0%} stolen by other guests"
    if noise.busy_share > BUSY_SHARE or (noise.steal_share or 0.0) > STEAL_SHARE:
        return Finding("load", "warning", what, "end other work, or expect wide intervals")
    return Finding("load", "ok", what)


def _examine_container(facts: MachineFacts) -> Finding:
    what = f"looks like {facts.container}" if facts.container else "none"
    if facts.devices_managed:
        return Finding("container", "ok", what)
    what += "; without /run/udev, where kvikio falls back to POSIX in silence unless compat mode is OFF"
    if not facts.gpus:
        return Finding("container", "ok", what)
    remedy = "docker run -v /run/udev:/run/udev:ro" if facts.container else "start udev"
    return Finding("container", "warning", what, remedy)


def _examine_cuda() -> Iterator[Finding]:
    count = torch.cuda.device_count()
    yield Finding("torch device", "ok", f"cuda, {count} visible, torch {torch.__version__}")
    if torch.backends.cuda.is_flash_attention_available():
        yield Finding("sdpa", "ok", "torch has its flash kernel for CUDA")
    else:
        remedy = "install a CUDA build of torch that has it"
        yield Finding("sdpa", "warning", "torch was built without its flash kernel: prefill is slow", remedy)


def _examine_cpu(facts: MachineFacts) -> Iterator[Finding]:
    threads = torch.get_num_threads()
    yield Finding("torch device", "ok", f"cpu, {threads} threads, torch {torch.__version__}")
    yield Finding("sdpa", "ok", "torch's kernels for the CPU")
    fast = sorted(BF16_ISA & set(facts.isa))
    if fast:
        yield Finding("bfloat16", "ok", f"the CPU has {', '.join(fast)}")
    else:
        what = "the CPU multiplies bfloat16 without hardware help: prefill is slow"
        yield Finding("bfloat16", "warning", what, "measure with float32, whose KV is twice as large")


def _examine_gpus(gpus: tuple[GpuFacts, ...]) -> Iterator[Finding]:
    if not gpus:
        yield Finding("gpu", "skipped", "no NVIDIA driver answers", "measure on the CPU, or install a driver")
    elif not torch.cuda.is_available():
        yield Finding("gpu", "warning", "this torch cannot use the GPU", "install a CUDA build of torch")
    for gpu in gpus:
        memory = "unified memory" if gpu.memory_bytes is None else format_bytes(gpu.memory_bytes)
        what = f"{gpu.name}, {memory}, driver {gpu.driver}{', MIG' if gpu.mig else ''}"
        if gpu.throttle_reasons:
            reasons = ", ".join(gpu.throttle_reasons)
            yield Finding("gpu", "warning", f"{what}, slowed by {reasons}", "nvidia-smi -q -d PERFORMANCE")
        else:
            yield Finding("gpu", "ok", what)
