"""The timeline of a case: what was done at once on several models is one act."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Act:
    """An item of the timeline, with the models and log entries of all items like it."""

    item: Mapping[str, Any]
    models: list[str]
    entries: list[int]

    def includes(self, item: Mapping[str, Any]) -> bool:
        """Return whether an item is this act on another model."""
        alike = all(item[name] == self.item[name] for name in ("at", "event", "detail"))
        return alike and item["model"] not in self.models


def acts(timeline: Iterable[Mapping[str, Any]]) -> list[Act]:
    """Return the acts of a timeline (members as in the API), by their first log entries."""
    found: list[Act] = []
    for item in timeline:
        act = next((one for one in reversed(found) if one.includes(item)), None)
        if act is None:
            act = Act(item, [], [])
            found.append(act)
        act.models.append(item["model"])
        act.entries.append(item["log_index"])
    return found
