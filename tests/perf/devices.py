"""Which dtypes are worth measuring on this device."""

import time
from functools import cache

from bench.measure.setup import resolve_plan
from bench.measure.worker.model_session import ModelSession, open_model_session
from bench.measure.worker.preflight_checks import SLOW_DTYPE_RATIO, compare_rates, decide_layers
from bench.record.plan import Plan


def open_bench(model: str, dtype: str, *, tokens: int, layers: str) -> ModelSession:
    """A model under the plan's defaults, with room for `tokens`."""
    plan = Plan.model_validate({"model": model, "dtype": dtype, "layers": layers})
    setup = resolve_plan(plan)
    built = decide_layers(setup, (tokens,))
    return open_model_session(setup, layers=built, longest=tokens, now_s=time.monotonic, seed=0)


@cache
def has_bfloat16() -> bool:
    """True where the device multiplies bfloat16 in hardware; emulated, a benchmark takes an hour."""
    rates = compare_rates(open_bench("qwen3-0.6b", "bfloat16", tokens=64, layers="fit"))
    return rates["bfloat16"] >= SLOW_DTYPE_RATIO * rates["float32"]
