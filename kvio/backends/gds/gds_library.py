"""The one place that imports kvikio and cuFile's bindings, when they are chosen."""

import importlib.metadata
import importlib.util
from types import ModuleType

from kvio.errors import KVIOError

INSTALL = "pip install -c constraints.txt -e '.[gds]'"


class GdsUnavailableError(KVIOError):
    """A part of GPUDirect Storage is not here, or refuses to work; what, and what helps."""


def import_kvikio() -> ModuleType:
    """The kvikio package.

    Raises:
        GdsUnavailableError: it is not installed, or cannot be loaded.
    """
    try:
        import kvikio
        import kvikio.cufile_driver
        import kvikio.defaults
    except (ImportError, OSError) as error:  # OSError: a shared library that it needs
        raise GdsUnavailableError(f"kvikio cannot be loaded ({_first_line(error)}); {INSTALL}") from error
    module: ModuleType = kvikio
    return module


def import_cufile() -> ModuleType:
    """cuFile's bindings, `cuda.bindings.cufile`.

    Raises:
        GdsUnavailableError: they are not installed, or find no libcufile.
    """
    try:
        from cuda.bindings import cufile
    except (ImportError, OSError, RuntimeError) as error:  # RuntimeError: no libcufile was found
        raise GdsUnavailableError(f"cuFile cannot be loaded ({_first_line(error)}); {INSTALL}") from error
    module: ModuleType = cufile
    return module


def is_installed(module: str) -> bool:
    """Whether `module` could be imported, without importing it (kvikio may spin where there is no GPU)."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
