import csv
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.catalog.models.fields import CatalogError
from bench.catalog.models.resolve import read_catalogue, resolve_model
from bench.catalog.models.summary import describe_model
from tests.helpers.commands import ROOT

# Computed by others from the dimensions that the sources named in models.toml give.  For 17 of the models
# the makers publish a rounded total of parameters; it agrees within 2.7 %.
with (ROOT / "tests" / "expected_models.csv").open() as _file:
    EXPECTED = {row["key"]: row for row in csv.DictReader(_file)}
TINY_LLAMA = (
    b'{"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,'
    b' "intermediate_size": 16, "vocab_size": 32}'
)
# embedding and head 2 x 32 x 8, attention 4 x 8 x 8, feed-forward 3 x 8 x 16, three norms of 8
TINY_LLAMA_PARAMS = 512 + 256 + 384 + 24


def test_the_catalogue_holds_the_31_reference_models() -> None:
    assert list(read_catalogue())[:31] == list(EXPECTED)
    assert len(EXPECTED) == 31


# totals of the checkpoints, as the model cards and the LLaMA paper round them: 1.24, 3.21, 69.0, 6.7 and 65.2 billion
@pytest.mark.parametrize(
    ("key", "kv_bytes", "params"),
    [
        ("llama-3.2-1b", 32_768, 1_235_814_400),
        ("llama-3.2-3b", 114_688, 3_212_749_824),
        ("llama-2-70b", 327_680, 68_976_648_192),
        ("llama-7b", 524_288, 6_738_415_616),
        ("llama-65b", 2_621_440, 65_285_660_672),
    ],
)
def test_models_of_published_rows_have_the_published_counts(key: str, kv_bytes: int, params: int) -> None:
    found = describe_model(resolve_model(key), "bfloat16")
    assert (found["kv_bytes_per_token"], found["params_total"]) == (kv_bytes, params)


@pytest.mark.parametrize("key", EXPECTED)
def test_counts_of_a_catalogue_model_equal_the_reference(key: str) -> None:
    expected = EXPECTED[key]
    found = describe_model(resolve_model(key), "bfloat16")
    layers = found["layers"]
    assert isinstance(layers, dict)
    seen = {
        "attention_kind": found["attention_kind"],
        "full": layers["full"],
        "windowed": layers["sliding_or_chunked"],
        "linear": layers["linear"],
        "window_tokens": "" if found["window_tokens"] is None else found["window_tokens"],
        "pair_flops_full": found["attention_flops_per_token_pair_full"],
        "pair_flops_window": found["attention_flops_per_token_pair_window"],
    }
    for column in expected.keys() - seen.keys() - {"key"}:
        seen[column] = found[column]
    assert {column: str(value) for column, value in seen.items()} == {
        column: value for column, value in expected.items() if column != "key"
    }


def test_every_entry_names_a_public_source_and_no_two_share_a_name() -> None:
    models = list(read_catalogue().values())
    assert all(
        model.source.startswith(("https://huggingface.co/", "PyPI ", "github ", "arXiv ")) for model in models
    )
    assert len({model.name for model in models}) == len(models)


def test_a_model_is_found_by_key_and_by_hub_name_in_any_case() -> None:
    model = resolve_model("qwen3-8b")
    assert resolve_model("Qwen/Qwen3-8B") is model
    assert resolve_model("qwen/qwen3-8b") is model
    assert resolve_model("QWEN3-8B") is model
    assert model.config["model_type"] == "qwen3"


def test_an_unknown_model_is_refused_with_near_matches() -> None:
    with pytest.raises(CatalogError, match=f"keys: {', '.join(sorted(read_catalogue()))}$"):
        resolve_model("zzz")
    with pytest.raises(CatalogError, match=r"'qwen3-9b' is no catalogue key.*near it: qwen3-8b"):
        resolve_model("qwen3-9b")


def test_a_path_that_is_not_there_is_refused() -> None:
    with pytest.raises(CatalogError, match=r"no file or folder"):
        resolve_model("/nowhere/config.json")


def test_description_of_gemma_3_stops_growing_by_window_layers() -> None:
    found = describe_model(resolve_model("gemma-3-12b"), "bfloat16")
    assert found["kv_bytes_at"] == {
        "1024": 393_216 * 1024,
        "8192": 335_544_320 + 65_536 * 8192,
        "131072": 335_544_320 + 65_536 * 131_072,
        "1000000": 335_544_320 + 65_536 * 1_000_000,
    }


def test_description_counts_linear_states_at_every_length() -> None:
    found = describe_model(resolve_model("qwen3-next-80b-a3b"), "bfloat16")
    assert found["kv_bytes_at"] == {str(n): 24_576 * n + 77_266_944 for n in (1024, 8192, 131_072, 1_000_000)}


def _resolve_in_child(name: str, cache: Path, **environment: str) -> tuple[str, float]:
    script = (
        "import sys\n"
        "from bench.catalog.models.resolve import resolve_model\n"
        "from bench.catalog.models.fields import CatalogError\n"
        "try: print(resolve_model(sys.argv[1]).geometry.params_total)\n"
        "except CatalogError as error: print(error)\n"
    )
    start_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, name],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HF_HOME": str(cache), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip(), time.monotonic() - start_s


def test_a_hub_name_without_network_is_refused_in_one_line_and_quickly(tmp_path: Path) -> None:
    # port 9 of the loopback address: nothing listens there
    said, seconds = _resolve_in_child("org/unheard-of", tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert said.startswith("model 'org/unheard-of' is not in the catalogue, and http://127.0.0.1:9 does not")
    assert "\n" not in said
    assert seconds < 15


def test_offline_mode_of_the_hub_is_honoured(tmp_path: Path) -> None:
    said, _ = _resolve_in_child("org/unheard-of", tmp_path, HF_HUB_OFFLINE="1")
    assert said == (
        "model 'org/unheard-of' is in neither catalogue nor hub cache, and HF_HUB_OFFLINE is set;"
        " pass a local config.json, or a key of the catalogue"
    )


class _Hub(BaseHTTPRequestHandler):
    """What the hub answers for one public model, and 404 for the rest."""

    def do_HEAD(self) -> None:
        known = self.path in {"/", "/org/mine/resolve/main/config.json"}
        self.send_response(200 if known else 404)
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        if not known:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", str(len(TINY_LLAMA)) if known else "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(TINY_LLAMA)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_config_is_downloaded_from_the_hub(tmp_path: Path, hub: str) -> None:
    said, _ = _resolve_in_child("org/mine", tmp_path, HF_ENDPOINT=hub)
    assert said == str(TINY_LLAMA_PARAMS)


def test_a_model_that_the_hub_does_not_have_is_refused_in_one_line(tmp_path: Path, hub: str) -> None:
    said, _ = _resolve_in_child("org/other", tmp_path, HF_ENDPOINT=hub)
    assert said.startswith("model 'org/other': the hub gives no config.json: ")
    assert "\n" not in said


def test_a_config_in_the_hub_cache_is_read_without_network(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--mine"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_bytes(TINY_LLAMA)
    said, _ = _resolve_in_child("org/mine", tmp_path, HF_HUB_OFFLINE="1")
    assert said == str(TINY_LLAMA_PARAMS)
