"""The machine that a published row describes, in the catalogues' terms, and what of it is not modelled."""

from bench.catalog.devices.device_catalog import Devices
from bench.catalog.models.fields import CatalogError
from bench.catalog.models.geometry import Geometry
from bench.predict.cost_model import CostModel
from bench.predict.machine_spec import MachineSpec, build_model, format_memory
from bench.predict.published import LOADING, PublishedRow
from bench.predict.rates import find_storage_rate
from bench.predict.rownames import find_model, is_called
from bench.predict.rowtier import drive_name, format_unstated

# exchanges over compute above which the ranks wait for each other; source: a ring all-reduce is modelled by its bytes
# alone, and small messages take several times that (latency of 10 us each, ai-dynamo/aiconfigurator p2p_latency)
MAX_EXCHANGE_SHARE = 0.5
KV_TOLERANCE = 0.01


def describe_row(row: PublishedRow, devices: Devices) -> CostModel:
    """The cost model of the row's setup, uncalibrated.

    Raises:
        CatalogError: its KV bytes are not those of the model, its weights do not fit, or a figure is missing.
    """
    model = find_model(row.text["model"])
    if model is None:
        raise CatalogError(f"model {row.text['model']!r:.60} is not in the catalogue")
    kv_dtype = _kv_dtype(row, model.geometry)
    setting = MachineSpec(
        gpu=row.text["gpu"],
        num_gpus=row.num_gpus,
        dtype=row.dtype,
        kv_dtype=kv_dtype,
        bytes_per_s=row.storage_bytes_per_s,
        storage=_catalogued(row, devices),
    )
    return build_model(model, setting, devices)


def _catalogued(row: PublishedRow, devices: Devices) -> str | None:
    """The name of the drive, network or store of the catalogue that the row's tier is; None where it says more or less."""
    tier, name = row.tier, drive_name(row.text["load_tier"])
    if tier.bytes_per_s is not None or tier.in_memory or tier.doubt or not name:
        return None
    try:
        find_storage_rate(devices, name)
    except CatalogError:
        return None
    return name


def format_taken(row: PublishedRow, devices: Devices) -> tuple[str, ...]:
    """What the row's names were taken as where the catalogue has them in other words, and what was not checked."""
    gpu, model = devices.find_gpu(row.text["gpu"]), find_model(row.text["model"])
    said = [] if gpu.is_called(row.text["gpu"]) else [f"GPU {row.text['gpu']!r:.60} taken as {gpu.name}"]
    if model is not None and not is_called(model, row.text["model"]):
        said.append(f"model {row.text['model']!r:.60} taken as {model.name}")
    tier, words = row.tier, row.text["load_tier"]
    if row.kind in LOADING and tier.in_bits and tier.bytes_per_s is not None:
        said.append(f"{words!r:.60} taken as {tier.bytes_per_s / 1e9:g} GB/s: it is in bits")
    name = _catalogued(row, devices) if row.kind in LOADING else None
    if name is not None:
        _, _, notices = find_storage_rate(devices, name)
        said += notices
    return (*said, *format_memory(gpu))


def _kv_dtype(row: PublishedRow, geometry: Geometry) -> str:
    """The KV dtype whose bytes per token are those of the row; 2 bytes where the row does not say."""
    stated = row.number["derived_kv_bytes_per_token"]
    if stated is None:
        return "bfloat16"
    for dtype in ("bfloat16", "fp8"):
        if abs(geometry.layout(dtype).bytes_per_token / stated - 1) <= KV_TOLERANCE:
            return dtype
    ours = geometry.layout("bfloat16").bytes_per_token
    raise CatalogError(f"KV bytes per token are {stated:.0f} in the row and {ours} by the model's dimensions")


def require_modelled(row: PublishedRow, base: CostModel) -> None:
    """Refuse what the formulas leave out.

    Raises:
        CatalogError: ranks that mostly wait for each other, or by an unknown rate.
    """
    tokens = row.tokens or int(row.number["crossover_tokens"] or 1)
    compute = sum(base.kernel_s(tokens)) / base.engine.compute_share
    if base.num_gpus > 1 and base.exchange_s(tokens) > MAX_EXCHANGE_SHARE * compute:
        raise CatalogError(
            f"TP{base.num_gpus} leaves {compute * 1e3:.3g} ms of compute to {base.exchange_s(tokens) * 1e3:.3g} ms"
            " of exchanges: bound by communication, which is not modelled"
        )
    if base.num_gpus > 1 and base.peer_bytes_per_s is None:
        raise CatalogError("the rate between the GPUs is unknown, and the row has several")


def require_storage(row: PublishedRow, devices: Devices) -> None:
    """Refuse a load from where nobody knows how fast it is.

    Raises:
        CatalogError: says what is missing.
    """
    tier = row.tier
    if row.kind not in LOADING or tier.in_memory or tier.bytes_per_s is not None or _catalogued(row, devices):
        return
    raise CatalogError(tier.doubt or format_unstated(row.text["load_tier"]))
