"""Optional libraries of the extractors, imported when one is asked for."""

from importlib import import_module
from types import ModuleType

from workers import install
from workers.data.extractors.base import ExtractorError


def require(name: str, extra: str) -> ModuleType:
    """Import a library. Raises ExtractorError, naming the extra, if that is impossible."""
    try:
        return import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        # Not only missing: torchvision built for another torch ends in a RuntimeError.
        raise ExtractorError(
            f"{name} cannot be imported ({type(error).__name__}): "
            f"run {install.with_extra(extra)}"
        ) from error
