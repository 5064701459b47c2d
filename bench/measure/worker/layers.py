"""Which layers of the model a sweep builds: decided once, by the preflight, and kept by every round."""

from collections.abc import Sequence
from contextlib import suppress

from bench.arms import ranks as group
from bench.arms.model.build import describe_model
from bench.arms.model.depth_scaling import choose_layers
from bench.arms.model.memory import MemoryShortError, available_bytes
from bench.measure.clock import Clock
from bench.measure.processes.messages import PreflightJob
from bench.measure.setup import Setup
from bench.measure.worker.model_session import DTYPES, Workbench, open_workbench, pick_device


def decide_layers(setup: Setup, lengths: Sequence[int]) -> tuple[int, ...]:
    """Indices of the layers that all processes of a sweep build, from the memory that is free now.

    There is room beside them for the longest of `lengths` that the device holds at all; longer ones are refused
    when they are measured.

    Raises:
        UnsupportedArchitectureError, MemoryShortError
    """
    plan, itemsize = setup.plan, DTYPES[setup.plan.dtype].itemsize
    device = pick_device(plan.device, group.rank(), group.size())
    kinds, elements, fixed = describe_model(setup.model.config, device.type)

    def choose(tokens: int) -> tuple[int, ...]:
        return choose_layers(
            kinds,
            [count * itemsize for count in elements],
            fixed_bytes=fixed * itemsize,
            available_bytes=available_bytes(device),
            choice=plan.layers,
            kv_bytes=setup.layout.bytes_at(tokens + plan.suffix_tokens) // len(kinds),
        )

    def choose_for_longest() -> tuple[int, ...]:
        for tokens in reversed(lengths[1:]):
            with suppress(MemoryShortError):
                return choose(tokens)
        return choose(lengths[0])

    return group.of_first(choose_for_longest)


def build_layers(setup: Setup, job: PreflightJob, clock: Clock) -> Workbench:
    """The model with the layers that the sweep was begun with, else with those that fit now.

    Raises:
        MemoryShortError: they do not fit.
    """
    layers = decide_layers(setup, job.lengths) if job.layers is None else job.layers
    try:
        return open_workbench(
            setup, layers=layers, longest=job.lengths[0], now_s=clock.now_s, seed=job.plan.seed
        )
    except MemoryShortError as error:
        if job.layers is None:
            raise
        lack = str(error).partition("; try")[0]
        raise MemoryShortError(
            f"the {len(layers)} layers that this sweep was begun with do not fit any more: {lack}; "
            "end other work, or sweep again"
        ) from None
