"""A cost model from names: model, GPU, engine and storage as the catalogues describe them."""

from dataclasses import dataclass

from bench.catalog.devices.datasheet import pick_figure
from bench.catalog.devices.device_catalog import Devices, Engine, Gpu
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import AUTO, Model
from bench.predict.bounded import Bounded
from bench.predict.cost_model import LOADING_FROM, CostModel, EngineCosts
from bench.predict.rates import (
    WEIGHT_BYTES,
    find_compute,
    find_link,
    find_memory,
    find_storage_rate,
    format_unverified,
    read_weight_dtype,
)


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """What a prediction is asked for."""

    gpu: str
    num_gpus: int = 1
    dtype: str = "bfloat16"
    kv_dtype: str = AUTO  # the checkpoint's, else bfloat16
    engine: str = "vllm"
    # name in the catalogues; None with `bytes_per_s`, or when the KV lies in host memory
    storage: str | None = None
    bytes_per_s: float | None = None  # rate of the storage as the user gives it


def build_model(model: Model, setting: MachineSpec, devices: Devices) -> CostModel:
    """The cost model of `model` in that setting.

    Raises:
        CatalogError: a name, dtype or needed figure is unknown, or the weights do not fit into the GPUs.
    """
    dtype = read_weight_dtype(setting.dtype)
    gpu, engine = devices.find_gpu(setting.gpu), devices.find_engine(setting.engine)
    compute, said = find_compute(devices, gpu, dtype)
    memory, more = find_memory(gpu)
    link, about_link = find_link(devices, gpu)
    where, storage, about_storage = _storage(setting, devices)
    peer, about_peer = _peer(gpu, setting.num_gpus)
    kv_dtype = model.choose_kv_dtype(setting.kv_dtype)
    ranks = "" if setting.num_gpus == 1 else f"{setting.num_gpus}x "
    notices = (
        *said,
        *weight_dtype_notice(model, dtype),
        *kv_dtype_notice(model, setting.kv_dtype),
        *more,
        *gpu_memory_notice(gpu),
        *about_link,
        *about_storage,
        *about_peer,
    )
    cost = CostModel(
        label=f"{model.name} ({dtype}) on {ranks}{gpu.name} with {engine.name}{LOADING_FROM}{where}",
        geometry=model.geometry,
        layout=model.geometry.layout(kv_dtype, setting.num_gpus),
        num_gpus=setting.num_gpus,
        weight_bytes=WEIGHT_BYTES[dtype],
        compute=compute,
        engine=engine_costs(engine),
        memory_bytes_per_s=memory,
        peer_bytes_per_s=peer,
        link=link,
        storage=storage,
        notices=notices,
    )
    misfit = find_misfit(cost, gpu, model, dtype=dtype)
    if misfit is not None:
        raise CatalogError(misfit)
    return cost


def engine_costs(engine: Engine) -> EngineCosts:
    """The costs of a catalogued engine; what is not there is nothing."""
    share, overhead, copy = (
        pick_figure(figures) for figures in (engine.compute_share, engine.overhead_s, engine.copy_s)
    )
    bounds = (None, None) if overhead is None else (overhead.low, overhead.high)
    return EngineCosts(
        1.0 if share is None else share.value,
        0.0 if overhead is None else overhead.value,
        0.0 if copy is None else copy.value,
        engine.block_tokens,
        None if bounds[0] is None or bounds[1] is None else (bounds[0], bounds[1]),
    )


def _storage(setting: MachineSpec, devices: Devices) -> tuple[str, Bounded | None, tuple[str, ...]]:
    if setting.bytes_per_s is not None:
        return f"storage of {setting.bytes_per_s / 1e9:g} GB/s", Bounded(setting.bytes_per_s), ()
    if setting.storage is None:
        return "host memory", None, ()
    return find_storage_rate(devices, setting.storage)


def _peer(gpu: Gpu, num_gpus: int) -> tuple[float | None, tuple[str, ...]]:
    figure = pick_figure(gpu.peer_bytes_per_s)
    if num_gpus == 1:
        return None, ()
    if figure is None:
        return None, (
            f"the rate between {gpu.name}s is unknown: exchanges of tensor parallelism cost nothing here",
        )
    return figure.value, format_unverified(figure, f"{gpu.key}: peer_bytes_per_s")


def gpu_memory_notice(gpu: Gpu) -> tuple[str, ...]:
    """The notice where the GPU's memory is unknown or unverified."""
    figure = pick_figure(gpu.memory_bytes)
    if figure is None:
        return (f"the memory of {gpu.name} is unknown: whether the weights fit was not checked",)
    return format_unverified(figure, f"{gpu.key}: memory_bytes")


def find_misfit(cost: CostModel, gpu: Gpu, model: Model, *, dtype: str) -> str | None:
    """Why the weights do not fit, None when they do; without KV or activations, so it errs on the safe side."""
    memory = pick_figure(gpu.memory_bytes)
    weights = model.geometry.params_total * cost.weight_bytes / cost.num_gpus
    if memory is None or weights <= memory.value:
        return None
    enough = 2 * cost.num_gpus
    while weights * cost.num_gpus > enough * memory.value:
        enough *= 2
    return (
        f"the weights, {weights / 1e9:.0f} GB on each GPU, do not fit into its {memory.value / 1e9:.0f} GB:"
        f" {enough} such GPUs hold them, or weights of a smaller dtype"
        f"{''.join(f' ({one})' for one in weight_dtype_notice(model, dtype))}"
    )


def weight_dtype_notice(model: Model, dtype: str) -> tuple[str, ...]:
    """The notice where the modelled weight dtype differs from the published checkpoint."""
    published = model.published_dtype
    if published is None or published == dtype:
        return ()
    nearest = "" if published in WEIGHT_BYTES else " and not modelled: fp8 is the nearest"
    return (f"{dtype} weights are supposed; the published checkpoint is {published}, smaller{nearest}",)


def kv_dtype_notice(model: Model, asked: str) -> tuple[str, ...]:
    """The notice where the checkpoint decides the KV dtype."""
    if asked != AUTO or model.declared_kv_dtype is None:
        return ()
    return (f"KV dtype {model.declared_kv_dtype}: declared by the checkpoint. --kv-dtype overrides it.",)
