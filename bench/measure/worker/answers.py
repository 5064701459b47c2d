"""The right-answer check of a sweep: logits after a load against those after recompute, for every way to load."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from bench.arms import ranks as group
from bench.arms.logits_check import check_answer
from bench.measure.processes.messages import CheckDone, Message, SeriesFailed
from bench.measure.setup import LoadSeries, name_hybrid
from bench.measure.worker.logits_checks import HybridExchange, StoreExchange
from bench.measure.worker.model_session import Workbench
from bench.record.run import Notice
from kvio.backends import find_backend
from kvio.errors import KVIOError
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.presets import adapt_preset
from kvio.store.store_files import temporary_directory


def check_answers(
    bench: Workbench, tokens: int, scratch: Path, *, hybrids: Collection[str], checked: Collection[str]
) -> Iterator[Message]:
    """The right-answer check of each series that brings bytes in; one that breaks is left out while others are left."""
    loads = bench.setup.loads
    broken = 0
    for load in (load for load in loads if find_backend(load.spec.backend).moves_bytes):
        try:
            if f"answer:{load.name}" not in checked:
                yield _check_answer(bench, load, tokens, scratch)
            hybrid = name_hybrid(load.name)
            if hybrid in hybrids and f"answer:{hybrid}" not in checked:
                yield _check_hybrid(bench, load, tokens, scratch)
        except KVIOError as error:
            broken += 1
            if group.size() > 1 or broken == len(loads):
                raise
            yield SeriesFailed(load.name, str(error))


def _check_answer(bench: Workbench, load: LoadSeries, tokens: int, scratch: Path) -> CheckDone:
    """Logits after a load through this series' layout and backend, against recompute; with a negative control."""
    geometry = _check_geometry(bench, load, tokens // 2)
    with temporary_directory(scratch) as directory:
        exchange = StoreExchange(directory, geometry, load, now_s=bench.now_s)
        return _compare(bench, load.name, exchange, geometry=geometry, num_chunks=1)


def _check_hybrid(bench: Workbench, load: LoadSeries, tokens: int, scratch: Path) -> CheckDone:
    """The same after recompute of the prompt's front and loading of its back."""
    geometry = _check_geometry(bench, load, tokens // 4)
    with temporary_directory(scratch) as directory:
        exchange = HybridExchange(
            directory,
            geometry,
            load,
            now_s=bench.now_s,
            built=bench.built,
            kv_dtype=bench.kv_dtype,
        )
        done = _compare(bench, name_hybrid(load.name), exchange, geometry=geometry, num_chunks=2)
    return replace(done, result={**done.result, "load_fraction": exchange.load_fraction})


def _check_geometry(bench: Workbench, load: LoadSeries, most_tokens: int) -> ChunkGeometry:
    chunk_tokens = min(load.geometry.chunk_tokens, most_tokens)
    return ChunkGeometry(bench.layout, adapt_preset(load.geometry.preset, chunk_tokens=chunk_tokens))


def _compare(
    bench: Workbench, name: str, exchange: StoreExchange, *, geometry: ChunkGeometry, num_chunks: int
) -> CheckDone:
    """The check for a prompt of `num_chunks` KV chunks and one token."""
    num_tokens = num_chunks * geometry.chunk_tokens + 1
    check = check_answer(
        bench.built, bench.layout, num_tokens, store_and_load=exchange, kv_dtype=bench.kv_dtype
    )
    said = "passes" if check.passed else "is blind" if check.blind else "fails"
    message = (
        f"{name}: the right-answer check {said}: logits differ by {check.max_difference:.3g} standard deviations "
        f"({check.tolerance:g} allowed), with rotated chunks by {check.control_difference:.3g}"
    )
    result = {
        "passed": check.passed,
        "max_difference": check.max_difference,
        "control_difference": check.control_difference,
        "tolerance": check.tolerance,
        "prompt_tokens": num_tokens,
        "chunk_tokens": geometry.chunk_tokens,
        "layers": len(bench.built.layers),
    }
    code = "blind_answer_check" if check.blind else "wrong_answer"
    notice = None if check.passed else Notice(code=code, message=message)
    return CheckDone(f"answer:{name}", result, notice)
