"""What one rank of the tests does with its shard of a small model."""

import multiprocessing
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from bench.arms import ranks as group
from bench.arms.logits_check import AnswerCheck, check_answer
from bench.arms.model.build import UnsupportedArchitectureError, build_model
from bench.arms.model.kv_cache import CacheMismatchError
from bench.arms.model.shard import NotDivisibleError, held_elements, local
from bench.arms.prefill import prefill_over
from bench.measure.setup import LoadSeries
from bench.measure.worker.logits_checks import StoreRoundTrip
from bench.record.plan import LoadSpec
from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import KVLayout
from kvio.layout.presets import adapt_preset, find_preset
from kvio.loading.blocks import KVBlocks

NUM_TOKENS = 20
CPU = torch.device("cpu")


def make_tokens() -> torch.Tensor:
    """The prompt of all ranks, (1, 20)."""
    return torch.randint(211, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(1))


def forward(
    raw: dict[str, Any], layout: KVLayout, weights: str | None = None, *, device: torch.device = CPU
) -> dict[str, Any]:
    """One forward into blocks of this rank's layout: logits, elements held, notices, and the KV that was kept."""
    built = build_model(raw, dtype=torch.float32, device=device, seed=3, weights=weights)
    blocks = KVBlocks(layout, NUM_TOKENS, device)
    logits = prefill_over(built, blocks).forward(make_tokens().to(device))
    planes = {(plane.layer, plane.role): blocks.plane(plane.layer, plane.role) for plane in layout.planes}
    return {
        "logits": logits.cpu().numpy(),
        "elements": held_elements(built.model),
        "notices": built.notices,
        "kv": {key: plane.cpu().clone().view(torch.float32).numpy() for key, plane in planes.items()},
        "shapes": {
            tuple(local(module.weight).shape)
            for module in built.model.model.layers[0].modules()
            if isinstance(module, torch.nn.Linear)
        },
    }


def check_answer_on_gpu(raw: dict[str, Any], layout: KVLayout) -> tuple[bool, str]:
    """Whether the answer after loading is right on this rank's GPU, and which one that is."""
    device = torch.device("cuda", group.rank())
    return answer(raw, layout, False, device=device).passed, str(device)


def forward_each(cases: dict[str, tuple[dict[str, Any], KVLayout]]) -> dict[str, dict[str, Any]]:
    """`forward` for several models, one after the other."""
    return {name: forward(raw, layout) for name, (raw, layout) in cases.items()}


def try_each(raws: dict[str, dict[str, Any]]) -> dict[str, str]:
    """`try_to_build` for several models."""
    return {name: try_to_build(raw) for name, raw in raws.items()}


def answer_each(cases: dict[str, tuple[dict[str, Any], KVLayout, bool]]) -> dict[str, AnswerCheck]:
    """`answer` for several models."""
    return {name: answer(*case) for name, case in cases.items()}


def try_to_build(raw: dict[str, Any]) -> str:
    """What the refusal says; empty where the model is built."""
    try:
        build_model(raw, dtype=torch.float32, device=CPU)
    except (NotDivisibleError, UnsupportedArchitectureError, CacheMismatchError) as error:
        return str(error)
    return ""


class WrongRank:
    """Loads what another rank stored: what a mix-up of shards would do."""

    def __init__(self, exchange: StoreRoundTrip) -> None:
        self._exchange = exchange

    def __call__(
        self, source: KVBlocks, target: KVBlocks, *, num_tokens: int, rotate: bool, prompt: torch.Tensor
    ) -> None:
        """Exchange, then give each rank the bytes of the next."""
        self._exchange(source, target, num_tokens=num_tokens, rotate=rotate, prompt=prompt)
        for number, tensor in enumerate(target.groups):
            others = group.gather(tensor.numpy())
            target.groups[number].copy_(torch.tensor(others[(group.rank() + 1) % group.size()]))


def answer(
    raw: dict[str, Any], layout: KVLayout, mixed_up: bool, *, device: torch.device = CPU
) -> AnswerCheck:
    """The logits check of this rank's store."""
    built = build_model(raw, dtype=torch.float32, device=device, seed=3)
    geometry = ChunkGeometry(layout, adapt_preset(find_preset("best"), chunk_tokens=8))
    load = LoadSeries("posix/best", LoadSpec(), geometry, in_flight=1)
    with tempfile.TemporaryDirectory() as directory:
        exchange = StoreRoundTrip(Path(directory), geometry, load, now_s=monotonic)
        return check_answer(built, layout, 9, store_and_load=WrongRank(exchange) if mixed_up else exchange)


def run_ranks(
    num_ranks: int, work: Callable[..., Any], *arguments: object, device_type: str = "cpu"
) -> list[Any]:
    """What `work(*arguments)` gives on every rank; all of them run it at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.helpers.tensor_parallel"])
    results = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for rank in range(num_ranks):
            ours, theirs = context.Pipe()
            seat = (rank, num_ranks, listener.getsockname()[1], listener if rank == 0 else None, device_type)
            process = context.Process(target=_sit, args=(theirs, seat, work, arguments), daemon=True)
            process.start()
            theirs.close()
            results.append((ours, process))
        found = [pipe.recv() for pipe, _ in results]
    for _, process in results:
        process.join()
    return found


def _sit(pipe: Any, seat: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
    rank, size, port, listener, device_type = seat
    torch.set_num_threads(1)
    if device_type == "cuda":
        torch.cuda.set_device(rank)
    group.join(
        rank,
        size,
        port=port,
        listener=None if listener is None else listener.detach(),
        device_type=device_type,
    )
    pipe.send(work(*arguments))
    group.leave()
