"""Optional libraries, imported on first use."""

from importlib import import_module
from types import ModuleType

from workers import install
from workers.errors import MissingLibraryError


def require(name: str, extra: str) -> ModuleType:
    """Import a library. Raises MissingLibraryError, naming the extra, if the import fails."""
    try:
        return import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        # RuntimeError too: torchvision built for another torch version raises it.
        raise MissingLibraryError(
            f"{name} cannot be imported ({type(error).__name__}): "
            f"run {install.with_extra(extra)}"
        ) from error
