"""What somebody runs to get an optional library, as `lethe.install` says it.

The rooms of the mathematics import nothing of app, so they say it themselves.
"""


def with_extra(extra: str) -> str:
    """Return how to install Lethe again with an extra of pyproject.toml: from a clone."""
    return f"in a clone of Lethe: pip install -c constraints.txt '.[{extra}]'"
