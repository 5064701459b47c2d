"""Which of a sweep's load series is meant: the only one, the one that was named, or none by itself."""

from collections.abc import Sequence

from bench.estimate.results import Point


def choose_series(names: Sequence[str], asked: str | None) -> str:
    """The series that was asked for, or the only one.

    Raises:
        ValueError: none, several and none named, or none of that name; says which there are.
    """
    found = list(dict.fromkeys(names))
    if asked is None and len(found) == 1:
        return found[0]
    if asked is not None and asked in found:
        return asked
    if not found:
        raise ValueError("no load series was measured")
    wrong = f"no load series {asked!r}" if asked else f"{len(found)} load series"
    raise ValueError(f"{wrong}; choose one with --series: {', '.join(found)}")


def fullest_series(points: Sequence[Point]) -> str | None:
    """The series with the most lengths that both arms measured, the first of equals; for what no load decides."""
    lengths: dict[str, int] = {}
    for point in points:
        both = point.recompute_s is not None and point.load_s is not None
        lengths[point.series] = lengths.get(point.series, 0) + both
    return max(lengths, key=lambda name: lengths[name], default=None)
