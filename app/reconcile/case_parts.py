"""Parts of a case, and the log entry that commits to each and to the case's dates.

An entry of the log commits to each part, so that write access to the database is not enough to
put another request into a signed answer, or to end a case's retention early.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from app.ledger.sequencer import Ledger
from app.reconcile.model_events import model_events
from app.schemas.base import format_time
from lethe import canonical
from models import Case

OPENED = "case.opened"
FOLLOWING = "following"  # the kind of a part whose records somebody else's request erases
REPLACES = "replaces"  # digest in the entry of a part that continues an earlier one


@dataclass(frozen=True, slots=True)
class Part:
    """A part as stored in the row. request, request_ref: of the request that erases it.

    removed: how many held-out rows of the person were removed; removal_index: of the log entry
    of the removal.
    """

    model: str
    found: str
    records: int
    request: str | None
    request_ref: str | None
    removed: int
    removal_index: int | None
    log_index: int

    def commitment(self, case: Case, key: bytes) -> str:
        """Return the digest by which the log commits to the part and its case."""
        said = {
            "case": case.ref,
            "due_at": format_time(case.due_at),
            "found": self.found,
            "model": self.model,
            "opened_by": case.opened_by,
            "received_at": format_time(case.received_at),
            "records": str(self.records),
            "regulation": case.regulation,
            "removal_index": "" if self.removal_index is None else str(self.removal_index),
            "removed": str(self.removed),
            "request": self.request or "",
            "request_ref": self.request_ref or "",
        }
        return hmac.digest(key, canonical.encode(said), "sha256").hex()

    def replaced(self, key: bytes) -> str:
        """Return the digest by which the entry of a later part says that it replaces this."""
        return hmac.digest(key, b"replaces\0%d" % self.log_index, "sha256").hex()


def contact_digest(key: bytes, contact: str | None) -> str:
    """Return the digest by which the log commits to the contact address."""
    return hmac.digest(key, b"contact\0" + (contact or "").encode(), "sha256").hex()


def stored_parts(case: Case) -> list[Part]:
    """Return the parts of a case as stored, unchecked."""
    return [Part(**part) for part in case.parts]


def logged_part(ledger: Ledger, part: Part) -> Mapping[str, str]:
    """Return the digests of the log's entry of a part, none if it has no such entry.

    Raises as `model_events`.
    """
    logged = model_events(ledger, part.model, OPENED)
    place = logged.before(part.log_index)
    if place >= len(logged) or logged[place][0] != part.log_index:
        return {}
    return logged[place][1].digests


def was_opened_since(ledger: Ledger, model: str, index: int) -> bool:
    """Return whether the log has a case in a model that was opened after an entry.

    A part that continues an earlier one opens none: nobody was looked up. Raises as
    `model_events`.
    """
    logged = model_events(ledger, model, OPENED)
    return any(
        REPLACES not in logged[place][1].digests
        for place in range(logged.before(index), len(logged))
        if logged[place][0] > index
    )


def logged_parts(ledger: Ledger, case: Case) -> list[Part] | None:
    """Return the parts of a case, None unless the log commits to them and to its dates.

    None too if the log has a later part in the place of one of them, and after the case's
    retention: the key that opens the entries is destroyed. Raises as `model_events`.
    """
    parts = stored_parts(case)
    if case.key is None or not parts:
        return None
    for part in parts:
        if logged_part(ledger, part).get("part") != part.commitment(case, case.key):
            return None
        if part.found == FOLLOWING and _is_replaced(ledger, part, case.key):
            return None
    return parts


def _is_replaced(ledger: Ledger, part: Part, key: bytes) -> bool:
    """Return whether a later entry replaces a part: the log commits to both."""
    logged = model_events(ledger, part.model, OPENED)
    later, wanted = range(logged.before(part.log_index) + 1, len(logged)), part.replaced(key)
    return any(logged[place][1].digests.get(REPLACES) == wanted for place in later)
