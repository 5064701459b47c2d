"""What `reuse` is asked: capacities, policies, tiers and routing, read from its options and checked.

What `reuse` simulates: a trace from a file or made-up conversations, and where their requests go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from bench.catalog.models.kv_capacity import StoredBytes
from bench.record.plan import PlanError
from bench.record.units import parse_bytes, parse_duration, parse_rate
from bench.reuse.conversations import MIN_VALUES, MultiRound, generate_conversations
from bench.reuse.eviction import Policy, capacity_in_tokens, require_policy
from bench.reuse.fleet import require_ray
from bench.reuse.pools import (
    Pool,
    find_sessions,
    pool_per_instance,
    route_sessions,
    shared_pool,
    spread_round_robin,
)
from bench.reuse.reuse_prices import TieredRate, find_fetches
from bench.reuse.savings import HitPrices
from bench.reuse.tier_hits import CacheTier, WritePolicy, require_tiers
from bench.reuse.trace import IntArray, Trace, Unit, merge_blocks, read_trace

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


WORKLOAD_NAMES = {
    "users": "num_users",
    "rounds": "num_rounds",
    "system": "system_tokens",
    "history": "history_tokens",
    "question": "question_tokens",
    "answer": "answer_tokens",
    "gap": "mean_gap_s",
    "seed": "seed",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """What is simulated; `users` and `rounds` are known of made-up conversations only."""

    trace: Trace
    name: str
    users: IntArray | None = None
    rounds: IntArray | None = None


def read_workload(
    path: Path | None, generate: str | None, *, block_tokens: int, merge: int, skip_bad: bool
) -> Workload:
    """The trace in the file, or the conversations asked for."""
    if (path is None) == (generate is None):
        raise PlanError(
            "name a TRACE or make one with --generate users=50,rounds=10, not both and not neither"
        )
    if block_tokens < 1 or merge < 1:
        raise PlanError(f"--block-tokens and --merge must be at least 1, got {block_tokens} and {merge}")
    if path is not None:
        found = Workload(read_trace(path, block_tokens, skip_bad=skip_bad), path.name)
    else:
        talk = generate_conversations(parse_workload(str(generate), block_tokens))
        found = Workload(talk.trace, f"conversations ({generate})", talk.users, talk.rounds)
    return found if merge == 1 else replace(found, trace=merge_blocks(found.trace, merge))


def parse_workload(text: str, block_tokens: int) -> MultiRound:
    """The workload of "users=50,rounds=10,system=1000,history=20000,question=50,answer=100,gap=1s,seed=0"."""
    asked: dict[str, Any] = {"block_tokens": block_tokens}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in WORKLOAD_NAMES or WORKLOAD_NAMES[name] in asked:
            raise PlanError(
                f"--generate: {part!r} is not one of {', '.join(f'{n}=' for n in WORKLOAD_NAMES)} once"
            )
        try:
            asked[WORKLOAD_NAMES[name]] = parse_duration(value) if name == "gap" else _read_whole(value)
        except (ValueError, OverflowError):
            kind = "a duration such as 500ms or 1s" if name == "gap" else "a whole number"
            raise PlanError(f"--generate: {part!r:.80} is not {kind}") from None
    missing = [name for name in ("users", "rounds") if WORKLOAD_NAMES[name] not in asked]
    if missing:
        raise PlanError(f"--generate needs {' and '.join(f'{name}=' for name in missing)}")
    for name, keyword in WORKLOAD_NAMES.items():
        if keyword in MIN_VALUES and asked.get(keyword, MIN_VALUES[keyword]) < MIN_VALUES[keyword]:
            raise PlanError(
                f"--generate: {name} must be at least {MIN_VALUES[keyword]}, got {asked[keyword]}"
            )
    try:
        return MultiRound(**asked)
    except ValueError as error:
        raise PlanError(f"--generate: {error}") from None


def _read_whole(text: str) -> int:
    """A whole number, also as 1e3.

    Raises:
        ValueError, OverflowError: it is none.
    """
    value = float(text)
    if value != int(value):
        raise ValueError(text)
    return int(value)


def find_instances(workload: Workload, routing: Routing) -> IntArray | None:
    """(num_requests,) the instance of each request; None for a single one."""
    if routing.num_instances == 1:
        return None
    if routing.route == "round-robin":
        return spread_round_robin(workload.trace.num_requests, routing.num_instances)
    known = workload.users
    sessions = find_sessions(workload.trace, routing.session_blocks) if known is None else known
    return route_sessions(sessions, routing.num_instances)


def make_pools(trace: Trace, instances: IntArray | None, num_instances: int) -> tuple[Pool, ...]:
    """One pool, and beside it a pool for each instance when there are several."""
    if instances is None:
        return (shared_pool(trace),)
    return shared_pool(trace), pool_per_instance(trace, instances, num_instances)
