"""Multi-round conversations: a made-up trace of users who come back.

Every user starts with the same system prompt, then has a history of their own (a document, an earlier
conversation), and in each round asks a question whose prompt repeats everything said before, answers
included.

Source of the shape: LMCache's and vLLM production-stack's multi-round QA benchmark (users x rounds x shared
system prompt x user history).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.reuse.trace import MOONCAKE_BLOCK_TOKENS, IntArray, Trace, dense_ids

MIN_VALUES = {
    **{"num_users": 1, "num_rounds": 1, "system_tokens": 0, "history_tokens": 0},
    **{"question_tokens": 1, "answer_tokens": 0, "block_tokens": 1, "seed": 0},
}
MAX_REFERENCES = 200_000_000  # about 5 GB while they are made


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
        for name, least in MIN_VALUES.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        longest = self.system_tokens + self.history_tokens
        longest += self.num_rounds * (self.question_tokens + self.answer_tokens)
        most = self.num_users * self.num_rounds * -(-longest // self.block_tokens)
        if most > MAX_REFERENCES:
            raise ValueError(
                f"up to {most} block references, more than {MAX_REFERENCES}: fewer users or rounds"
            )
        if not 0 <= self.mean_gap_s < float("inf"):
            raise ValueError(f"mean_gap_s must be finite and not negative, got {self.mean_gap_s}")

    def prompt_tokens(self, rounds: IntArray) -> IntArray:
        """Tokens of a prompt in each of these rounds, from 0."""
        fixed = self.system_tokens + self.history_tokens + self.question_tokens
        return fixed + rounds * (self.question_tokens + self.answer_tokens)


@dataclass(frozen=True, slots=True)
class Conversations:
    """The generated trace; `users` and `rounds` say whose request each is, both from 0."""

    trace: Trace
    users: IntArray
    rounds: IntArray


def _prompt_ids(
    plan: MultiRound, users: IntArray, *, rounds: IntArray, counts: IntArray
) -> NDArray[np.uint64]:
    """(num_references,) ids of all prompts' blocks: equal where everything up to the block's end is equal.

    Whole blocks inside the system prompt are named by their place, those after it by user and place, and a
    partial last one by user and round.
    """
    shared = plan.system_tokens // plan.block_tokens
    whole = int(counts.max())
    request = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(request)) - (np.cumsum(counts) - counts)[request]
    ids = shared + users[request] * whole + place
    ids[place < shared] = place[place < shared]
    last = np.cumsum(counts) - 1
    partial = plan.prompt_tokens(rounds) % plan.block_tokens > 0
    ids[last[partial]] = shared + plan.num_users * whole + (users * plan.num_rounds + rounds)[partial]
    return ids.astype(np.uint64)


def generate_conversations(plan: MultiRound) -> Conversations:
    """The requests of all users, round by round; the same for the same seed."""
    chance = np.random.default_rng(plan.seed)
    users = np.concatenate([chance.permutation(plan.num_users) for _ in range(plan.num_rounds)])
    rounds = np.repeat(np.arange(plan.num_rounds, dtype=np.int64), plan.num_users)
    input_tokens = plan.prompt_tokens(rounds)
    counts = -(-input_tokens // plan.block_tokens)
    gaps_s = chance.exponential(plan.mean_gap_s, size=len(counts))
    trace = Trace(
        block_tokens=plan.block_tokens,
        ids=dense_ids(_prompt_ids(plan, users, rounds=rounds, counts=counts)),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        input_tokens=input_tokens,
        output_tokens=np.full(len(counts), plan.answer_tokens, dtype=np.int64),
        timestamps_s=np.cumsum(gaps_s) - gaps_s[0],
    )
    return Conversations(trace, users.astype(np.int64), rounds)
