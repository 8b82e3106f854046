"""Names of columns: which there are, which a pattern means, and what is said of others."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from workers.errors import DatasetError

MOST_SHOWN = 20  # names of columns in a problem


def check_names(names: Iterable[str]) -> None:
    """Raise DatasetError for columns of one name, or of none."""
    seen: set[str] = set()
    for name in names:
        if not name:
            raise DatasetError("a column has no name: name each of them")
        if name in seen:
            raise DatasetError(f"{name}: two columns have this name: rename one of them")
        seen.add(name)


def unknown_column(name: str, names: Sequence[str]) -> str:
    """Return the problem of a column that a table does not have."""
    close = get_close_matches(name, names, n=1)
    if close:
        return f"{name}: no such column; did you mean {close[0]}?"
    return f"{name}: no such column; the table has {shown_names(names)}"


def shown_names(names: Sequence[str]) -> str:
    """Return names of columns for a person, the first of many."""
    more = f" and {len(names) - MOST_SHOWN:,} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the columns that a name or a glob means; a name that exists is no glob.

    Raises:
        DatasetError: There is none.
    """
    if pattern in names:
        return [pattern]
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise DatasetError(unknown_column(pattern, names))
    return found
