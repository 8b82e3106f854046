"""Installation advice: always from a clone, never from PyPI.

The package `lethe` on PyPI is another project, with a higher version: advice to install it by
that name would put a stranger's code beside a signing key.
"""

CLONE = "in a clone of Lethe"


def with_extra(extra: str) -> str:
    """Return how to reinstall Lethe with an extra of pyproject.toml."""
    return f"{CLONE}: pip install -c constraints.txt '.[{extra}]'"


def again() -> str:
    """Return how to reinstall the base over a damaged installation."""
    return f"{CLONE}: pip install --force-reinstall -c constraints.txt ."
