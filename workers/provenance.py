"""Digests of the code, and a description of the environment, for certificates."""

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from lethe import DISTRIBUTION
from workers.methods.ridge.statistics import backend

PACKAGE = Path(__file__).parent


# What all numerical packages depend on.
SHARED = ("arrays.py", "blas_threads.py", "errors.py")
# The packages of networks. A certificate cites only audits of identical code.
NETWORK_ROOMS = (
    "training/fedavg",
    "training/networks",
    "methods/network",
    "methods/certified",
)


@cache
def code_digest(*rooms: str) -> str:
    """Return the hex SHA-256 over the source files of `rooms` and SHARED.

    A room is a package of `workers`, or begins with `lethe/`. Each file enters as path, NUL,
    length, NUL, bytes in the order of the paths, so that two different trees cannot produce the
    same input.
    """
    digest = hashlib.sha256()
    files = {name: PACKAGE / name for name in SHARED}
    for room in rooms:
        base = PACKAGE.parent if room.startswith("lethe/") else PACKAGE
        found = {
            path.relative_to(base).as_posix(): path for path in (base / room).rglob("*.py")
        }
        assert found, room  # otherwise a renamed room would be left out silently
        files |= found
    for name, path in sorted(files.items(), key=lambda file: Path(file[0])):
        data = path.read_bytes()
        digest.update(name.encode() + b"\0" + str(len(data)).encode() + b"\0" + data)
    return digest.hexdigest()


def environment() -> dict[str, str]:
    """Return the library versions that could matter when someone repeats the computation.

    Includes the device that this process sums on, unless it is the processor's BLAS.
    """
    device = backend.current()
    return {**versions(), **(device.environment if device else {})}


@cache
def versions() -> dict[str, str]:
    """Return the machine, and the versions of Python and of what is computed with."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "lethe": metadata.version(DISTRIBUTION),
        "numpy": metadata.version("numpy"),
        "scipy": metadata.version("scipy"),
    }
