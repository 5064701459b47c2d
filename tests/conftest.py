"""Test processes run side by side, so each takes one thread; set before torch is imported."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: what they hold may differ between processes, and a test's name may not."""
    return argname if isinstance(val, bytes) else None
