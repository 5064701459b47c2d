"""What each notice means for the answer, for a reader who sees its code for the first time."""

EXPLANATIONS: dict[str, str] = {
    "attention_eager": "No fast attention kernel ran: recompute is slower than in a serving engine.",
    "moe_random_routing": "Random weights choose experts nearly uniformly; real text is less even.",
    "slow_dtype": "This device has no hardware for the dtype: recompute is slower than it need be.",
    "wrong_answer": "After a load the model does not give the logits of recompute: trust no number.",
    "blind_answer_check": "Chunks in the wrong places would not have been noticed: the answer is unproven.",
    "attention_math": "No fused attention kernel takes this model here: recompute is slower than in an engine.",
    "length_refused": "This length does not fit the machine; the measured range ends below it.",
    "lengths_dropped": "Longer prefixes do not fit the machine; the measured range ends below them.",
    "half_line": "The run was killed in mid-write; whole rows were kept.",
    "not_cold": "Bytes came from the page cache, not from storage; such samples do not count as cold.",
    "unchecked_bytes": "Nobody compared what arrived with what was stored; such samples do not count.",
    "above_limit": "A short read got through faster than the kernel's limit; such samples do not count.",
    "mfu_above_one": "Recompute reached more than the matrix rate of its rounds: the processor's speed swings.",
    "busy_machine": "Other work shared the processor with the sweep; the intervals tell by how much.",
    "budget_left": "The next length would not have fitted into what was left of the budget.",
    "scaling_unchecked": "Memory held one layer of each kind only, so none could be predicted from another.",
    "scaling_error": "A few layers, scaled, predicted a deeper stack badly here: recompute is as uncertain.",
    "failed": "The sweep stopped before its end; what was measured stands.",
    "another_run": "Another sweep was using the same folder at the same time; each disturbed the other.",
    "wrong_bytes": "What arrived did not have the checksum of what was stored; such samples do not count.",
    "warm": "The page cache served the bytes: storage was not measured.",
    "partly_warm": "A part of the bytes was in the page cache before the read.",
    "below_page_cache": "The kernel fetched bytes that the device did not read: a cache between answered.",
    "counters_missing": "The kernel's counters do not see this storage, so no cache state can be proved.",
    "device_counter_missing": "No device counter confirms what the kernel counted for the process.",
    "residency_unknown": "It could not be asked what was in the page cache before the read.",
    "direct_not_honoured": "O_DIRECT was asked for and accepted, but the page cache served the bytes.",
    "nothing_read": "There was no payload to read, so nothing to prove.",
    "bytes_read_again": "The working set is small, so files were read more than once; a cache in the drive "
    "or below a virtual machine may have answered.",
    "padded_chunk": "Chunks are padded to the alignment, and the padding is stored and read with them.",
    "direct_lost": "These chunks cannot be read with O_DIRECT, so the page cache takes part.",
    "buffers_not_registered": "RLIMIT_MEMLOCK is too small for the bounce buffers, so the kernel pins them anew for each "
    "read; loads are slower than they could be.",
    "skipped": "Asked for, and not possible here; the other ways to load were measured.",
    "few_rounds": "With few rounds the interval supposes near-normal noise; more rounds suppose nothing.",
    "noisy_recompute": "Rounds of the recompute arm differ much: something else used the device.",
    "noisy_load": "Rounds of the load arm differ much: something else used the storage.",
    "drift_recompute": "Recompute got steadily slower or faster over the rounds, as heat does it.",
    "drift_load": "Load got steadily slower or faster over the rounds, as SSD housekeeping does it.",
    "possible_crossing": "A further crossing may hide in the noise; more rounds would tell.",
    "fit_disagrees": "Fitted curves and measured points disagree; the measured points are the answer.",
    "extrapolated": "A value from the fitted curves beyond what was measured: a hint where to measure next.",
    "no_load_series": "There is nothing to compare with recompute.",
}
UNKNOWN = "Makes the samples that carry it suspect."


def explain(code: str) -> str:
    """What a notice means; a code without an own explanation gets the general one."""
    return EXPLANATIONS.get(code, UNKNOWN)
