"""kvikio and cuFile in this process: configured once, with a log file and counters of their own."""

import os
import threading
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from kvio.backends.gds.cufile_counters import read_nvfs_bytes, read_statistics, start_statistics
from kvio.backends.gds.gds_library import GdsUnavailableError, import_cufile, import_kvikio
from kvio.backends.gds.gds_options import GdsOptions, require_plain_allocator
from kvio.evidence.gds_path import KvikioReads, PathCounters

LOG_VARIABLE = "CUFILE_LOGFILE_PATH"  # else cuFile drops cufile.log into the working directory


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is the same for all reads of a process.

    Args:
        options: of the case.
        direct: kvikio's own reads ask for O_DIRECT; cuFile's always do.
    """

    options: GdsOptions
    direct: bool

    @property
    def defaults(self) -> dict[str, int | bool]:
        """By name in `kvikio.defaults`; compat_mode as its number: OFF 0, ON 1, AUTO 2."""
        return {
            "compat_mode": int(self.options.compat),
            "num_threads": self.options.io_threads,
            "task_size": self.options.task_bytes,
            "gds_threshold": self.options.threshold_bytes,
            "bounce_buffer_size": self.options.bounce_bytes,
            "auto_direct_io_read": self.direct,
        }


class GdsProcess:
    """The libraries of this process; get it from `join_process`."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.kvikio = import_kvikio()
        _configure(self.kvikio, configuration)
        self._monitor: Any = self.kvikio.SummaryMonitor()
        self._cufile: ModuleType | None = None
        self._opened = False
        self._lock = threading.Lock()

    def open_cufile(self, log_folder: Path | None) -> None:
        """Open cuFile's driver and start its statistics, once; a CUDA context must be current.

        Raises:
            GdsUnavailableError: it refuses.
        """
        with self._lock:
            if self._opened or self.configuration.options.compat:
                return
            require_plain_allocator()
            if log_folder is not None:
                os.environ.setdefault(LOG_VARIABLE, str(log_folder / f"cufile-{os.getpid()}.log"))
            try:
                self.kvikio.cufile_driver.initialize()
            except RuntimeError as error:
                what = str(error).partition("\n")[0]
                raise GdsUnavailableError(
                    f"cuFile's driver does not open ({what}); --backend-option gds.compat=on"
                ) from error
            self._opened = True
            self._cufile = _start_counting()

    def read_counters(self) -> PathCounters:
        """What kvikio and cuFile have read in this process, and nvidia-fs on this machine."""
        return PathCounters(
            self.configuration.options.compat,
            self._read_kvikio(),
            None if self._cufile is None else read_statistics(self._cufile),
            read_nvfs_bytes(),
        )

    def _read_kvikio(self) -> KvikioReads:
        summary = self._monitor.get()
        carried = {name: totals["bytes_transferred"] for name, totals in summary.by_backend.items()}
        return KvikioReads(carried.get("POSIX", 0), carried.get("GDS", 0), summary.num_errors)


def _configure(kvikio: ModuleType, configuration: Configuration) -> None:
    """Set every default that shapes a read, and read it back."""
    wanted = configuration.defaults
    mode = kvikio.CompatMode(wanted["compat_mode"])  # type: ignore[operator, unused-ignore]
    kvikio.defaults.set({**wanted, "compat_mode": mode})
    for name, value in wanted.items():
        got = int(kvikio.defaults.get(name))
        if got != int(value):
            raise GdsUnavailableError(f"kvikio was told {name}={value} and holds to {got}")


def _start_counting() -> ModuleType | None:
    """cuFile's bindings, counting; None where the library or the bindings are too old to."""
    cufile = import_cufile()
    try:
        start_statistics(cufile)
    except (AttributeError, RuntimeError):  # no such function in the bindings; in the library
        return None
    except cufile.cuFileError as error:
        raise GdsUnavailableError(f"cuFile starts no statistics ({error})") from error
    return cufile


class _Membership:
    """The one `GdsProcess` of this process."""

    def __init__(self) -> None:
        self._process: GdsProcess | None = None
        self._pid = 0
        self._lock = threading.Lock()

    def join(self, configuration: Configuration) -> GdsProcess:
        """The process's libraries, configured like this.

        Raises:
            GdsUnavailableError: kvikio is not here, or was configured otherwise before.
        """
        with self._lock:
            if self._process is None or self._pid != os.getpid():  # of the parent, before a fork
                self._process, self._pid = GdsProcess(configuration), os.getpid()
            _require_same(self._process.configuration, configuration)
            return self._process

    def read_counters(self) -> PathCounters | None:
        """The process's counters; None when it has not joined."""
        with self._lock:
            joined = self._process if self._pid == os.getpid() else None
        return None if joined is None else joined.read_counters()


def _require_same(held: Configuration, asked: Configuration) -> None:
    """cuFile's configuration is fixed at its first use, and kvikio's pool and sizes are the process's."""
    if held == asked:
        return
    names = [
        f"{field.name}={getattr(asked.options, field.name)}"
        for field in fields(GdsOptions)
        if getattr(asked.options, field.name) != getattr(held.options, field.name)
    ]
    names += [f"direct={asked.direct}"] if held.direct != asked.direct else []
    raise GdsUnavailableError(
        f"one process holds one configuration of kvikio, and another part of this sweep differs from "
        f"{', '.join(names)}; sweep them one after the other"
    )


_MEMBERSHIP = _Membership()


def join_process(configuration: Configuration) -> GdsProcess:
    """The libraries of this process, configured like this.

    Raises:
        GdsUnavailableError: kvikio is not here, or was configured otherwise before.
    """
    return _MEMBERSHIP.join(configuration)


def read_path_counters() -> PathCounters | None:
    """What kvikio, cuFile and nvidia-fs have counted; None before `join_process`."""
    return _MEMBERSHIP.read_counters()
