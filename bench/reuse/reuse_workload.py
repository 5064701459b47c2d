"""What `reuse` simulates: a trace from a file or made-up conversations, and where their requests go."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.record.plan import PlanError
from bench.record.units import parse_duration
from bench.reuse.conversations import MIN_VALUES, MultiRound, generate_conversations
from bench.reuse.pools import (
    Pool,
    find_sessions,
    pool_per_instance,
    route_sessions,
    shared_pool,
    spread_round_robin,
)
from bench.reuse.read_trace import read_trace
from bench.reuse.reuse_scenario import Routing
from bench.reuse.trace import IntArray, Trace, merge_blocks

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


def format_routing(routing: Routing, *, tiers: bool) -> Iterator[str]:
    """How requests reach instances, when there are several."""
    whose = "of each instance, or of the one pool when shared" if tiers else "of all together"
    if routing.num_instances > 1:
        yield f"{routing.num_instances} instances, routed by {routing.route}; a capacity is that {whose}"
