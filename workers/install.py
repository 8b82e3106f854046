"""The command that installs an optional library, in the words of `lethe.install`.

The numerical packages import nothing of `app`, so they have their own copy.
"""


def with_extra(extra: str) -> str:
    """Return the command that reinstalls Lethe from a clone with an extra of pyproject.toml."""
    return f"in a clone of Lethe: pip install -c constraints.txt '.[{extra}]'"
