"""The config.json of a model on the Hugging Face hub, and nothing else of it."""

import ssl
import urllib.error
import urllib.request
from pathlib import Path

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.errors import HTTPError as ClientError  # type: ignore[attr-defined]  # httpx or its heir

from bench.catalog.models.fields import CatalogError

PROBE_S = 4.0  # the hub client retries for half a minute; one probe before it says so sooner
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
    """One quick request, so that a machine without network is told so in seconds."""
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
