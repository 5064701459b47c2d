"""Runs the jobs of a reuse simulation on a Ray cluster, or on a Ray started on this machine.

What is sent around is one job: one policy over the requests of one pool.  Jobs need nothing of each other, so
the figures are those of a single process.  A shared pool is one job, wherever it runs.

Every machine of the cluster needs the same version of kvcross.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.reuse.pools import PoolJob, Runner
from bench.reuse.trace import IntArray
from kvio.errors import UserError

LOCAL = "local"
ANSWER_S = 5.0
ROOT = Path(__file__).parents[2]


class FleetError(UserError):
    """Ray is not there, not reachable, or lost a job."""


def require_ray() -> Any:  # noqa: ANN401
    """The ray module."""
    if find_spec("ray") is None:
        raise FleetError("skipped: ray is not installed: pip install 'kvcross[fleet]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    # a Ray 2 without accelerators warns of a coming change of this default; ours sets it either way
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return import_module("ray")


@contextmanager
def open_fleet(address: str) -> Iterator[Runner]:
    """A runner of jobs while the context lasts; Ray on this machine for "local", else the cluster there."""
    ray = require_ray()
    if address == LOCAL:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        asked = {"include_dashboard": False, "runtime_env": {"env_vars": {"PYTHONPATH": paths}}}
    else:
        _require_answer(address)
        asked = {}
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False, **asked)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise FleetError(f"no Ray at {address}: {error}; try --ray local") from error
    try:
        yield lambda jobs: _run(ray, jobs)
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Stop where nobody listens: Ray itself would go on trying for ever."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise FleetError(f"--ray {address!r}: write local, or HOST:PORT of the head of a cluster")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise FleetError(f"no Ray at {address}: {error}; try --ray local") from error


def _run(ray: Any, jobs: Sequence[PoolJob]) -> Iterator[list[IntArray]]:  # noqa: ANN401
    """Results in the order of the jobs; each trace is sent once."""
    remote = ray.remote(num_cpus=1)(run_job)
    traces = {id(job.part): ray.put(job.part) for job in jobs}
    futures = [
        remote.remote(traces[id(job.part)], job.policy, job.capacities_tokens, job.unit) for job in jobs
    ]
    for job, future in zip(jobs, futures, strict=True):
        try:
            yield ray.get(future)
        except ray.exceptions.RayError as error:
            raise FleetError(
                f"Ray lost a job ({job.policy}): {str(error).strip().splitlines()[-1]}"
            ) from error


def run_job(part: Any, policy: Any, capacities_tokens: Any, unit: Any) -> list[IntArray]:  # noqa: ANN401
    """One job on the machine that it was sent to."""
    return PoolJob(part, policy, capacities_tokens, unit).run()
