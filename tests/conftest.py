"""Test processes run side by side, so each takes one thread; set before torch is imported."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
