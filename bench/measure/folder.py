"""Where a sweep's results lie: `results/<model>/<machine>/<utc>-<id>/`."""

import re
import secrets
from datetime import datetime
from pathlib import Path


def slug(text: str) -> str:
    """`text` as a folder name: lower case letters, digits, dots and dashes; never empty, never a dot name."""
    cleaned = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
    return cleaned[:64] or "unnamed"


def create_folder(root: Path, *, model_name: str, machine: str, started: datetime) -> tuple[str, Path]:
    """A fresh result folder and its run id.

    Raises:
        OSError: `root` is not writable.
    """
    run_id = f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    folder = root / slug(model_name) / slug(machine) / run_id
    folder.mkdir(parents=True)
    return run_id, folder


def find_latest(root: Path) -> Path | None:
    """The newest result folder below `root`, by run id; None when there is none."""
    found = sorted((path.parent for path in root.glob("*/*/*/run.json")), key=lambda folder: folder.name)
    return found[-1] if found else None
