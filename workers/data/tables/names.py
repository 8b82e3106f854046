"""Column names: checks, patterns, and messages about unknown ones."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from workers.errors import DatasetError

MOST_SHOWN = 20  # names of columns in a problem


def check_names(names: Iterable[str]) -> None:
    """Raise DatasetError for duplicate or empty column names."""
    seen: set[str] = set()
    for name in names:
        if not name:
            raise DatasetError("a column has no name: name each of them")
        if name in seen:
            raise DatasetError(f"{name}: two columns have this name: rename one of them")
        seen.add(name)


def unknown_column(name: str, names: Sequence[str]) -> str:
    """Return the message for a column that a table does not have."""
    close = get_close_matches(name, names, n=1)
    if "," in name and set(map(str.strip, name.split(","))) <= set(names):
        return f"{name}: one name for each option: repeat the option"
    if close:
        return f"{name}: no such column; did you mean {close[0]}?"
    return f"{name}: no such column; the table has {shown_names(names)}"


def shown_names(names: Sequence[str]) -> str:
    """Return column names for a person, shortened if there are many."""
    more = f" and {len(names) - MOST_SHOWN:,} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the columns that match a name or a glob; an existing name is no glob.

    Raises DatasetError if none matches.
    """
    if pattern in names:
        return [pattern]
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise DatasetError(unknown_column(pattern, names))
    return found
