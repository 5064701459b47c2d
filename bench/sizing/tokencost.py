"""What a million reused tokens cost from DRAM, from SSD, or computed again; modelled from the user's prices.

The question is that of the five-minute rule: what is kept must be asked for often enough to pay for its place.

Source: Gray and Putzolu, "The 5 Minute Rule for Trading Memory for Disc Accesses" (SIGMOD 1987).
"""

from dataclasses import dataclass

from bench.record.validate import require_positive, require_share
from bench.sizing.drives import DAY_S, YEAR_DAYS
from bench.sizing.size_scenario import PriceSpec

MILLION = 1_000_000
GB = 1e9
DRAM, SSD = "DRAM", "SSD"


@dataclass(frozen=True, slots=True)
class StorageTierCost:
    """One medium that keeps KV.

    Args:
        name: what a table calls it.
        price_per_gb: of a decimal GB, in the user's currency.
        lifetime_years: over which the price is written off.
        occupancy: share of what was bought that holds KV, above 0 and at most 1.
    """

    name: str
    price_per_gb: float
    lifetime_years: float
    occupancy: float

    def __post_init__(self) -> None:
        require_positive(f"price of a GB of {self.name}", self.price_per_gb)
        require_positive(f"lifetime of {self.name}", self.lifetime_years, unit="years")
        require_share("occupancy", self.occupancy, zero=False)

    def token_day_cost(self, token_bytes: float) -> float:
        """Cost of keeping one token for a day: price x bytes / occupancy / days of life."""
        return self.price_per_gb * token_bytes / GB / self.occupancy / (self.lifetime_years * YEAR_DAYS)

    def reused_cost(self, token_bytes: float, reuses_per_day: float) -> float:
        """Cost of a million reused tokens: what a token-day costs / reuses of each stored token per day x 1e6."""
        require_positive("reuses per day", reuses_per_day)
        return self.token_day_cost(token_bytes) / reuses_per_day * MILLION

    def break_even_reuses_per_day(self, token_bytes: float, recompute_cost: float) -> float:
        """Reuses of each stored token per day at which keeping costs as much as computing a million again."""
        return self.token_day_cost(token_bytes) * MILLION / recompute_cost


def recompute_cost(gpu_seconds_per_token: float, price_per_gpu_hour: float) -> float:
    """Cost of computing a million tokens again: GPU-seconds x price of an hour / 3600 x 1e6.

    Only the GPUs' time counts; while KV comes in they may serve others, so loading is charged none.
    """
    require_positive("price of a GPU-hour", price_per_gpu_hour)
    return gpu_seconds_per_token * price_per_gpu_hour / 3600 * MILLION


def reuses_per_day(hit_tokens_per_s: float, stored_tokens: float) -> float:
    """How often each stored token is reused in a day: tokens found per day / tokens stored."""
    require_positive("stored tokens", stored_tokens)
    return hit_tokens_per_s * DAY_S / stored_tokens


def find_media(prices: PriceSpec, occupancy: float) -> tuple[StorageTierCost, ...]:
    """The media that have a price."""
    named = ((DRAM, prices.dram_gb), (SSD, prices.ssd_gb))
    return tuple(
        StorageTierCost(name, price, prices.lifetime_years or 0.0, occupancy)
        for name, price in named
        if price is not None
    )
