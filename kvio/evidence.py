"""Which path did the bytes take, and was the page cache cold?  Decided from counters, never from wishes."""

from typing import Literal

CacheState = Literal["cold", "warm", "direct", "unverified"]
