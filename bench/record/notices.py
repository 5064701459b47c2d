"""What each notice means for the answer, for a reader who sees its code for the first time."""

from pydantic import BaseModel, ConfigDict

SERIES_FAILED = "series_failed"  # code of a notice: what its message begins with broke, and was left out


class Notice(BaseModel):
    """Something that makes results suspect without stopping the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    message: str
    suspect: bool = True


EXPLANATIONS: dict[str, str] = {
    "attention_eager": "No fast attention kernel ran: recompute is slower than in a serving engine.",
    "moe_random_routing": "Random weights choose experts nearly uniformly; real text is less even.",
    "attention_whole": "Every rank computed all of the attention: recompute is slower than in an engine with as many.",
    "slow_dtype": "With a dtype that the device has hardware for, recompute may win up to longer prefixes.",
    "wrong_answer": "After a load the model does not give the logits of recompute: trust no number.",
    "answer_unchecked": "Nobody saw the model give after a load the logits of recompute: bytes are compared all the same.",
    "blind_answer_check": "Chunks in the wrong places would not have been noticed: the answer is unproven.",
    "check_failed": "A check that the run recorded did not pass: trust no number before it is known why.",
    "attention_math": "No fused attention kernel takes this model here: recompute is slower than in an engine.",
    "length_refused": "This length does not fit the machine; the measured range ends below it.",
    "lengths_dropped": "Longer prefixes do not fit the machine; the measured range ends below them.",
    "other_revision": "The sweep was gone on with after the code had changed, or may have: its rounds may differ by that.",
    "half_line": "The run was killed in mid-write; whole rows were kept.",
    "not_cold": "Bytes were not proved to come from storage; such samples do not count as cold.",
    "label_disproved": "Rows say cold or direct while their counters, or storage in memory, exclude it; they do not count.",
    "unknown_series": "Settings of a series are lost, so it is not known what its samples were to prove.",
    "unchecked_bytes": "Nobody compared what arrived with what was stored; such samples do not count.",
    "above_limit": "A short read got through faster than the kernel's limit; such samples do not count.",
    "mfu_above_one": "Recompute reached more than the matrix rate of its rounds, which was disturbed: MFU tells nothing.",
    "ranks_share_cores": "More ranks than cores: what all should do at once, they did in turns.",
    "busy_machine": "Other work shared the processor with the sweep; intervals, where there are any, are the wider for it.",
    "budget_left": "Another round would not have fitted into what was left of the budget.",
    "lengths_unmeasured": "The answer says nothing of lengths that were asked for and have no sample.",
    "scaling_unchecked": "For lack of memory or time no deeper stack was predicted: how far scaling is off is not known.",
    "mixed_depths": "Rounds of different depths are pooled: each scales with an error of its own.",
    "scaling_error": "A few layers, scaled, predicted a deeper stack badly here: recompute is as uncertain.",
    "failed": "The sweep stopped before its end; what was measured stands.",
    "another_run": "Another sweep was using the same folder at the same time; each disturbed the other.",
    "wrong_bytes": "What arrived did not have the checksum of what was stored; such samples do not count.",
    "warm": "The page cache served the bytes: storage was not measured.",
    "partly_warm": "A part of the bytes was in the page cache before the read.",
    "below_page_cache": "The kernel fetched bytes that the device did not read: a cache between answered.",
    "storage_unproved": "No read from this storage can be proved to be cold or direct, so such samples do not count.",
    "partly_counted": "The kernel fetched only a part of the bytes for these reads: the page cache had the rest by then, "
    "as when somebody else reads the same files.",
    "counters_missing": "No counter of the kernel vouches for these reads: it has none that counts on this storage (a loop "
    "device, some file systems), or somebody else fetched the bytes.",
    "device_in_memory": "The files lay on a device that is itself memory: storage was not measured.",
    "device_on_network": "The files lay on a device over a network, whose server may have had them in its memory.",
    "device_virtual": "No hardware is known below the device of the files: what serves it may have had them in memory.",
    "device_counter_missing": "No device counter confirms what the kernel counted for the process.",
    "residency_unknown": "It could not be asked what was in the page cache before the read.",
    "direct_not_honoured": "O_DIRECT was asked for and accepted, but the page cache served the bytes.",
    "nothing_read": "There was no payload to read, so nothing to prove.",
    "bytes_read_again": "The working set is small, so files were read more than once; a cache in the drive "
    "or below a virtual machine may have answered.",
    "server_caches_unknown": "The server may have had the bytes in its memory: its drive was perhaps not measured.",
    "objects_left": "What the run placed in the store could not be removed from there, and still takes room.",
    "link_rate_unknown": "Nobody knows how fast the way to the server is, so no rate can be called too good to be true.",
    "repeated": "The same bytes were read more than once, so a cache may have answered all but the first time.",
    "seldom_usable": "At this length most rounds gave no load that counts; it is left out of the answer.",
    "coarse_bracket": "No length near the crossing was measured: its interval supposes a smooth curve there.",
    "padded_chunk": "Chunks are padded to the alignment, and the padding is stored and read with them.",
    "direct_lost": "These chunks cannot be read with O_DIRECT, so the page cache takes part.",
    "standin_driver": "libcuda.so.1 here is a stand-in for tests, and kvikio read into host memory: publish no number.",
    "kvikio_fell_back": "cuFile was asked for, and kvikio read through host memory without it.",
    "kvikio_partly_posix": "kvikio read a part through cuFile and a part without it: two ways in one number.",
    "kvikio_unseen": "kvikio did not count these reads, so their data path is unproven.",
    "kvikio_errors": "kvikio counted failed reads.",
    "cufile_fell_back": "cuFile read through host memory inside itself: no direct path to the GPU was measured.",
    "cufile_partly_posix": "cuFile read a part through host memory inside itself: two ways in one number.",
    "cufile_two_ways": "cuFile used nvidia-fs and P2PDMA in one load: two ways in one number.",
    "cufile_rerouted": "cuFile routed reads through another GPU, as it does where drive and GPU are far apart.",
    "cufile_unaligned": "Some reads were not aligned to 4 KiB; cuFile takes a detour for those.",
    "cufile_errors": "cuFile counted failed reads.",
    "cufile_unseen": "Neither cuFile's statistics nor nvidia-fs counted these reads, so their data path is unproven.",
    "cufile_disagrees": "cuFile's counters contradict one another; its library and bindings may differ in version.",
    "nvfs_disagrees": "cuFile and nvidia-fs contradict one another on who carried the bytes.",
    "drive_idle": "The drive read less than was delivered, so a cache answered: that is no DMA from the drive.",
    "buffers_not_registered": "RLIMIT_MEMLOCK is too small for the bounce buffers, so the kernel pins them anew for each "
    "read; loads are slower than they could be.",
    "skipped": "Asked for, and not possible here; the other ways to load were measured.",
    "few_rounds": "With few rounds the interval supposes near-normal noise; more rounds suppose nothing.",
    "noisy_recompute": "Rounds of the recompute arm differ much: something else used the device.",
    "noisy_load": "Rounds of the load arm differ much: something else was at work.",
    "noisy_reading": "Rounds of the load arm differ much, mostly in reading: something else used what it reads from.",
    "noisy_first_token": "Rounds of the load arm differ much, mostly in its first-token step: something else computed.",
    "drift_recompute": "Recompute got slower or faster over the rounds, as heat does it.",
    "drift_load": "Load got slower or faster over the rounds.",
    "drift_reading": "Load got slower or faster over the rounds, mostly because reading did, as by housekeeping of an SSD.",
    "drift_first_token": "Load got slower or faster over the rounds, mostly because its first-token step did, as by heat.",
    "drive_shared": "Something else read from the drive or wrote to it meanwhile, which may have slowed this.",
    "possible_crossing": "A further crossing may hide in the noise; more rounds would tell.",
    "fit_disagrees": "Fitted curves and measured points disagree; the measured points are the answer.",
    "extrapolated": "A value from the fitted curves beyond what was measured: a hint where to measure next.",
    "series_skipped": "One of the ways asked for could not be measured here; the others stand.",
    "series_failed": "It broke in the sweep; its samples up to then stand, and the other ways were measured on.",
    "search_failed": "The search for threads, depth and request size broke: the layout's own values were used.",
    "files_cut": "Writing more files would have taken too much of the budget; these are read again sooner.",
    "round_stopped": "Its samples up to then stand; what came after them in that round was not measured.",
    "nothing_measured": "The budget was too small for one sample of each arm: nothing can be said.",
    "series_unmeasured": "The sweep ended before the first sample of this series: nothing is said of it.",
    "no_load_series": "There is nothing to compare with recompute.",
}
UNKNOWN = "Makes the samples that carry it suspect."


def explain(code: str) -> str:
    """What a notice means; a code without an own explanation gets the general one."""
    return EXPLANATIONS.get(code, UNKNOWN)
