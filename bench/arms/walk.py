"""Which files come next, so that a run does not read the same bytes twice."""

from bench.arms.case import Case
from kvio.backends.protocol import KVIOError


class FreshWalk:
    """Walks through the files of a store, round and round.

    Args:
        num_files: files there are.
        first: where to begin; a later round begins where the earlier one ended.
    """

    def __init__(self, num_files: int, first: int = 0) -> None:
        self._num_files = num_files
        self._next = first % max(num_files, 1)
        self._taken: set[int] = set()

    @property
    def next_file(self) -> int:
        """Where the next walk would begin."""
        return self._next

    def take(self, count: int) -> tuple[tuple[int, ...], bool]:
        """The next `count` files, all different, and True if any of them was given before.

        Raises:
            KVIOError: there are fewer files than that.
        """
        if count > self._num_files:
            raise KVIOError(
                f"{count} different files are needed at once, the store has {self._num_files}; "
                f"write a larger store or measure shorter prefixes"
            )
        found = tuple((self._next + step) % self._num_files for step in range(count))
        again = not self._taken.isdisjoint(found)
        self._taken.update(found)
        if count:
            self._next = (found[-1] + 1) % self._num_files
        return found, again


def tokens_to_load(case: Case) -> tuple[int, int]:
    """First token to load and the first not to: all but the last of the prefix, or the next `suffix_tokens`.

    The prefix's last token is computed by the first-token step, which every arm ends with; the marginal
    question has no such step.
    """
    if case.suffix_tokens:
        return case.prefix_tokens, case.prefix_tokens + case.suffix_tokens
    return 0, case.prefix_tokens - 1
