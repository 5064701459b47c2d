"""One pool for all serving instances, or a pool for each: what each of them holds of every request; modelled.

A pool of one instance sees the requests of that instance alone, so the pools can be simulated apart from each
other, on one machine or on many, and the result is exact.  A pool that instances share is one cache: what it
drops depends on the order of all requests, so it is never split; one worker replays it whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.reuse.eviction import Policy, simulate
from bench.reuse.trace import IntArray, Trace, Unit, select_requests

PoolName = Literal["shared", "per-instance"]
MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class PoolTrace:
    """The requests that one pool serves; `where` are their numbers in the whole trace, None for all."""

    trace: Trace
    where: IntArray | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """How the room is cut: `parts` with requests, of `num_instances` equal pools."""

    name: PoolName
    parts: tuple[PoolTrace, ...]
    num_instances: int = 1

    def capacity_of_each(self, capacity_tokens: int) -> int:
        """Tokens of one pool when all of them together have `capacity_tokens`."""
        return capacity_tokens // self.num_instances


@dataclass(frozen=True, slots=True)
class PoolJob:
    """One policy over the requests of one pool, at several capacities: needs nothing of any other job."""

    part: PoolTrace
    policy: Policy
    capacities_tokens: tuple[int, ...]
    unit: Unit

    def run(self) -> list[IntArray]:
        """(num_requests,) hit tokens for each capacity."""
        return simulate(
            self.part.trace, self.policy, capacities_tokens=self.capacities_tokens, unit=self.unit
        )


Runner = Callable[[Sequence[PoolJob]], Iterable[list[IntArray]]]


def run_here(jobs: Sequence[PoolJob]) -> Iterator[list[IntArray]]:
    """Run the jobs one after the other in this process; results in their order."""
    return (job.run() for job in jobs)


def shared_pool(trace: Trace) -> Pool:
    """One pool that sees every request."""
    return Pool("shared", (PoolTrace(trace),))


def pool_per_instance(trace: Trace, instances: IntArray, num_instances: int) -> Pool:
    """A pool for each instance.

    Args:
        trace: requests in order.
        instances: (num_requests,) the instance of each request, from 0.
        num_instances: pools that share the capacity, those without requests included.
    """
    if len(instances) != trace.num_requests or not 0 <= instances.min() <= instances.max() < num_instances:
        raise ValueError(f"instances must be {trace.num_requests} numbers from 0 to {num_instances - 1}")
    order = np.argsort(instances, kind="stable")
    ends = np.cumsum(np.bincount(instances, minlength=num_instances))
    wheres = [where for where in np.split(order, ends[:-1]) if len(where)]
    return Pool(
        "per-instance",
        tuple(PoolTrace(select_requests(trace, where), where) for where in wheres),
        num_instances,
    )


def pool_jobs(pool: Pool, policy: Policy, *, capacities_tokens: Sequence[int], unit: Unit) -> list[PoolJob]:
    """One job for each part of the pool."""
    each = tuple(pool.capacity_of_each(capacity) for capacity in capacities_tokens)
    return [PoolJob(part, policy, each, unit) for part in pool.parts]


def join_parts(pool: Pool, results: Iterator[list[IntArray]], num_requests: int) -> list[IntArray]:
    """(num_requests,) hit tokens for each capacity, from one result for each part, in order."""
    joined: list[IntArray] = []
    for part in pool.parts:
        hits = next(results)
        if part.where is None:
            return hits
        if not joined:
            joined = [np.zeros(num_requests, dtype=np.int64) for _ in hits]
        for whole, own in zip(joined, hits, strict=True):
            whole[part.where] = own
    return joined


def find_sessions(trace: Trace, num_blocks: int) -> IntArray:
    """(num_requests,) requests with equal first `num_blocks` blocks get equal numbers.

    A trace names no users.  Requests of one conversation agree on its first blocks; those that all
    conversations share (a system prompt) must be fewer than `num_blocks`.
    """
    if num_blocks < 1:
        raise ValueError(f"a session needs at least 1 block to be known by, got {num_blocks}")
    last = np.minimum(trace.starts[:-1] + num_blocks, trace.starts[1:]) - 1
    sessions: IntArray = trace.ids[last].astype(np.int64)
    return sessions


def route_sessions(sessions: IntArray, num_instances: int) -> IntArray:
    """(num_requests,) instances: a session always goes to the same one, which its number decides.

    Source of the mixing function: SplitMix64 (G. L. Steele et al., Fast splittable pseudorandom number
    generators, OOPSLA 2014).
    """
    mixed = sessions.astype(np.uint64)
    for shift, factor in zip((np.uint64(30), np.uint64(27)), MIX, strict=True):
        mixed = (mixed ^ (mixed >> shift)) * factor
    mixed ^= mixed >> np.uint64(31)
    instances: IntArray = (mixed % np.uint64(num_instances)).astype(np.int64)
    return instances


def spread_round_robin(num_requests: int, num_instances: int) -> IntArray:
    """(num_requests,) instances in turn: the routing that knows nothing of prefixes."""
    return np.arange(num_requests, dtype=np.int64) % num_instances
