"""Finds reads that are said to be done and are not: a random mark at the end of each destination must be gone."""

import secrets
from collections.abc import Sequence

from kvio.protocol import Read

MARK = secrets.token_bytes(16)  # of this process: that stored bytes end in it by chance does not happen


def mark_ends(reads: Sequence[Read], view: memoryview) -> None:
    """Write the mark where the last bytes of each read are to arrive."""
    for read in reads:
        end = read.buffer_offset + read.num_bytes
        mark = MARK[: read.num_bytes]
        view[end - len(mark) : end] = mark


def find_marked(reads: Sequence[Read], view: memoryview) -> Read | None:
    """The first read whose last bytes never arrived; None when all did."""
    for read in reads:
        end = read.buffer_offset + read.num_bytes
        mark = MARK[: read.num_bytes]
        if mark and view[end - len(mark) : end] == mark:
            return read
    return None
