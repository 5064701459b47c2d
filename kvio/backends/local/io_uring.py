"""io_uring by its three system calls: reads are queued in shared memory, and their results come back there.

The packages on PyPI would not do: the wheel of liburing 2026.3.30 dies of an illegal instruction on processors without
AVX-512, and its source never lets go of the interpreter's lock; pyuring 0.3.3 cannot queue reads into registered
buffers; pyaio 0.5.0rc2 reads into memory of its own.

All completions are posted in `IORING_SETUP_DEFER_TASKRUN` mode (Linux 6.1): by the kernel within our own call and at
no other time, so that the shared memory is never written while it is read, and needs no barriers.

Source: io_uring(7), io_uring_setup(2), io_uring_enter(2), io_uring_register(2); include/uapi/linux/io_uring.h.
"""

import ctypes
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

SYS_SETUP, SYS_ENTER, SYS_REGISTER = 425, 426, 427  # the same on every architecture but alpha
SETUP_SUBMIT_ALL, SETUP_SINGLE_ISSUER, SETUP_DEFER_TASKRUN = 1 << 7, 1 << 12, 1 << 13
ENTER_GETEVENTS = 1 << 0
OP_READ_FIXED, OP_READ = 4, 22
REGISTER_BUFFERS, UNREGISTER_BUFFERS = 0, 1
OFFSET_RINGS, OFFSET_ENTRIES = 0, 0x1000_0000  # of the two mappings
WORD = 2**32  # heads and tails are unsigned words that wrap
PARAMS = struct.Struct("=10I 8IQ 8IQ")  # struct io_uring_params
ENTRY = struct.Struct("=BBHiQQIIQHHi16x")  # struct io_uring_sqe
RESULT = struct.Struct("=QiI")  # struct io_uring_cqe

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Span(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("num_bytes", ctypes.c_size_t))


def _call(number: int, *arguments: object) -> int:
    """The result of a system call, for which the interpreter's lock is let go.

    Raises:
        OSError: it failed.
    """
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@dataclass(frozen=True, slots=True)
class Completion:
    """What became of one read: bytes, or a negated errno; `tag` is the one it was queued under."""

    tag: int
    code: int


class Ring:
    """A submission and a completion queue; all calls must come from the thread that makes it.

    Args:
        num_entries: reads that may be queued or under way at once.

    Raises:
        OSError: EPERM, ENOSYS, ENOMEM, EINVAL …: the kernel does not give one.
    """

    def __init__(self, num_entries: int) -> None:
        flags = SETUP_SUBMIT_ALL | SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN
        params = ctypes.create_string_buffer(PARAMS.pack(0, 0, flags, *[0] * 25), PARAMS.size)
        self._fd = _call(SYS_SETUP, ctypes.c_uint(num_entries), params)
        self._maps: list[mmap.mmap] = []
        self._words = memoryview(b"")
        self._num_registered = 0
        self.num_under_way = 0
        try:
            self._map_queues(PARAMS.unpack(params.raw))
        except BaseException:
            self.close()
            raise

    def _map_queues(self, params: tuple[int, ...]) -> None:
        """Find both queues by the offsets that the kernel has filled in; heads and tails are words."""
        num_entries, num_results = params[0], params[1]
        head, tail, mask, _, _, _, order = params[10:17]
        result_head, result_tail, result_mask, _, _, results = params[19:25]
        rings = self._map(max(order + 4 * num_entries, results + RESULT.size * num_results), OFFSET_RINGS)
        self._rings, self._entries = rings, self._map(ENTRY.size * num_entries, OFFSET_ENTRIES)
        self._words = memoryview(rings).cast("I")
        self._head, self._tail, self._mask = head // 4, tail // 4, self._words[mask // 4]
        self._result_head, self._result_tail = result_head // 4, result_tail // 4
        self._results, self._result_mask = results, self._words[result_mask // 4]
        for number in range(num_entries):
            self._words[order // 4 + number] = number
        self._queued = self._words[self._tail]  # runs ahead of the tail that the kernel knows

    def _map(self, num_bytes: int, offset: int) -> mmap.mmap:
        found = mmap.mmap(self._fd, num_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=offset)
        self._maps.append(found)
        return found

    @property
    def num_queued(self) -> int:
        """Reads that the kernel does not know of yet."""
        return (self._queued - self._words[self._head]) % WORD

    def register(self, spans: Sequence[tuple[int, int]]) -> None:
        """Pin memory once, so that it is not pinned for every read into it.

        Args:
            spans: address and bytes of each buffer; its position is the `buffer` of `queue_read`.

        Raises:
            OSError: ENOMEM where RLIMIT_MEMLOCK is too small.
        """
        array = (_Span * len(spans))(*(_Span(*span) for span in spans))
        _call(SYS_REGISTER, self._fd, REGISTER_BUFFERS, array, ctypes.c_uint(len(spans)))
        self._num_registered = len(spans)

    def queue_read(
        self, tag: int, descriptor: int, *, offset: int, address: int, num_bytes: int, buffer: int | None
    ) -> None:
        """Queue one read for the next `enter`.

        Args:
            tag: what its result will carry.
            descriptor: open until the result has come.
            offset: in the file.
            address, num_bytes: where the bytes go.
            buffer: the registered buffer they lie in; None where it is not registered.
        """
        entry = (self._queued & self._mask) * ENTRY.size
        code = OP_READ if buffer is None else OP_READ_FIXED
        ENTRY.pack_into(
            self._entries,
            entry,
            code,
            0,
            0,
            descriptor,
            offset,
            address,
            num_bytes,
            0,
            tag,
            buffer or 0,
            0,
            0,
        )
        self._queued = (self._queued + 1) % WORD

    def submit(self) -> None:
        """Hand over what is queued, without waiting."""
        if self.num_queued:
            self._enter(0)

    def wait(self) -> list[Completion]:
        """Hand over what is queued; what has come back since the last call, at least one result.

        Raises:
            OSError: the kernel cannot take what is queued.
        """
        if not (self.num_queued or self.num_under_way):
            raise ValueError("nothing is queued or under way: there is nothing to wait for")
        while not (found := self._take_results()):
            self._enter(1)
        return found

    def _enter(self, min_results: int) -> None:
        count = self.num_queued
        self._words[self._tail] = self._queued
        try:
            _call(SYS_ENTER, self._fd, count, min_results, ENTER_GETEVENTS, None, ctypes.c_size_t(0))
        except InterruptedError:  # by a signal; the queues say what has been done
            pass
        finally:
            self.num_under_way += count - self.num_queued

    def _take_results(self) -> list[Completion]:
        head, tail = self._words[self._result_head], self._words[self._result_tail]
        found = []
        while head != tail:
            where = self._results + (head & self._result_mask) * RESULT.size
            tag, code, _ = RESULT.unpack_from(self._rings, where)
            found.append(Completion(tag, code))
            head = (head + 1) % WORD
        self._words[self._result_head] = head
        self.num_under_way -= len(found)
        return found

    def drain(self) -> None:
        """Take back what is queued, and wait for what is under way."""
        self._queued = self._words[self._head]
        while self.num_under_way:
            self.wait()

    def close(self) -> None:
        """Drain, deregister, and let the queues go; safe to call twice."""
        if self._fd < 0:
            return
        if self._words:
            self.drain()
        if self._num_registered:  # closing alone would unpin them some time later
            _call(SYS_REGISTER, self._fd, UNREGISTER_BUFFERS, None, ctypes.c_uint(0))
            self._num_registered = 0
        self._words.release()
        while self._maps:
            self._maps.pop().close()
        os.close(self._fd)
        self._fd = -1
