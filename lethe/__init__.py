"""Lethe for requesters and for verifiers of certificates.

    from lethe import AsyncClient, Client, verify

`Client` and `AsyncClient` call a service; `verify` checks a certificate offline. Everything
else in this package may change without notice.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.certificates.verify import Verdict, verify
    from lethe.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "Verdict", "verify"]

DISTRIBUTION = "lethe-ledger"  # what pip calls it: `lethe` on PyPI is another project
_HOMES = {
    "AsyncClient": "lethe.client",
    "Client": "lethe.client",
    "Verdict": "lethe.certificates.verify",
    "verify": "lethe.certificates.verify",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: `lethe --help` needs no HTTP client."""
    if name == "__version__":
        from importlib.metadata import version

        return version(DISTRIBUTION)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
