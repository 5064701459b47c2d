"""Multi-round conversations: a made-up trace of users who come back, and what each round costs; modelled.

Every user starts with the same system prompt, then has a history of their own (a document, an earlier
conversation), and in each round asks a question whose prompt repeats everything said before, answers
included.

Source of the shape: LMCache's and vLLM production-stack's multi-round QA benchmark (users x rounds x shared
system prompt x user history).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench.analyse.reuse.read import MOONCAKE_BLOCK_TOKENS
from bench.analyse.reuse.savings import CostCurves, Curve, FloatArray, finish_seconds
from bench.analyse.reuse.simulate import ORIGIN
from bench.analyse.reuse.tiers import Tier, TierHits, simulate_tiers
from bench.analyse.reuse.trace import IntArray, Trace, dense_ids


@dataclass(frozen=True, slots=True)
class MultiRound:
    """A workload of conversations.

    Args:
        num_users: conversations held at the same time.
        num_rounds: questions that each user asks.
        system_tokens: prompt that all users share.
        history_tokens: of each user alone, before the first question.
        question_tokens: of each question.
        answer_tokens: of each answer; part of the next prompt.
        mean_gap_s: between two requests of the whole workload (exponential).
        block_tokens: tokens of a block.
        seed: decides the order of the users within each round and the gaps.
    """

    num_users: int
    num_rounds: int
    system_tokens: int = 1000
    history_tokens: int = 20000
    question_tokens: int = 50
    answer_tokens: int = 100
    mean_gap_s: float = 1.0
    block_tokens: int = MOONCAKE_BLOCK_TOKENS
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"num_users": 1, "num_rounds": 1, "question_tokens": 1, "block_tokens": 1}
        for name in ("system_tokens", "history_tokens", "answer_tokens", *least):
            if getattr(self, name) < least.get(name, 0):
                raise ValueError(f"{name} must be at least {least.get(name, 0)}, got {getattr(self, name)}")
        if not 0 <= self.mean_gap_s < float("inf"):
            raise ValueError(f"mean_gap_s must be finite and not negative, got {self.mean_gap_s}")


@dataclass(frozen=True, slots=True)
class Conversations:
    """The generated trace; `users` and `rounds` say whose request each is, both from 0."""

    trace: Trace
    users: IntArray
    rounds: IntArray


def _prompt_ids(plan: MultiRound, user: int, *, prompt_tokens: int, names: dict[object, int]) -> list[int]:
    """Ids of a prompt's blocks: equal for two prompts where everything up to the block's end is equal."""
    ids = []
    for begin in range(0, prompt_tokens, plan.block_tokens):
        end = min(begin + plan.block_tokens, prompt_tokens)
        owner = None if end <= plan.system_tokens else user
        ids.append(names.setdefault((owner, begin, end), len(names)))
    return ids


def generate_conversations(plan: MultiRound) -> Conversations:
    """The requests of all users, round by round; the same for the same seed."""
    chance = np.random.default_rng(plan.seed)
    names: dict[object, int] = {}
    ids: list[int] = []
    counts: list[int] = []
    users = np.concatenate([chance.permutation(plan.num_users) for _ in range(plan.num_rounds)])
    rounds = np.repeat(np.arange(plan.num_rounds, dtype=np.int64), plan.num_users)
    fixed_tokens = plan.system_tokens + plan.history_tokens + plan.question_tokens
    input_tokens = fixed_tokens + rounds * (plan.question_tokens + plan.answer_tokens)
    for user, tokens in zip(users.tolist(), input_tokens.tolist(), strict=True):
        prompt = _prompt_ids(plan, user, prompt_tokens=tokens, names=names)
        ids.extend(prompt)
        counts.append(len(prompt))
    gaps_s = chance.exponential(plan.mean_gap_s, size=len(counts))
    trace = Trace(
        block_tokens=plan.block_tokens,
        ids=dense_ids(np.array(ids, dtype=np.uint64)),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        input_tokens=input_tokens,
        output_tokens=np.full(len(counts), plan.answer_tokens, dtype=np.int64),
        timestamps_s=np.cumsum(gaps_s) - gaps_s[0],
    )
    return Conversations(trace, users.astype(np.int64), rounds)


def _prefill_seconds(hits: TierHits, curves: CostCurves, loads_s: Mapping[str, Curve]) -> FloatArray:
    """(num_requests,) seconds to the first token when every hit is taken from the tier that holds it."""
    seconds = finish_seconds(hits.input_tokens, hits.hit_tokens.sum(axis=1), curves)
    for column, name in enumerate(hits.names):
        if column > 0:
            seconds = seconds + loads_s[name](hits.hit_tokens[:, column].astype(np.float64))
    return seconds


def round_table(
    conversations: Conversations,
    tiers: Sequence[Tier],
    *,
    curves: CostCurves,
    loads_s: Mapping[str, Curve],
    instances: IntArray | None = None,
) -> pd.DataFrame:
    """Hit ratio and seconds to the first token per round: first tier, first two, and so on; modelled.

    Columns: tiers (such as "gpu+dram"), round (from 1), hit_ratio, prefill_s (mean over users, no queueing).

    Args:
        conversations: the workload.
        tiers: from the top; what the first one holds is in place and costs nothing.
        curves: cost of recomputing.
        loads_s: seconds to bring n tokens from each lower tier, by its name (0 for 0 tokens).
        instances: (num_requests,) as for `simulate_tiers`.
    """
    missing = [tier.name for tier in tiers[1:] if tier.name not in loads_s]
    if missing:
        raise ValueError(f"no load curve for tier {', '.join(missing)}; loads_s has {sorted(loads_s)}")
    tables = []
    for count in range(1, len(tiers) + 1):
        hits = simulate_tiers(conversations.trace, tiers[:count], instances=instances)
        requests = pd.DataFrame(
            {
                "round": conversations.rounds + 1,
                "hits": hits.hit_tokens.sum(axis=1),
                "inputs": hits.input_tokens,
                "prefill_s": _prefill_seconds(hits, curves, loads_s),
            }
        )
        by_round = requests.groupby("round", as_index=False).agg(
            hits=("hits", "sum"), inputs=("inputs", "sum"), prefill_s=("prefill_s", "mean")
        )
        by_round["hit_ratio"] = by_round["hits"] / by_round["inputs"]
        by_round.insert(0, "tiers", "+".join(hits.names))
        tables.append(by_round[["tiers", "round", "hit_ratio", "prefill_s"]])
    table = pd.concat(tables, ignore_index=True)
    table.attrs["origin"] = ORIGIN
    return table
