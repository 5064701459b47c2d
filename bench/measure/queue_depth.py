"""How many threads read, and how many jobs each keeps in flight: what a queue depth comes to."""

from dataclasses import dataclass

from bench.record.plan import LoadSpec, PlanError
from kvio.backends import BackendKind

USUAL_IN_FLIGHT = 4  # per thread: four threads then keep sixteen, from where on drives gain little


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """`num_threads` reading threads with `in_flight` jobs each."""

    num_threads: int
    in_flight: int

    @property
    def queue_depth(self) -> int:
        """Jobs in flight in all."""
        return self.num_threads * self.in_flight


def spread_depth(spec: LoadSpec, kind: BackendKind, num_threads: int, *, in_flight: int = 1) -> QueueDepth:
    """The threads and jobs that give the queue depth asked for.

    Args:
        spec: what was asked; its threads, if given, are kept.
        kind: its backend: where a thread reads one job at a time, the threads are the depth.
        in_flight: of the layout preset, kept where `spec` asks for no depth; 1 leaves it to us.
        num_threads: of the layout preset, used where `spec` asks for none; fewer, if they do not divide the depth.

    Raises:
        PlanError: the threads asked for do not go with the depth, or it is more than the backend can keep.
    """
    asked, depth = spec.num_threads, spec.queue_depth
    if depth is None:
        usual = in_flight if in_flight > 1 else USUAL_IN_FLIGHT
        return QueueDepth(asked or num_threads, min(kind.most_in_flight, usual))
    if kind.most_in_flight == 1:
        if asked not in {None, depth}:
            raise PlanError(
                f"{spec.backend} reads one chunk at a time in each thread: {asked} threads cannot keep a queue "
                f"depth of {depth}; leave one of the two out"
            )
        return QueueDepth(depth, 1)
    found = spread_evenly(depth, asked, most_threads=num_threads)
    if found.in_flight > kind.most_in_flight:
        raise PlanError(
            f"{spec.backend} keeps {kind.most_in_flight} {'reads' if kind.reads_at_once is None else 'jobs'} in flight in "
            f"each thread at most; a queue depth of {depth} needs --threads {-(-depth // kind.most_in_flight)} or more"
        )
    return found


def spread_evenly(depth: int, asked: int | None, *, most_threads: int) -> QueueDepth:
    """The depth over the threads asked for, else over as many, up to `most_threads`, as divide it.

    Raises:
        PlanError: they do not divide it, or one of the two is not positive.
    """
    if depth < 1 or (asked is not None and asked < 1):
        raise PlanError(
            f"a queue depth of {depth} over {asked or 'the'} threads is impossible; try 1 or more of both"
        )
    threads = asked or max(n for n in range(1, most_threads + 1) if depth % n == 0)
    if depth % threads:
        raise PlanError(f"a queue depth of {depth} cannot be spread over {threads} threads evenly")
    return QueueDepth(threads, depth // threads)
