"""A layout's read pattern as a fio job: the same sizes, random chunk order, depth, threads and working set.

fio's own files stand in for the chunk files: one for each object, or one of slots for each thread.
Source of the options: fio's HOWTO (fio.readthedocs.io), version 3.33; what a job reads was checked with --write_iolog.
"""

import re
from dataclasses import dataclass

from kvio.alignment import DIRECT_ALIGN_BYTES
from kvio.layout.chunk_geometry import ByteRange, ChunkGeometry
from kvio.layout.presets import PRESETS
from kvio.protocol import KVIOError

ENGINES = (
    "psync",
    "libaio",
    "io_uring",
)  # posix reads as psync does; the others keep several reads in flight
MARK = "kvcross"  # first word of a description of ours; fio hands it back in its JSON


@dataclass(frozen=True, slots=True)
class FioJob:
    """A job and what it leaves out.

    Args:
        text: the job file.
        read_bytes: what all threads together read.
        notes: where fio cannot do exactly what the stack does; they are comments in the job too.
    """

    text: str
    read_bytes: int
    notes: tuple[str, ...]


def write_job(
    geometry: ChunkGeometry,
    *,
    model: str,
    engine: str,
    directory: str,
    working_set_bytes: int,
    in_flight: int | None = None,
) -> FioJob:
    """The job that reads a working set of chunks once.

    Args:
        geometry: of the chunks; its preset sets threads, depth, O_DIRECT and the open pattern.
        model: its name, for a comment and the description.
        engine: one of `ENGINES`.
        directory: where fio makes its files.
        working_set_bytes: bytes of all files together, at most; at least one object for each thread.
        in_flight: reads that each thread keeps in flight; None takes the preset's depth, which counts chunks.

    Raises:
        KVIOError: unknown engine, or the working set does not hold an object for each thread.
    """
    if engine not in ENGINES:
        raise KVIOError(f"unknown fio engine {engine!r}; there are: {', '.join(ENGINES)}")
    if any(character in directory for character in "\n\r;#"):
        raise KVIOError(f"directory {directory!r} cannot be named in a fio job file")
    preset = geometry.preset
    per_thread = working_set_bytes // (geometry.stride_bytes * preset.num_threads)
    if per_thread < 1:
        raise KVIOError(
            f"a working set of {working_set_bytes} bytes does not hold an object of {geometry.stride_bytes} bytes "
            f"for each of {preset.num_threads} threads; try --working-set {geometry.stride_bytes * preset.num_threads}"
        )
    reads = _reads_of_one_object(geometry)
    pattern, notes = (
        _in_slots(geometry, per_thread) if preset.container_bytes else _in_files(geometry, reads, per_thread)
    )
    read_bytes = sum(read.num_bytes for read in reads) * per_thread * preset.num_threads
    depth = 1 if engine == "psync" else in_flight or max(1, preset.queue_depth * len(reads))
    lines = [
        f"# KV chunks of {_one_line(model)} as {preset.stack} {preset.version} lays them out ({preset.name}): "
        f"{geometry.chunk_tokens} tokens, {geometry.padded_bytes} bytes, {_count(len(geometry.objects), 'object')} each",
        *(f"# {note}" for note in notes),
        "[global]",
        f"description={_describe(geometry, model, pattern)}",
        f"directory={directory}",
        f"ioengine={engine}",
        f"iodepth={depth}",
        f"direct={int(geometry.direct)}",
        "invalidate=1",
        "thread",
        "group_reporting",
        "refill_buffers=1",
        "allow_file_create=1",
        *pattern,
        f"[kv-{preset.name}]",
        f"numjobs={preset.num_threads}",
    ]
    return FioJob("\n".join(lines) + "\n", read_bytes, notes)


def plain_name(text: str) -> str:
    """A name as one word of a description."""
    return re.sub(r"[^\w./:+-]", "_", text)


def read_description(text: str) -> dict[str, str]:
    """What a job of ours says of itself; empty for the description of any other job.

    The names: model, layout, chunk_bytes and request_bytes, as a sweep's series has them, and block_bytes of a read.
    """
    mark, *words = text.split() or [""]
    return {name: value for name, _, value in (word.partition("=") for word in words)} if mark == MARK else {}


def reads_by_plane(layout: str) -> bool:
    """Whether each read of a layout ends with a plane, whatever its request size; of an unknown one nobody knows."""
    return layout not in PRESETS or PRESETS[layout].plane_reads


def _describe(geometry: ChunkGeometry, model: str, pattern: list[str]) -> str:
    block_bytes = next(line.removeprefix("bs=") for line in pattern if line.startswith("bs="))
    return (
        f"{MARK} model={plain_name(model)} layout={geometry.preset.name} chunk_bytes={geometry.padded_bytes} "
        f"request_bytes={geometry.preset.request_bytes or geometry.slot_bytes} block_bytes={block_bytes}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _reads_of_one_object(geometry: ChunkGeometry) -> list[ByteRange]:
    """The reads of the first object of a chunk that a prefix needs whole."""
    return [read for read in geometry.reads_for(0, geometry.chunk_tokens) if read.object_number == 0]


def _in_files(
    geometry: ChunkGeometry, reads: list[ByteRange], per_thread: int
) -> tuple[list[str], tuple[str, ...]]:
    """An object in a file of its own: files in random order, each read front to back."""
    notes: list[str] = []
    first = reads[0].file_offset
    payload_reads = reads[1:] if geometry.preset.reads_header else reads
    block_bytes = payload_reads[0].num_bytes
    num_reads = len(payload_reads)
    if geometry.preset.reads_header:
        block_bytes, num_reads = geometry.objects[0].padded_bytes, 1
        notes.append(
            "the header is read together with the payload here, and with a read of its own by the stack"
        )
    elif any(read.num_bytes != block_bytes for read in reads):
        notes.append("the last read of each object is shorter, and fio leaves it out")
        num_reads = sum(read.num_bytes == block_bytes for read in reads)
    pattern = [
        "rw=read",
        f"bs={block_bytes}",
        f"offset={first}",
        f"nrfiles={per_thread}",
        f"filesize={geometry.objects[0].padded_bytes}",
        f"file_service_type=random:{num_reads}",
    ]
    if geometry.preset.open_per_read:
        pattern.append("openfiles=1")
    if not geometry.direct and first % DIRECT_ALIGN_BYTES:
        notes.append(f"reads begin at byte {first} of a file")
    return pattern, tuple(notes)


def _in_slots(geometry: ChunkGeometry, per_thread: int) -> tuple[list[str], tuple[str, ...]]:
    """Objects in slots of one file for each thread, in random order, each with one read."""
    notes: tuple[str, ...] = ()
    if geometry.preset.reads_header:
        notes = (
            "the header is read together with the payload here, and with a read of its own by the stack",
        )
    elif geometry.preset.request_bytes is not None:
        notes = ("a slot is read with one request here, whatever --request says",)
    pattern = [
        "rw=randread",
        f"bs={geometry.stride_bytes}",
        "nrfiles=1",
        f"filesize={geometry.stride_bytes * per_thread}",
    ]
    return pattern, notes
