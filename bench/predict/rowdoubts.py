"""What the words of a published row say against comparing it with one request on an idle machine."""

import re
from collections.abc import Iterator

SEVERAL = (  # "of 8", "= 8", "8", but not 1, and not the bytes of a block
    r"(?:\s*(?:level|size|of|is|was|set to|[=:(]))*\s*(?![01]\b)\d+\b(?!\s*[kmg]i?b?\b)"
)
LOADED = re.compile(
    r"(?<!not )under load|\bproduction\b(?![ _-]?stack)|(?<![a-z])(?:qps|rps)\b"
    r"|\breq(?:uest)?s?\.? ?(?:per|/) ?s(?:ec(?:onds?)?)?\b"
    rf"|(?<![a-z])(?:concurrency|batch|batch[ _-]?size|bs)[ _-]?{SEVERAL}"
    r"|\b(?![01]\b)\d+[ -](?:way )?(?:concurren(?:t|cy)|parallel|simultaneous|clients|users)\b",
    re.I,
)
SHARE = r"(?<![\d.])(?!(?:100|0)(?:\.0+)? ?%)\d+(?:\.\d+)? ?%"  # neither all nor nothing
PARTLY = re.compile(rf"(?:hit|reuse)s?(?: rate| ratio)?\W{{0,3}}{SHARE}|{SHARE} (?:hit|reuse)", re.I)
DOUBTED = re.compile(r"uncertain reading|do not pool|not the same software path", re.I)


def find_doubts(words: str) -> Iterator[str]:
    """Why the times of a row with these words are not those of a whole prefix on an idle machine."""
    loaded, doubted, partly = LOADED.search(words), DOUBTED.search(words), PARTLY.search(words)
    if loaded:
        yield f"measured under load ({loaded[0]}); the model is of one request on an idle machine"
    if partly:
        yield f"only a part of the prefix was reused ({partly[0]})"
    if doubted:
        yield f"the row doubts itself ({doubted[0]})"
