"""From what a user names a model by, to the model: catalogue key, file, folder or hub name.

The config.json of a model on the Hugging Face hub, and nothing else of it.
"""

import difflib
import json
import re
import ssl
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NoReturn

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.errors import HTTPError as ClientError  # type: ignore[attr-defined]  # httpx or its heir

from bench.catalog.models.architecture import read_geometry
from bench.catalog.models.architectures import ARCHITECTURES
from bench.catalog.models.fields import CatalogError, Fields, find_text_fields
from bench.catalog.models.geometry import Geometry
from bench.catalog.models.kv_dtype import find_declared_kv_dtype, find_declared_weight_dtype

PROBE_S = 4.0  # the hub client retries for half a minute; one probe fails sooner
ADVICE = "pass a local config.json, or a key of the catalogue"


def fetch_config(name: str) -> Path:
    """Local path of config.json of `org/name`: from the hub's cache, else downloaded.

    HF_HUB_OFFLINE, HF_ENDPOINT, HF_TOKEN and proxies are honoured.

    Raises:
        CatalogError: there is no such model, it may not be read, or there is no network; one line.
    """
    try:
        cached = try_to_load_from_cache(name, "config.json")
        if isinstance(cached, str):
            return Path(cached)
        _require_reachable(name)
        return Path(hf_hub_download(name, "config.json", etag_timeout=PROBE_S))
    except HFValidationError as error:
        raise CatalogError(f"model {name!r:.120} is not a hub name: {_line(error)}") from error
    except HfHubHTTPError as error:  # no such repository, gated, server trouble
        raise CatalogError(f"model {name!r:.120}: the hub gives no config.json: {_line(error)}") from error
    except (ClientError, OSError) as error:
        raise CatalogError(
            f"model {name!r:.120}: config.json cannot be downloaded: {_line(error)}"
        ) from error


def _require_reachable(name: str) -> None:
    """Fail within seconds on a machine without network."""
    if constants.HF_HUB_OFFLINE:
        raise CatalogError(
            f"model {name!r:.120} is in neither catalogue nor hub cache, and HF_HUB_OFFLINE is set; {ADVICE}"
        )
    request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PROBE_S):
            return
    except urllib.error.HTTPError:
        return  # it answered
    except OSError as error:
        if isinstance(getattr(error, "reason", None), ssl.SSLError):
            return  # it answered; the client library brings certificates of its own
        raise CatalogError(
            f"model {name!r:.120} is not in the catalogue, and {constants.ENDPOINT} does not answer"
            f" ({_line(error)}); {ADVICE}"
        ) from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


CATALOGUE = Path(__file__).parents[1] / "tables" / "models.toml"
ABSENT = "none"  # TOML has no null
AUTO = "auto"
MAX_CONFIG_BYTES = 16 * 2**20
# fields about stored weights or code, which must not be passed on to the built model
NOT_BUILT = frozenset(
    {
        "model_type",
        "architectures",
        "auto_map",
        "quantization_config",
        "transformers_version",
        "_name_or_path",
        "use_cache",
        "cache_implementation",
        "_attn_implementation",
        "attn_implementation",
        "torch_dtype",
        "dtype",
        "prefix",
    }
)
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Model:
    """One model by its dimensions."""

    key: str  # short name, used in paths and tables
    name: str  # name on the Hugging Face hub, or the path that was given
    # what `transformers.AutoConfig.for_model(**config)` builds it from, model_type included
    config: dict[str, object] = field(hash=False)
    geometry: Geometry  # all counts
    source: str  # where the dimensions come from
    # of the published weights, by the hub's quantization_config (fp8, mxfp4 …); None without one
    published_dtype: str | None = None
    declared_kv_dtype: str | None = None  # by the checkpoint's quantization_config; None without one

    @property
    def model_type(self) -> str:
        """The architecture's name in transformers."""
        return str(self.config["model_type"])

    def choose_kv_dtype(self, asked: str) -> str:
        """The KV dtype asked for; for "auto" the checkpoint's, as engines do, else bfloat16."""
        return asked if asked != AUTO else self.declared_kv_dtype or "bfloat16"


@cache
def read_catalogue() -> dict[str, Model]:
    """All models of models.toml by key."""
    entries = tomllib.loads(CATALOGUE.read_text())
    return {key: _read_entry(key, entry) for key, entry in entries.items()}


