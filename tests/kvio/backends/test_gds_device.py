"""kvikio into a real GPU.  Needs a CUDA device and kvikio; `gds` needs a drive from which cuFile can DMA besides."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kvio.backends.gds.driver_probe import probe_driver
from kvio.backends.gds.gds_library import is_installed
from tests.helpers.commands import ROOT

LIMIT_S = 180
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(not is_installed("kvikio"), reason="kvikio is not installed"),
]

READ = """
import json, sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
import numpy as np, torch
from bench.arms.read_evidence import ReadEvidence
from kvio.backends import find_backend
from kvio.protocol import DeviceTarget, Read
from kvio.backends.config import BackendConfig
from kvio.evidence.storage_device import describe_storage
from kvio.evidence.cold_evidence import prove_data_path
from kvio.store.store_files import write_file
from kvio.evidence.page_cache import evict
from kvio.loading.transfer_gpu import make_staging

SIZE = 16 * 2**20
folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
path, content = folder / "chunk", np.random.default_rng(0).bytes(SIZE)
write_file(path, [content])
evict(path)
kind, device = find_backend("gds"), torch.device("cuda", 0)
torch.cuda.set_device(device)
target = DeviceTarget(0, make_staging(SIZE, device))
evidence = ReadEvidence(describe_storage(folder), read_path=kind.read_path)
setting = BackendConfig(direct=True, queue_depth=2, directory=folder, options=options)
with closing(kind.make(setting)) as backend:
    backend.attach([target, DeviceTarget(1, make_staging(SIZE, device))])
    backend.open(path)
    before = evidence.read_counters()
    half = SIZE // 2
    backend.submit(0, [Read(path, 0, half, half), Read(path, half, half, 0)], target)
    arrived = sum(arrival.num_bytes for arrival in backend.wait())
    moved = evidence.read_counters().moved_since(before)
way = prove_data_path(backend="gds", asked_direct=True, state="direct", payload_bytes=SIZE, moved=moved)
right = target.tensor.cpu().numpy().tobytes() == content[half:] + content[:half]
print(json.dumps({"arrived": arrived, "right": right, "way": way, "moved": asdict(moved)}))
"""


def _read(folder: Path, **options: str) -> dict[str, Any]:
    """What one process reads; cuFile's configuration is fixed at its first use, so each has its own."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder), json.dumps(options)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_kvikio_reads_into_the_gpu_without_cufile(tmp_path: Path) -> None:
    found = _read(tmp_path, compat="on")
    assert (found["arrived"], found["right"], found["way"]) == (16 * 2**20, True, ["kvikio-compat", []])
    assert not (tmp_path / "cufile.log").exists()


@pytest.mark.parametrize("register", ["on", "off"])
def test_what_cufile_reads_arrives_and_its_path_is_one_of_those_that_have_a_name(
    tmp_path: Path, register: str
) -> None:
    probe = probe_driver()
    if probe.outcome != "opened":
        pytest.skip(f"cuFile's driver does not open here: {probe.what}")
    found = _read(tmp_path, compat="off", register=register)
    assert (found["arrived"], found["right"]) == (16 * 2**20, True)
    path, codes = found["way"]
    assert path in {"gds-p2pdma", "gds-nvfs", "cufile-compat", "gds-unverified"}
    assert bool(codes) == (path in {"cufile-compat", "gds-unverified"})


@pytest.mark.gds
def test_cufile_moves_bytes_by_dma() -> None:
    named = os.environ.get("KVCROSS_GDS_DIR")
    if named is None:
        pytest.skip("KVCROSS_GDS_DIR names no folder on a drive from which cuFile can DMA")
    folder = Path(named)
    found = _read(folder, compat="off")
    assert found["way"][0] in {"gds-p2pdma", "gds-nvfs"}, found
    assert found["moved"]["path"]["cufile"]["num_posix"] == 0
