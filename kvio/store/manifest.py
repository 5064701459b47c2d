"""What a store holds, as JSON beside its files."""

import json
from pathlib import Path

import xxhash
from pydantic import BaseModel, ConfigDict, ValidationError

from kvio.layout.chunk_geometry import ChunkGeometry
from kvio.layout.planes import KVLayout
from kvio.layout.presets import Preset
from kvio.store.store_files import Bytes, StoreError, write_file

MANIFEST_NAME = "manifest.json"
MANIFEST_NUMBER = 1


class Manifest(BaseModel):
    """Geometry and checksums of a store.

    Args:
        chunks: of each chunk, the xxh3_128 of its payload's bytes group by group, in `KVLayout.groups` order.
        states: the xxh3_128 of each linear-attention state.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifest_number: int = MANIFEST_NUMBER
    layout: KVLayout
    preset: Preset
    seed: int
    chunks: tuple[tuple[str, ...], ...]
    states: tuple[str, ...] = ()


def checksum(content: Bytes) -> str:
    """xxh3_128 of `content`, in hexadecimal."""
    return str(xxhash.xxh3_128_hexdigest(content.data))


def checksum_groups(geometry: ChunkGeometry, payload: Bytes) -> tuple[str, ...]:
    """The checksum of each group's bytes in a chunk's payload."""
    return tuple(checksum_group(geometry, payload, group) for group in range(len(geometry.layout.groups)))


def checksum_group(geometry: ChunkGeometry, payload: Bytes, group: int) -> str:
    """xxh3_128 of one group's bytes in a chunk's payload, front to back, in hexadecimal."""
    found = xxhash.xxh3_128()
    for part in geometry.segments:
        if part.group == group:
            found.update(payload[part.payload_offset : part.end].data)
    return str(found.hexdigest())


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest; a kill leaves the old or the new one."""
    write_file(directory / MANIFEST_NAME, [(manifest.model_dump_json() + "\n").encode()])


def read_manifest(directory: Path) -> Manifest:
    """The manifest of the store in `directory`.

    Raises:
        StoreError: there is none (a store half written has none), or it is not ours.
    """
    path = directory / MANIFEST_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{directory}: no {MANIFEST_NAME}; no whole store was written here") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StoreError(f"{path}: not readable as JSON: {error}") from error
    number = content.get("manifest_number") if isinstance(content, dict) else None
    if number != MANIFEST_NUMBER:
        raise StoreError(
            f"{path}: manifest number {number}, this kvcross reads {MANIFEST_NUMBER}; write it anew"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{path}: {where}: {first['msg']}") from None
