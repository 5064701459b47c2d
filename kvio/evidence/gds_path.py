"""Which path did the bytes of a kvikio read take?  A decision over counters, never over what was asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TypeVar

PROVING_SHARE = 0.98  # of the payload, as in kvio.evidence.cold_evidence
NVFS_UNIT_BYTES = 2**20  # nvidia-fs says whole MiB: nvfs_stats_show() of github.com/NVIDIA/gds-nvidia-fs

# codes of what speaks against a path
PATH_NOTICES = frozenset({"gds_fell_back", "gds_mixed_paths", "gds_unproven", "gds_errors"})


@dataclass(frozen=True, slots=True)
class KvikioReads:
    """What kvikio's monitor saw of all reads of the process, between two moments (`Summary.by_backend`)."""

    posix_bytes: int
    gds_bytes: int
    num_errors: int = 0


@dataclass(frozen=True, slots=True)
class CuFileReads:
    """What cuFile's level-3 statistics saw of all reads of the process, between two moments.

    Args:
        num_bytes: of the basic statistics.
        gpu_bytes: the same, summed over the GPUs; differs when the structure is misread.
        num_p2p, num_nvfs, num_posix: reads by P2PDMA, by nvidia-fs, and by POSIX calls inside cuFile.
        num_unaligned, num_rerouted: reads that took a detour.
    """

    num_bytes: int
    gpu_bytes: int
    num_p2p: int = 0
    num_nvfs: int = 0
    num_posix: int = 0
    num_unaligned: int = 0
    num_rerouted: int = 0
    num_errors: int = 0


@dataclass(frozen=True, slots=True)
class PathCounters:
    """What kvikio, cuFile and nvidia-fs have counted so far, or between two moments; None where nobody does.

    Args:
        compat: kvikio's compatibility mode was asked for.
        nvfs_bytes: that nvidia-fs read, for the whole machine.
    """

    compat: bool
    kvikio: KvikioReads | None
    cufile: CuFileReads | None = None
    nvfs_bytes: int | None = None

    def moved_since(self, before: "PathCounters") -> "PathCounters":
        """Counted between `before` and this."""
        nvfs = (self.nvfs_bytes, before.nvfs_bytes)
        return PathCounters(
            self.compat,
            _difference(self.kvikio, before.kvikio),
            _difference(self.cufile, before.cufile),
            None if nvfs[0] is None or nvfs[1] is None else nvfs[0] - nvfs[1],
        )

    def decide(self, *, payload_bytes: int, device_bytes: int | None) -> tuple[str, tuple[str, ...]]:
        """`decide_path` of a load of so many bytes, of which the drive read `device_bytes`."""
        evidence = PathEvidence(payload_bytes, self.kvikio, self.cufile, self.nvfs_bytes, device_bytes)
        return decide_path(evidence, compat=self.compat)


Counts = TypeVar("Counts", KvikioReads, CuFileReads)


def _difference(after: Counts | None, before: Counts | None) -> Counts | None:
    if after is None or before is None:
        return None
    names = [field.name for field in fields(after)]
    return type(after)(**{name: getattr(after, name) - getattr(before, name) for name in names})


@dataclass(frozen=True, slots=True)
class PathEvidence:
    """All that is known of one load; None where nobody counts.

    Args:
        payload_bytes: that arrived.
        kvikio, cufile: what they counted.
        nvfs_bytes: that nvidia-fs counted, for the whole machine; None: not loaded, or its statistics are off.
        device_bytes: that the drive read.
    """

    payload_bytes: int
    kvikio: KvikioReads | None
    cufile: CuFileReads | None = None
    nvfs_bytes: int | None = None
    device_bytes: int | None = None

    def covers(self, num_bytes: int) -> bool:
        """Whether `num_bytes` account for the payload."""
        return self.payload_bytes > 0 and num_bytes >= PROVING_SHARE * self.payload_bytes


def decide_path(evidence: PathEvidence, *, compat: bool) -> tuple[str, tuple[str, ...]]:
    """The path, and codes (of `PATH_NOTICES`) of what speaks against it.

    One of gds-p2pdma, gds-nvfs, cufile-compat, kvikio-compat; with "-unverified" (of the way that was asked
    for) where the counters are silent, contradict one another or say that there was more than one.

    Args:
        compat: kvikio's compatibility mode was asked for; its name in an unverified path, and nothing else.
    """
    unverified = "kvikio-compat-unverified" if compat else "gds-unverified"
    kvikio = evidence.kvikio
    if kvikio is None or not evidence.covers(kvikio.posix_bytes + kvikio.gds_bytes):
        return unverified, ("gds_unproven",)
    if kvikio.num_errors:
        return unverified, ("gds_errors",)
    if not kvikio.gds_bytes:
        return "kvikio-compat", () if compat else ("gds_fell_back",)
    if kvikio.posix_bytes:
        return unverified, ("gds_mixed_paths",)
    return _decide_cufile(evidence, evidence.cufile)


def _decide_cufile(evidence: PathEvidence, cufile: CuFileReads | None) -> tuple[str, tuple[str, ...]]:
    """Of reads that kvikio handed to cuFile, all of them."""
    if cufile is None or not evidence.covers(cufile.num_bytes):
        if evidence.nvfs_bytes is not None and evidence.covers(evidence.nvfs_bytes + NVFS_UNIT_BYTES):
            path, against = "gds-nvfs", list(_against_drive(evidence))
        else:
            path, against = "gds-unverified", ["gds_unproven"]
    else:
        path = _name_path(cufile)
        against = [*_against_cufile(cufile), *_against_kernel(evidence, path)]
    if path == "cufile-compat" and not against:
        return path, ("gds_fell_back",)
    return ("gds-unverified", tuple(dict.fromkeys(against))) if against else (path, ())


def _name_path(cufile: CuFileReads) -> str:
    """By the largest number of reads; `_against_cufile` stops where there is more than one kind."""
    counts = {"gds-p2pdma": cufile.num_p2p, "gds-nvfs": cufile.num_nvfs, "cufile-compat": cufile.num_posix}
    return max(counts, key=lambda path: counts[path])


def _against_cufile(cufile: CuFileReads) -> Iterator[str]:
    by_dma = cufile.num_p2p + cufile.num_nvfs
    disagree = abs(cufile.num_bytes - cufile.gpu_bytes) > (1 - PROVING_SHARE) * cufile.num_bytes
    if disagree or not (by_dma or cufile.num_posix):
        yield "gds_unproven"
    if cufile.num_posix and by_dma:
        yield "gds_mixed_paths"
    if cufile.num_p2p and cufile.num_nvfs:
        yield "gds_mixed_paths"
    if cufile.num_unaligned and by_dma:
        yield "gds_mixed_paths"
    if cufile.num_rerouted and by_dma:
        yield "gds_mixed_paths"
    if cufile.num_errors:
        yield "gds_errors"


def _against_kernel(evidence: PathEvidence, path: str) -> Iterator[str]:
    nvfs = evidence.nvfs_bytes
    if path == "gds-nvfs" and nvfs is not None and not evidence.covers(nvfs + NVFS_UNIT_BYTES):
        yield "gds_unproven"
    if path != "cufile-compat":
        yield from _against_drive(evidence)


def _against_drive(evidence: PathEvidence) -> Iterator[str]:
    if evidence.device_bytes is not None and not evidence.covers(evidence.device_bytes):
        yield "gds_unproven"
