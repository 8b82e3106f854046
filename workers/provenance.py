"""Digests of the code, and the environment, for certificates."""

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from lethe import DISTRIBUTION
from workers.methods.ridge.statistics import backend

PACKAGE = Path(__file__).parent


# What every room of the mathematics stands on.
SHARED = ("arrays.py", "blas_threads.py", "errors.py")
# Of networks, as their certificates name them: a certificate cites audits of equal code only.
NETWORK_ROOMS = (
    "training/fedavg",
    "training/networks",
    "methods/network",
    "methods/certified",
)


@cache
def code_digest(*rooms: str) -> str:
    """Return the hex SHA-256 over the source files of some rooms of `workers` and SHARED.

    Each file enters as path, NUL, length, NUL, bytes in the order of the paths, so that two
    different trees cannot spell the same input.
    """
    digest = hashlib.sha256()
    found = {room: list((PACKAGE / room).rglob("*.py")) for room in rooms}
    assert all(found.values()), rooms  # a room that was renamed would be left out
    files = [path for paths in found.values() for path in paths]
    for path in sorted([*files, *(PACKAGE / name for name in SHARED)]):
        data = path.read_bytes()
        name = path.relative_to(PACKAGE).as_posix()
        digest.update(name.encode() + b"\0" + str(len(data)).encode() + b"\0" + data)
    return digest.hexdigest()


def environment() -> dict[str, str]:
    """Return the versions that could matter to whoever repeats the computation.

    With the device this process sums on, if it is another than the processor's BLAS.
    """
    device = backend.current()
    return {**_versions(), **(device.environment if device else {})}


@cache
def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "lethe": metadata.version(DISTRIBUTION),
        "numpy": metadata.version("numpy"),
        "scipy": metadata.version("scipy"),
    }
