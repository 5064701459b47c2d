"""What `reuse` is asked: capacities, policies, tiers and routing, read from its options and checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from bench.catalog.models.kv_capacity import StoredBytes
from bench.record.plan import PlanError
from bench.record.units import parse_bytes, parse_rate
from bench.reuse.eviction import Policy, capacity_in_tokens, require_policy
from bench.reuse.fleet import require_ray
from bench.reuse.reuse_prices import TieredRate, find_fetches
from bench.reuse.savings import HitPrices
from bench.reuse.tier_hits import CacheTier, WritePolicy, require_tiers
from bench.reuse.trace import Unit

FIGURE_FORMS = (".png", ".svg", ".pdf")
MAX_INSTANCES = 100_000


@dataclass(frozen=True, slots=True)
class Routing:
    """How requests reach instances: a session always the same one, or all in turn."""

    num_instances: int = 1
    route: str = "session"
    session_blocks: int = 2


@dataclass(frozen=True, slots=True)
class Question:
    """Everything asked, beside the workload; `capacities_tokens` is None when we choose them."""

    stored: StoredBytes
    prices: HitPrices | None
    unit: Unit
    policies: tuple[Policy, ...]
    capacities_tokens: tuple[int, ...] | None
    tiers: tuple[TieredRate, ...]
    routing: Routing
    fleet: str | None


def require_fitting(question: Question, plot: Path | None, *, is_made_up: bool) -> None:
    """Stop on options that do not go together, before the trace is read."""
    routing = question.routing
    if not 1 <= routing.num_instances <= MAX_INSTANCES:
        raise PlanError(f"--instances must be between 1 and {MAX_INSTANCES}, got {routing.num_instances}")
    if routing.route not in {"session", "round-robin"}:
        raise PlanError(f"--route must be session or round-robin, got {routing.route!r}")
    if routing.session_blocks < 1:
        raise PlanError(f"--session-blocks must be at least 1, got {routing.session_blocks}")
    if question.fleet is not None:
        require_ray()
    if plot is not None and question.capacities_tokens is not None and not any(question.capacities_tokens):
        raise PlanError("--plot draws over the capacity on a log scale: ask for one above 0")
    if question.tiers:
        _require_fitting_tiers(question, plot, is_made_up=is_made_up)


def _require_fitting_tiers(question: Question, plot: Path | None, *, is_made_up: bool) -> None:
    if question.capacities_tokens is not None:
        raise PlanError("tiers have their own capacities: leave --capacity or --tier out")
    if question.policies != ("lru",) or question.unit != "tokens":
        raise PlanError("tiers are LRU caches counted in tokens: leave --policy and --unit, or --tier, out")
    if question.fleet is not None:
        raise PlanError(
            "tiers hand blocks to each other, so they run in one process: leave --ray or --tier out"
        )
    if plot is not None and not is_made_up:
        raise PlanError("tiers are drawn over the rounds of --generate; a trace has none: leave --plot out")
    try:
        require_tiers([tier for tier, _ in question.tiers])
    except ValueError as error:
        raise PlanError(str(error)) from None
    find_fetches(question.tiers, question.prices, question.stored)


def require_unit(text: str) -> Unit:
    """The unit of this name."""
    for unit in get_args(Unit):
        if unit == text:
            return unit  # type: ignore[no-any-return]
    raise PlanError(f"--unit must be tokens or blocks, got {text!r}")


def parse_policies(text: str) -> tuple[Policy, ...]:
    """The policies of "lru,optimal"."""
    try:
        return tuple(dict.fromkeys(require_policy(name.strip()) for name in text.split(",")))
    except ValueError as error:
        raise PlanError(f"--policy: {error}") from None


def parse_capacities(text: str, kv_bytes_per_token: float | None) -> tuple[int, ...] | None:
    """Tokens of "1e6,100GB", each once and in the order given; None for "auto"."""
    if text == "auto":
        return None
    return tuple(dict.fromkeys(parse_capacity(part.strip(), kv_bytes_per_token) for part in text.split(",")))


def parse_capacity(text: str, kv_bytes_per_token: float | None, *, flag: str = "--capacity") -> int:
    """Tokens of "1e6" (tokens) or "100GB" (bytes, which need the KV bytes of a token)."""
    try:
        tokens = float(text)
    except ValueError:
        tokens = None
    try:
        if tokens is not None:
            return capacity_in_tokens(tokens)
        num_bytes = parse_bytes(text)
        if kv_bytes_per_token is None:
            raise PlanError(
                f"{text!r} is in bytes: say how many a token takes with --model or --bytes-per-token"
            )
        return capacity_in_tokens(num_bytes, kv_bytes_per_token)
    except ValueError as error:
        raise PlanError(f"{flag}: {error}; tokens are a number such as 3e6") from None


def parse_tiers(texts: Sequence[str], kv_bytes_per_token: float | None) -> tuple[TieredRate, ...]:
    """The tiers, from the top."""
    return tuple(parse_tier(text, kv_bytes_per_token) for text in texts)


def parse_tier(text: str, kv_bytes_per_token: float | None) -> TieredRate:
    """The tier of "ssd=100e6:back:shared:3GB/s", and its rate in bytes per second."""
    name, equals, rest = text.partition("=")
    size, *words = rest.split(":")
    if not (name.strip() and equals and size.strip()):
        raise PlanError(f"--tier {text!r}: write NAME=CAPACITY, such as ssd=100e6:back:shared:3GB/s")
    write: WritePolicy = "through"
    shared, rate = False, None
    for word in words:
        if word in get_args(WritePolicy):
            write = word  # type: ignore[assignment]
        elif word == "shared":
            shared = True
        else:
            try:
                rate = parse_rate(word)
            except ValueError:
                raise PlanError(
                    f"--tier {text!r}: {word!r} is none of through, back, selective, shared, or a rate like 3GB/s"
                ) from None
    capacity_tokens = parse_capacity(size, kv_bytes_per_token, flag=f"--tier {name.strip()}")
    return CacheTier(name.strip(), capacity_tokens, write, shared), rate


def require_outputs(csv: Path | None, plot: Path | None) -> None:
    """Stop before the work when an output has nowhere to go, or a form that is not known."""
    for path in (csv, plot):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise PlanError(
                f"{path}: cannot be written there: its folder is missing, or it is a folder itself"
            )
    if plot is not None and plot.suffix not in FIGURE_FORMS:
        raise PlanError(f"--plot {plot}: the name must end in one of {', '.join(FIGURE_FORMS)}")
