"""Where a published row's KV was loaded from, by the words of its tier: host memory, a rate, or why neither is certain."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

COLUMN = "load_bw_gbps_decimal"
NUMBER = r"(?P<number>\d{1,15}(?:\.\d{1,15})?)\s*(?P<prefix>[kKMGT])(?P<binary>i?)"
RATE = re.compile(NUMBER + r"(?P<unit>B)(?:\s*/\s*s(?:ec)?|ps)\b")
RATE_IN_BITS = re.compile(NUMBER + r"(?P<unit>b|bits?)(?:\s*/\s*s(?:ec)?|ps)\b")
BITS_OR_BYTES = re.compile(r"\d\s*[kmgt]i?b(?:its?)?(?:\s*/\s*s|ps)", re.I)
# a link beside a rate in bits: the rate is its line rate, and not what was reached
LINK = re.compile(
    r"ethernet|infiniband|\broce|rdma|\bs?ata\b|\bsas\b|pcie|network|\bnics?\b|link|fabric|-of\b|\btcp\b"
    r"|\bib\b|[hen]dr\b|\bover\b|\bgbe\b|fib(?:re|er)|\befa\b|switch|\b[lw]an\b|\bport\b|usb|thunderbolt",
    re.I,
)
POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
MAX_BYTES_PER_S = 1e18
MEMORY = re.compile(r"\bd?ram\b|\b(?:host|system|main|cpu|pinned)[ -](?:pinned )?memory\b", re.I)
# beside host memory these say that it is not host memory alone, or not this host's
BESIDE_MEMORY = re.compile(
    r"-?less\b|without|remote|rdma|\bssd|nvme|disk|flash|[+/&]|network|ethernet|infiniband|\bcxl\b|\bpool|\bpeer"
    r"|\bother\b|another|tmpfs|redis|mooncake|\btcp\b|(?:gpu|device)[ -](?:d?ram|memory)|\bv?hbm|\bvram\b",
    re.I,
)
LANES = re.compile(r"(?:pcie|gen)[ -]*\d*(?:\.\d)?[ -]*[x×]\s*\d+", re.I)  # a link's width counts no drives
QUALIFIED = re.compile(
    r"\b(?:each|per|every|up to|at (?:most|least)|max(?:imum)?|min(?:imum)?|peak|burst|about|around|approx\w*"
    r"|roughly|nearly|almost|circa)\b|[<>≤≥~≈±]|\+-|\d\s*[x×]|(?<![a-z])[x×]\s*\d"
    r"|\b\d+ (?:drives|ssds|disks|devices)\b",
    re.I,
)
RANGE_BEFORE = re.compile(r"\d\s*(?:[-–—…/+]|\.\.+|to|or|and|through)\s*$|[\d.,]$", re.I)
LIMIT_BEFORE = re.compile(r"\b(?:under|over|below|above|than|exceeding)\s*$", re.I)
LIMIT_AFTER = re.compile(r"^\s*(?:\+|or (?:more|less))", re.I)
MEASURED = re.compile(r"\b(?:measured|reached|achieved)\b", re.I)
PRINTED = re.compile(r"\b(?:spec\w*|data ?sheet|rated|nominal|advertised|theoretical)\b", re.I)
PARTS = re.compile(r"[;(),]|\bvs\b\.?|\bagainst\b")
KIND_OF_DRIVE = re.compile(r"\b(?:nvme|ssd|drive)\b", re.I)


@dataclass(frozen=True, slots=True)
class RowTier:
    """What a row says of its storage.

    Args:
        bytes_per_s: its one rate, None where there is none.
        in_memory: whether the KV lies in host memory and no rate is given.
        doubt: why its words give no rate although they seem to; "" where they do not.
        in_bits: whether the words give the rate in bits.
    """

    bytes_per_s: float | None = None
    in_memory: bool = False
    doubt: str = ""
    in_bits: bool = False


def read_tier(words: str, stated: float | None) -> RowTier:
    """The tier that a row names: the rate of its column, decimal GB/s, goes before all that the words say."""
    if stated is not None:
        return RowTier(stated * 1e9)
    in_bits = RATE.search(words) is None and LINK.search(words) is None
    rate = RATE_IN_BITS if in_bits else RATE
    mentions = list(rate.finditer(words))
    in_memory = MEMORY.search(words) is not None
    beside = BESIDE_MEMORY.search(rate.sub("", words)) if in_memory else None
    if beside is not None:
        why = f"{words!r:.60} is not the memory of the host alone ({beside[0]!r})"
        return RowTier(doubt=f"{why}: give its rate in {COLUMN}")
    if not mentions:
        return RowTier(in_memory=in_memory)
    found = _find_certain(words, mentions, rate)
    if isinstance(found, str):
        return RowTier(doubt=f"{words!r:.60} does not give one plain rate ({found}): give it in {COLUMN}")
    return RowTier(found, in_bits=in_bits)


def format_unstated(words: str) -> str:
    """Why words without a doubt of their own give no rate."""
    found = BITS_OR_BYTES.search(words)
    if found is None:
        return f"the bandwidth of {words or 'the storage'!r:.60} is not stated"
    why = "is the line rate of a link" if RATE_IN_BITS.search(words) else "may be in bits or in bytes"
    return f"{words!r:.60} {why}: give what was reached in {COLUMN}"


def drive_name(words: str) -> str:
    """The words of a tier without what kind of drive it is, to be looked up."""
    return KIND_OF_DRIVE.sub("", words).strip(" ,")


def _find_certain(words: str, mentions: Sequence[re.Match[str]], rate: re.Pattern[str]) -> float | str:
    """Bytes per second of the one rate that is meant, or what makes it uncertain."""
    qualified = QUALIFIED.search(LANES.sub("", words))
    if qualified is not None:
        return repr(qualified[0])
    for mention in mentions:
        before, after = words[: mention.start()], words[mention.end() :]
        limited = RANGE_BEFORE.search(before) or LIMIT_BEFORE.search(before) or LIMIT_AFTER.search(after)
        if limited is not None:
            return repr(limited[0] + mention[0] if limited.string is before else mention[0] + limited[0])
    parts = [(part, found) for part in PARTS.split(words) if (found := list(rate.finditer(part)))]
    if any(len(found) > 1 for _, found in parts):
        return "several rates"
    measured = [found[0] for part, found in parts if MEASURED.search(part)]
    plain = [found[0] for part, found in parts if not PRINTED.search(part) and not MEASURED.search(part)]
    taken = [*measured, *plain]
    if len(taken) != 1:
        return "several rates" if taken else "by its data sheet"
    return _bytes_per_s(taken[0])


def _bytes_per_s(mention: re.Match[str]) -> float | str:
    value = float(mention["number"]) * (1024 if mention["binary"] else 1000) ** POWERS[mention["prefix"]]
    value /= 1 if mention["unit"] == "B" else 8
    return value if 0 < value <= MAX_BYTES_PER_S else repr(mention[0][:20])
