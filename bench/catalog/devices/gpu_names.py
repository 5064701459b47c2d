"""GPUs by the many ways to write their names: "A100-SXM4-80GB", "NVIDIA H100 PCIe 80GB", "H100 SXM5"."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# words that do not distinguish two GPUs of one name; HBM2e does: the H100 PCIe has it, the SXM does not
FILLER = frozenset({"nvidia", "amd", "geforce", "tesla", "instinct", "gpu", "gpus", "tensor", "core"})
MEMORY_KIND = re.compile(r"hbm3e?|gddr\d*x?")
MEMORY_SIZE = re.compile(r"(\d{1,5})(?:gi?b|g)")
BOARD = re.compile(r"(sxm|pcie)\d*")


@dataclass(frozen=True, slots=True)
class GpuWords:
    """A GPU's name in words that count, and the gigabytes that it names, None where it does not."""

    words: frozenset[str]
    gigabytes: int | None


def read_gpu_words(name: str) -> GpuWords:
    """The words of a name: without the maker, with "SXM5" as "sxm"; PCIe and SXM stay apart."""
    words, gigabytes = set(), None
    for word in re.findall(r"[a-z0-9]+", re.sub(r"(\d)\s+(?=gi?b\b)", r"\1", name.lower())):
        size, board = MEMORY_SIZE.fullmatch(word), BOARD.fullmatch(word)
        if size:
            gigabytes = int(size[1])
        elif word not in FILLER and not MEMORY_KIND.fullmatch(word):
            words.add(board[1] if board else word)
    return GpuWords(frozenset(words), gigabytes)


def match_gpu(name: str, known: Mapping[str, tuple[Iterable[str], Sequence[float]]]) -> str | None:
    """Key of the one GPU that `name` can mean; None where there is none, or several.

    Args:
        known: by key, the names of a GPU and what its sources say of its memory, bytes.
    """
    wanted = read_gpu_words(name)
    found = {key for key, (names, memory) in known.items() if _means(wanted, names, memory)}
    return found.pop() if wanted.words and len(found) == 1 else None


def _means(wanted: GpuWords, names: Iterable[str], memory: Sequence[float]) -> bool:
    sizes = {round(num_bytes / unit) for num_bytes in memory for unit in (1e9, 2**30)}
    for one in map(read_gpu_words, names):
        given = wanted.gigabytes is not None and one.gigabytes is None and wanted.gigabytes in sizes
        if one.words == wanted.words and (given or one.gigabytes == wanted.gigabytes):
            return True
    return False
