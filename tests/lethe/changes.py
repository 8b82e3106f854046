"""Changes to a JSON document, by the path of what is replaced."""

from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, Any]], None]


def put(*path: str | int, value: Any) -> Change:
    """Return what replaces a value; numbers are places in lists."""

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return change
