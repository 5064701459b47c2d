"""What each notice means for the answer, for a reader who sees its code for the first time."""

EXPLANATIONS: dict[str, str] = {
    "drift": "One arm got slower or faster while the sweep went on, so its rounds do not repeat one another; "
    "heat, SSD housekeeping and neighbours on the machine do this.",
    "lengths_dropped": "Longer prefixes do not fit this machine; the measured range ends below them.",
    "half_line": "The run was killed in mid-write; the half row was dropped and all whole rows were kept.",
    "short_read": "Fewer bytes arrived than were asked for, so the load looks faster than it is.",
    "not_cold": "Bytes came from the page cache although a cold read was asked for; no cold crossover "
    "is derived from such samples.",
    "unverified": "It could not be proved where the bytes came from; they may have come from memory.",
    "implausible_rate": "More bytes per second arrived than the link can carry; some cache answered.",
    "reused_bytes": "The working set is smaller than asked for, so files were read more than once "
    "and a cache in the drive or the host may have answered.",
    "fallback_path": "The bytes took another way than the one asked for; the row names the way they took.",
    "attention_eager": "No fast attention kernel ran, so recompute is slower than in a serving engine and "
    "the crossover lies too low.",
    "moe_random_routing": "With random weights the experts are chosen nearly uniformly; "
    "real routing is less even.",
    "fit_disagrees": "The fitted curves cross outside the interval of the measured points; "
    "the measured points are the answer.",
    "wrong_bytes": "The bytes that arrived did not have the checksum of the bytes that were stored.",
    "few_rounds": "Too few rounds for an interval; the value alone says nothing about its error.",
    "wide_interval": "The interval is wider than was asked for; a longer budget narrows it.",
}
UNKNOWN = "Makes the samples that carry it suspect."


def explain(code: str) -> str:
    """What a notice means; a code without an own explanation gets the general one."""
    return EXPLANATIONS.get(code, UNKNOWN)
