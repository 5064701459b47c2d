"""Notices: what can make a result suspect, of which kind it is, and what each kind means for the answer."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

# run: stands as long as the result; part: found anew when a sweep is resumed;
# round: stands until the resumed sweep has measured again
Lifetime = Literal["run", "part", "round"]

SERIES_FAILED = "series_failed"
SERIES_CHECK_FAILED = "series_check_failed"
NOTHING_MEASURED = "nothing_measured"
BACKEND_UNAVAILABLE = "backend_unavailable"


@dataclass(frozen=True, slots=True)
class NoticeKind:
    """What one kind of notice means for the answer: effect, cause, remedy."""

    meaning: str
    suspect: bool = True  # makes the answer suspect (exit code 3)
    lifetime: Lifetime = "run"


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Notice:
    """One thing noticed of a run or of one of its series."""

    kind: str  # a key of `KINDS`
    series: str | None = None  # None: it concerns all series
    detail: str = ""

    @property
    def suspect(self) -> bool:
        """True when it makes the answer suspect."""
        return kind_of(self.kind).suspect

    @property
    def text(self) -> str:
        """The series and the detail, for people."""
        return f"{self.series}: {self.detail}" if self.series is not None else self.detail


KINDS: dict[str, NoticeKind] = {
    # the model and its kernels
    "attention_unfused": NoticeKind(
        "Recompute is slower than in a serving engine. No fused attention kernel ran for this model. "
        "Use a GPU and a model that have one."
    ),
    "attention_whole": NoticeKind(
        "Recompute is slower than in an engine with as many ranks. Every rank computed the whole attention. "
        "Compare with --tp 1."
    ),
    "moe_random_routing": NoticeKind(
        "Experts are used more evenly than by real text. Random weights route nearly uniformly. "
        "Use --weights with a checkpoint.",
        suspect=False,
    ),
    "slow_dtype": NoticeKind(
        "Recompute is slower than it needs to be. This device has no fast hardware for the dtype. "
        "Compare with --dtype float32.",
        suspect=False,
        lifetime="part",
    ),
    "ranks_share_cores": NoticeKind(
        "Recompute is too slow. There are more ranks than CPU cores, so ranks take turns. Use fewer ranks."
    ),
    "mfu_above_one": NoticeKind(
        "MFU is meaningless. Recompute exceeded the matrix rate measured in its rounds, which was disturbed. "
        "Rerun on an idle machine.",
        suspect=False,
    ),
    "scaling_unchecked": NoticeKind(
        "The error of scaling a few layers is unknown. The preflight ran out of time. Increase --budget.",
        lifetime="part",
    ),
    "scaling_impossible": NoticeKind(
        "The error of scaling a few layers is unknown. No deeper stack fits into memory to check it. "
        "Use a device with more memory."
    ),
    "scaling_error": NoticeKind(
        "Recompute is uncertain. A few layers, scaled, predicted a deeper stack badly. Build more layers."
    ),
    "mixed_depths": NoticeKind(
        "Recompute is uncertain. Rounds of different depths, each with its own scaling error, are pooled. "
        "Sweep again."
    ),
    # checks
    "wrong_answer": NoticeKind(
        "Trust no number. After a load the model does not give the logits of recompute. "
        "Report the backend and the layout."
    ),
    "blind_answer_check": NoticeKind(
        "The answer is unproven. The check cannot see chunks in the wrong places. Use longer prompts or real weights."
    ),
    "answer_unchecked": NoticeKind(
        "The logits after a load were not compared with recompute. The preflight ran out of time; "
        "bytes are compared all the same. Increase --budget.",
        lifetime="part",
    ),
    "check_failed": NoticeKind(
        "Trust no number. A recorded check did not pass. Find the cause and sweep again."
    ),
    # what was not measured
    "length_refused": NoticeKind(
        "The measured range ends below these lengths. They do not fit the machine. Use fewer layers or more memory.",
        lifetime="part",
    ),
    "lengths_dropped": NoticeKind(
        "The measured range ends below this length. Longer prefixes ran out of memory. "
        "Use fewer layers or more memory.",
        lifetime="round",
    ),
    "files_cut": NoticeKind(
        "Files are read again sooner. Writing all of them would take too much of the budget. Increase --budget.",
        suspect=False,
    ),
    "budget_left": NoticeKind(
        "Some of the budget is unused. Another round does not fit into the rest. Increase --budget.",
        suspect=False,
        lifetime="part",
    ),
    "unmeasured": NoticeKind(
        "The answer does not cover these lengths or this series. The sweep ended before their first sample. "
        "Increase --budget.",
        lifetime="part",
    ),
    NOTHING_MEASURED: NoticeKind(
        "There is no answer. The budget was too small for one sample of each arm. Increase --budget.",
        lifetime="part",
    ),
    BACKEND_UNAVAILABLE: NoticeKind(
        "This backend was not measured. It is unavailable here. Install what it needs.", suspect=False
    ),
    "series_skipped": NoticeKind(
        "This series was not measured. The machine or the model does not allow it. The other series are valid.",
        suspect=False,
        lifetime="part",
    ),
    "no_load_series": NoticeKind(
        "There is no crossover. No load series was measured. Sweep with a backend that works here."
    ),
    "unknown_series": NoticeKind(
        "Samples of this series were not judged by their settings. run.json does not name the series. "
        "Use run.json and samples.csv of one sweep."
    ),
    # failures
    "failed": NoticeKind(
        "The sweep stopped early; earlier samples are valid. It failed. Resume it.", lifetime="round"
    ),
    SERIES_FAILED: NoticeKind(
        "This series has no later samples; earlier ones are valid. It failed during the sweep. "
        "Fix the cause and resume.",
        lifetime="round",
    ),
    SERIES_CHECK_FAILED: NoticeKind(
        "This series was not measured. Its check failed before the rounds. Fix the cause and resume.",
        lifetime="part",
    ),
    "search_failed": NoticeKind(
        "This series used the defaults of its layout. The search for threads, depth and request size failed. "
        "Sweep again."
    ),
    "round_stopped": NoticeKind(
        "The rest of a round is missing. Its process hung past the deadline and was ended. "
        "Check the drive, the server and the load of the machine."
    ),
    "half_line": NoticeKind(
        "The last row of samples.csv was dropped. The run was killed while writing it. No action is needed.",
        suspect=False,
    ),
    "objects_left": NoticeKind(
        "Objects still take room in the store. They could not be removed. The next run here removes them.",
        suspect=False,
    ),
    "other_revision": NoticeKind(
        "Rounds may differ. The sweep was resumed with other code. Sweep again to have one revision."
    ),
    # interference
    "busy_machine": NoticeKind(
        "Intervals may be wide. Other processes used the CPU during the sweep. Stop other work and rerun."
    ),
    "another_run": NoticeKind(
        "Times are disturbed. Another sweep used the same folder at the same time. Run one sweep at a time."
    ),
    "drive_shared": NoticeKind(
        "Loads may be too slow. Another process used the drive. Stop other work and rerun."
    ),
    # samples that do not count
    "wrong_bytes": NoticeKind(
        "These samples are excluded. The bytes that arrived do not have the stored checksum. "
        "Report the backend, and check the drive."
    ),
    "unchecked_bytes": NoticeKind(
        "These samples are excluded. The bytes that arrived were not compared with the store. Sweep again."
    ),
    "not_cold": NoticeKind(
        "These samples are excluded from a cold answer. The bytes are not proved to come from storage. "
        "Use --data-dir on a local disk."
    ),
    "label_disproved": NoticeKind(
        "These samples are excluded. Rows are labelled cold or direct, but their counters disprove it. Sweep again."
    ),
    "above_limit": NoticeKind(
        "These samples are excluded. A short read was faster than the kernel's limit. Use longer prefixes."
    ),
    "seldom_usable": NoticeKind(
        "This length is excluded. Most of its rounds have no valid load sample. Remove the cause of the exclusions."
    ),
    # where the bytes came from
    "warm": NoticeKind(
        "Storage was not measured. The page cache served the bytes, as requested. Use a cold cache state."
    ),
    "partly_warm": NoticeKind(
        "Storage was measured in part. Some bytes were in the page cache before the read. Stop other readers."
    ),
    "partly_counted": NoticeKind(
        "Storage was measured in part. The kernel fetched only some of the bytes; the page cache had the rest. "
        "Stop other readers of the same files."
    ),
    "below_page_cache": NoticeKind(
        "Storage was not measured. A cache between kernel and device answered. Use --data-dir on a local disk."
    ),
    "storage_unproved": NoticeKind(
        "These samples are excluded. No read on this storage can be proved cold or direct. "
        "Use --data-dir on a local disk."
    ),
    "counters_missing": NoticeKind(
        "The read is unproven. No kernel counter covers this storage (loop device, some file systems), or another "
        "process fetched the bytes. Use --data-dir on a local disk."
    ),
    "device_counter_missing": NoticeKind(
        "The read is less certain. No device counter confirms the counter of the process. "
        "Use --data-dir on a local disk."
    ),
    "residency_unknown": NoticeKind(
        "The read is less certain. Neither cachestat nor mincore reports the page cache here. Use a newer kernel."
    ),
    "device_in_memory": NoticeKind(
        "Storage was not measured. The device of the files is itself memory. Use --data-dir on a local disk."
    ),
    "device_on_network": NoticeKind(
        "The read is unproven. A server over the network may have the bytes in memory. Use --data-dir on a local disk."
    ),
    "device_virtual": NoticeKind(
        "The read is unproven. No hardware is known below the device, which may have the bytes in memory. "
        "Use --data-dir on a local disk."
    ),
    "direct_not_honoured": NoticeKind(
        "The read is not direct. The file system accepted O_DIRECT, but the page cache served the bytes. "
        "Use --data-dir on ext4 or xfs."
    ),
    "nothing_read": NoticeKind("Nothing is proven. There was no payload to read. Use longer prefixes."),
    "bytes_read_again": NoticeKind(
        "A cache in the drive or below a virtual machine may have answered. Files were read more than once. "
        "Increase --working-set.",
        suspect=False,
    ),
    "repeated": NoticeKind(
        "A cache may have answered. One load read the same bytes more than once. Report the layout."
    ),
    "server_caches_unknown": NoticeKind(
        "The server's drive may not be measured. The server may have had the bytes in memory. "
        "Clear the caches of the server."
    ),
    "link_rate_unknown": NoticeKind(
        "No throughput can be rejected as implausible. The speed of the network link is unknown. "
        "Measure over an interface that reports it."
    ),
    "padded_chunk": NoticeKind(
        "Loads read padding too. Chunks are padded to the alignment. Use larger chunks.", suspect=False
    ),
    "direct_lost": NoticeKind(
        "The page cache takes part. These chunks cannot be read with O_DIRECT. Use a layout with aligned chunks."
    ),
    "buffers_not_registered": NoticeKind(
        "Loads are slower than possible. RLIMIT_MEMLOCK is too small to register the buffers. Raise ulimit -l.",
        suspect=False,
    ),
    # the path to the GPU
    "standin_driver": NoticeKind(
        "Publish no number. libcuda.so.1 is a stand-in for tests, and kvikio read into host memory. "
        "Use a machine with a GPU."
    ),
    "gds_fell_back": NoticeKind(
        "GPUDirect Storage was not measured. The bytes went through host memory. Run bench doctor."
    ),
    "gds_mixed_paths": NoticeKind(
        "One number mixes several paths. Some reads went through host memory, another GPU or another driver. "
        "Align reads to 4 KiB, and use a drive near the GPU."
    ),
    "gds_unproven": NoticeKind(
        "The path of the bytes is unproven. Counters of kvikio, cuFile, nvidia-fs or the drive miss reads or disagree. "
        "Enable cuFile's statistics and run bench doctor."
    ),
    "gds_errors": NoticeKind(
        "Loads are suspect. kvikio or cuFile counted failed reads. See cufile.log and the kernel log."
    ),
    # noise
    "few_rounds": NoticeKind(
        "The interval assumes normally distributed noise. There are fewer than 6 rounds. Increase --budget.",
        suspect=False,
    ),
    "noisy_recompute": NoticeKind(
        "The interval is wide. Rounds of recompute differ much. Stop other work on the device.", suspect=False
    ),
    "noisy_load": NoticeKind(
        "The interval is wide. Rounds of load differ much. Stop other work on the machine.", suspect=False
    ),
    "noisy_reading": NoticeKind(
        "The interval is wide. Rounds of load differ much, mostly in reading. Stop other readers of the drive.",
        suspect=False,
    ),
    "noisy_first_token": NoticeKind(
        "The interval is wide. Rounds of load differ much, mostly in the first-token step. "
        "Stop other work on the device.",
        suspect=False,
    ),
    "drift_recompute": NoticeKind(
        "Rounds are not comparable. Recompute became slower or faster over the rounds, as by heat. "
        "Rerun when the device has warmed up."
    ),
    "drift_load": NoticeKind(
        "Rounds are not comparable. Load became slower or faster over the rounds. Rerun."
    ),
    "drift_reading": NoticeKind(
        "Rounds are not comparable. Reading became slower or faster over the rounds, as by housekeeping of an SSD. "
        "Rerun."
    ),
    "drift_first_token": NoticeKind(
        "Rounds are not comparable. The first-token step became slower or faster over the rounds, as by heat. Rerun."
    ),
    # the estimate
    "possible_crossing": NoticeKind(
        "There may be a further crossing. The median has the other sign at some lengths, within the noise. "
        "Measure more rounds.",
        suspect=False,
    ),
    "coarse_bracket": NoticeKind(
        "The interval assumes a smooth curve near the crossing. No length there was measured. Add --tokens.",
        suspect=False,
    ),
    "extrapolated": NoticeKind(
        "This crossing is a hint only. The fitted curves cross outside the measured range. Add --tokens there.",
        suspect=False,
    ),
    "fit_disagrees": NoticeKind(
        "The measured points are the answer. The fitted curves cross elsewhere. Measure more lengths."
    ),
    "modelled": NoticeKind("Nothing was measured. The values come from a model. Sweep to measure them."),
    "undecided": NoticeKind(
        "Another verdict is possible. It lies within the bounds of the modelled times. Sweep to decide."
    ),
}
UNKNOWN = NoticeKind(
    "Samples with this notice are suspect. This version does not know the kind. Sweep again."
)

# codes of results with schema 4 or older
OLD_CODES: dict[str, str] = {
    "attention_eager": "attention_unfused",
    "attention_math": "attention_unfused",
    "skipped": BACKEND_UNAVAILABLE,
    "series_unmeasured": "unmeasured",
    "lengths_unmeasured": "unmeasured",
    "kvikio_fell_back": "gds_fell_back",
    "cufile_fell_back": "gds_fell_back",
    "kvikio_partly_posix": "gds_mixed_paths",
    "cufile_partly_posix": "gds_mixed_paths",
    "cufile_two_ways": "gds_mixed_paths",
    "cufile_rerouted": "gds_mixed_paths",
    "cufile_unaligned": "gds_mixed_paths",
    "kvikio_unseen": "gds_unproven",
    "cufile_unseen": "gds_unproven",
    "cufile_disagrees": "gds_unproven",
    "nvfs_disagrees": "gds_unproven",
    "drive_idle": "gds_unproven",
    "kvikio_errors": "gds_errors",
    "cufile_errors": "gds_errors",
}


def kind_of(code: str) -> NoticeKind:
    """What a kind means; one that this version does not know is suspect."""
    return KINDS.get(OLD_CODES.get(code, code), UNKNOWN)


def keep_latest(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """The last notice of each kind and series, in the order in which each was first noticed."""
    return tuple({(notice.kind, notice.series): notice for notice in notices}.values())


def upgrade_notice(old: Mapping[str, Any], series: Collection[str]) -> list[dict[str, Any]]:
    """A notice of schema 4 or older as notices of today, one for each series that its message begins with.

    Args:
        old: `code` and `message`, which begins with "name: " or "name, name: " where it is of some series.
        series: names of the run's series.
    """
    code, message = str(old.get("code")), str(old.get("message", ""))
    kind = OLD_CODES.get(code, code)
    subject, _, rest = message.partition(": ")
    named = [name for name in subject.split(", ") if name in series]
    return [{"kind": kind, "series": name, "detail": rest} for name in named] or [
        {"kind": kind, "detail": message}
    ]
