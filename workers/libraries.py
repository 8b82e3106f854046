"""Optional libraries, imported on first use, and the command that installs one."""

from importlib import import_module
from types import ModuleType

from workers.errors import MissingLibraryError


def require(name: str, extra: str) -> ModuleType:
    """Import a library. Raises MissingLibraryError, naming the extra, if the import fails."""
    try:
        return import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        # RuntimeError too: torchvision built for another torch version raises it.
        raise MissingLibraryError(
            f"{name} cannot be imported ({type(error).__name__}): run {with_extra(extra)}"
        ) from error


# In the words of `lethe.install`: the numerical packages have their own copy.
def with_extra(extra: str) -> str:
    """Return the command that reinstalls Lethe from a clone with an extra of pyproject.toml."""
    return f"in a clone of Lethe: pip install -c constraints.txt '.[{extra}]'"
