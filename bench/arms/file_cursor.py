"""Which files come next, so that a run does not read the same bytes twice."""

from dataclasses import dataclass

from bench.record.sample import Case
from kvio.protocol import KVIOError
from kvio.store.chunk_store import ChunkStore


class FileCursor:
    """Walks through the files of a store, round and round.

    Args:
        num_files: files there are.
        num_taken: files that were taken before, from the first one on: a later process continues there.
    """

    def __init__(self, num_files: int, num_taken: int = 0) -> None:
        self._num_files = num_files
        self.num_taken = num_taken
        self._taken: set[int] = set()

    @property
    def next_file(self) -> int:
        """Where the next walk would begin."""
        return self.num_taken % max(self._num_files, 1)

    def take(self, count: int) -> tuple[tuple[int, ...], bool]:
        """The next `count` files, all different, and True if this walk has given any of them before.

        Raises:
            KVIOError: there are fewer files than that.
        """
        if count > self._num_files:
            raise KVIOError(
                f"{count} different files are needed at once, the store has {self._num_files}; "
                f"write a larger store or measure shorter prefixes"
            )
        found = tuple((self.num_taken + step) % self._num_files for step in range(count))
        again = not self._taken.isdisjoint(found)
        self._taken.update(found)
        self.num_taken += count
        return found, again


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """Files of a store that a run has taken so far, one after another; more than there are: some again."""

    chunks: int = 0
    states: int = 0


class StoreCursor:
    """The walk through a store's files that all its readers share, so that none reads what another has just read.

    Args:
        store: with its files.
        taken: by earlier processes of the run.
    """

    def __init__(self, store: ChunkStore, taken: CursorPosition = CursorPosition()) -> None:
        self.chunks = FileCursor(store.num_chunks, taken.chunks)
        self.states = FileCursor(store.num_states, taken.states)

    @property
    def taken(self) -> CursorPosition:
        """Files taken so far, those of earlier processes included."""
        return CursorPosition(self.chunks.num_taken, self.states.num_taken)


def tokens_to_load(case: Case) -> tuple[int, int]:
    """First token to load and the first not to: all but the last of the prefix, or the next `suffix_tokens`.

    The prefix's last token is computed by the first-token step, which every arm ends with; the marginal
    question has no such step.
    """
    if case.suffix_tokens:
        return case.prefix_tokens, case.prefix_tokens + case.suffix_tokens
    return 0, case.prefix_tokens - 1
