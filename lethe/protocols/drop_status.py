"""California's DROP: the answer, a status for each work item.

Source: CalPrivacy, DROP technical specifications 1.2.0, "Status code reference". A response has
the name of the list that it answers and the header Id,Status. Status 4, opted out, concerns
sales and sharing: Lethe sells nothing and never answers it.
"""

from collections.abc import Mapping
from typing import Any

from lethe.catalogue import REFUSALS

EXEMPTED, DELETED, NOT_FOUND = 2, 3, 5
HEADER = "Id,Status\n"
# Refused because of the requester, not because the information is exempt.
_NO_EXEMPTION = ("not-verified", "unfounded")
_EXEMPTIONS = frozenset(
    text for code, text in REFUSALS["ccpa"].items() if code not in _NO_EXEMPTION
)
SOURCE = "held out at its source"


def status_of_found(found: list[Mapping[str, Any]]) -> int | None:
    """Return the status of a person with these findings; None: a case must be opened."""
    if any(one["records"] or one["held_out"] or one.get("uncertified") for one in found):
        return None
    return DELETED if any(one["erased"] for one in found) else NOT_FOUND


def status_of_case(case: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the status of a case, or None and the reason for waiting, in words."""
    exempt = {
        item["model"]
        for item in case["timeline"]
        if item["event"] == "request.refused" and item["detail"].get("reason") in _EXEMPTIONS
    }
    seen = set()
    for part in case["parts"]:
        outcome = part["outcome"]
        if outcome in ("in progress", "failed", "withdrawn"):
            return None, outcome
        if outcome == "refused":
            if part["model"] not in exempt:
                return None, outcome
            seen.add(EXEMPTED)
        elif outcome == "held out only" and not part["held_out_removed"]:
            return None, SOURCE
        elif outcome != "nothing found":
            seen.add(DELETED)
    # "Match found and non-exempt personal information was deleted", regardless of exemptions.
    status = DELETED if DELETED in seen else EXEMPTED if EXEMPTED in seen else NOT_FOUND
    return status, ""
