"""Which model a sweep measures, in digests that a resumed one can be compared with: no weight is read."""

import hashlib
import json
from pathlib import Path

from bench.catalog.models.resolve import Model
from bench.measure.setup import ResolvedPlan
from bench.record.plan import PlanError
from bench.record.run import RunRecord

DIGEST_CHARS = 16  # of SHA-256, in hexadecimal
MAX_HEADER_BYTES = 100_000_000  # of a safetensors file; source: the format's own limit


def digest_config(model: Model) -> str:
    """Of all that the model is built from."""
    return _digest(json.dumps(model.config, sort_keys=True).encode())


def digest_weights(folder: str | None) -> str | None:
    """Of names, sizes and headers of the safetensors in `folder`, and of their index; None without a folder.

    Raises:
        PlanError: one cannot be read.
    """
    if folder is None:
        return None
    parts: list[bytes] = []
    for path in sorted([*Path(folder).glob("*.safetensors"), *Path(folder).glob("*.safetensors.index.json")]):
        try:
            parts += [path.name.encode(), str(path.stat().st_size).encode(), _read_head(path)]
        except OSError as error:
            raise PlanError(f"{path}: weights cannot be read: {error.strerror}") from None
    return _digest(b"\0".join(parts))


def compare_models(run: RunRecord, setup: ResolvedPlan) -> list[str]:
    """In what the model of a sweep differs from what its plan names now, each as "what: then, now".

    Sweeps before schema 4 have no digests, and are compared by what they have.
    """
    pairs: list[tuple[str, object, object]] = [
        ("kv_bytes_per_token", run.kv_bytes_per_token, setup.bytes_per_token),
        ("chunk_tokens", run.chunk_tokens, setup.chunk_tokens),
    ]
    kept = [(f"KV bytes at {n} tokens", then, setup.bytes_at(n)) for n, then in run.kv_bytes_at.items()]
    pairs += [pair for pair in kept if pair[1] != pair[2]][:1]  # as good as all of them
    if run.model_digest is not None:
        pairs.append(("digest of the config", run.model_digest, digest_config(setup.model)))
    if run.weights_digest is not None:
        pairs.append(("digest of the weights", run.weights_digest, digest_weights(run.plan.weights)))
    return [f"{what}: {then}, {now}" for what, then, now in pairs if then != now]


def _read_head(path: Path) -> bytes:
    """The header of a safetensors file, its length in 8 bytes first; all of an index."""
    if path.suffix == ".json":
        return path.read_bytes()
    with path.open("rb") as stream:
        length = stream.read(8)
        return length + stream.read(min(int.from_bytes(length, "little"), MAX_HEADER_BYTES))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGEST_CHARS]