def resolve_model(spec: str) -> Model:
    """The model that `spec` names: a catalogue key or name, a config.json or its folder, a hub name.

    Raises:
        CatalogError: nothing has that name, or what has it is not understood; one line.
    """
    catalogue = read_catalogue()
    by_name = {model.name.lower(): model for model in catalogue.values()}
    found = catalogue.get(spec.lower()) or by_name.get(spec.lower())
    if found is not None:
        return found
    path = Path(spec).expanduser()
    if spec.strip() and _exists(path):
        return read_config(path)
    if HUB_NAME.fullmatch(spec) and not spec.endswith(".json"):
        file = fetch_config(spec)
        config = _load_json(file, spec)
        source = f"https://huggingface.co/{spec}"
        return describe_config(config, spec, key=_key(spec.split("/")[1]), name=spec, source=source)
    _refuse_unknown(spec, [*catalogue, *(model.name for model in catalogue.values())])


def read_config(path: Path) -> Model:
    """The model of a Hugging Face config.json, or of a folder that has one."""
    file = path / "config.json" if path.is_dir() else path
    config = _load_json(file, str(file))
    stem = file.resolve().parent.name if file.name == "config.json" else file.stem
    return describe_config(config, str(file), key=_key(stem), name=str(path), source=str(file))


def describe_config(config: Mapping[str, object], place: str, *, key: str, name: str, source: str) -> Model:
    """The model that the fields of a configuration describe; `place` is for messages."""
    model_type, values, wrapper = find_text_fields(config, place)
    architecture = ARCHITECTURES.get(model_type)
    if architecture is None:
        near = difflib.get_close_matches(model_type, ARCHITECTURES, n=3)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise CatalogError(
            f"{place}: field model_type: {model_type!r:.60} is not understood, so no counts{hint}"
        )
    fields = Fields(values, place, defaults=architecture.defaults)
    if wrapper is not None:
        Fields(wrapper, place).require_understood()
    geometry = read_geometry(fields, architecture)
    built = {entry: value for entry, value in values.items() if entry not in NOT_BUILT}
    dtype = values.get("dtype", values.get("torch_dtype", config.get("torch_dtype")))
    if isinstance(dtype, str):
        built["dtype"] = dtype
    found = values.get("quantization_config") or config.get("quantization_config")
    quantization = found if isinstance(found, Mapping) else {}
    return Model(
        key,
        name,
        {"model_type": architecture.builds, **built},
        geometry,
        source,
        find_declared_weight_dtype(quantization),
        find_declared_kv_dtype(quantization, place),
    )


def _read_entry(key: str, entry: dict[str, object]) -> Model:
    place = f"models.toml: {key}"
    dimensions = {
        name: None if value == ABSENT else value
        for name, value in entry.items()
        if name not in {"name", "source"}
    }
    for needed in ("name", "source"):
        if not isinstance(entry.get(needed), str):
            raise CatalogError(f"{place}: field {needed}: missing")
    return describe_config(dimensions, place, key=key, name=str(entry["name"]), source=str(entry["source"]))


def _key(name: str) -> str:
    """A short name that is fit for a folder."""
    return re.sub(r"[^\w.-]+", "-", name.lower()).strip("-.") or "model"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise CatalogError(f"{str(path)[:120]}: {error.strerror}") from error


def _load_json(file: Path, place: str) -> dict[str, object]:
    try:
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise CatalogError(f"{place}: {file.stat().st_size} bytes are too many for a config.json")
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise CatalogError(f"{place}: {error.strerror}; a config.json or its folder is needed") from error
    except RecursionError as error:
        raise CatalogError(f"{place}: nested too deeply for a config.json") from error
    except CatalogError:
        raise
    except ValueError as error:  # broken JSON, bytes that are no text
        raise CatalogError(f"{place}: not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise CatalogError(f"{place}: holds a {type(config).__name__}, not an object of fields")
    return config


def _refuse_unknown(spec: str, known: list[str]) -> NoReturn:
    near = difflib.get_close_matches(spec.lower(), known, n=4, cutoff=0.5)
    hint = f"near it: {', '.join(near)}" if near else f"keys: {', '.join(sorted(read_catalogue()))}"
    raise CatalogError(
        f"model {spec!r:.120} is no catalogue key, no file or folder, and no org/name of the hub; {hint}"
    )
