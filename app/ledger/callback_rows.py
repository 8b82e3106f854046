"""Which rows of `callbacks` this installation wrote: their ids are keyed digests of the rest.

Whoever writes the database must not get what happens to a request sent to an address of theirs.
A row with another address, or of another request, has another id, and deliveries name the id
under a key of their own. An old row that is put back names the address that it always named.
"""

import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.ledger.entry_macs import EntryKey
from lethe import canonical
from models import Callback

LABEL = "lethe callbacks 1"
REQUEST = "request"  # the kind of callbacks that POST /v1/requests asks for


def callback_id(key: EntryKey, kind: str, owner: str, request: str, url: str) -> str:
    """Return the id of a callback: of these alone, and nobody's without the key."""
    return f"cb_{_hmac(key, ['callback', kind, owner, request, url])[:32]}"


def lane(key: EntryKey, kind: str, owner: str) -> str:
    """Return what stands for the owner of callbacks in their deliveries."""
    return f"cb-{_hmac(key, ['lane', kind, owner])[:24]}"


def new_rows(
    key: EntryKey,
    kind: str,
    owner: str,
    request: str,
    url: str,
    refs: Sequence[str],
    now: datetime,
) -> list[dict[str, Any]]:
    """Return the rows of a callback, one for each request of the log that it follows."""
    name = callback_id(key, kind, owner, request, url)
    told = {"kind": kind, "owner": owner, "request": request, "url": url}
    return [
        {"id": name, "ref": ref, **told, "created_at": now, "told": None, "ended": False}
        for ref in dict.fromkeys(refs or [""])
    ]


def is_authentic(key: EntryKey, row: Callback) -> bool:
    """Return whether this installation made the callback, with this address."""
    own = callback_id(key, row.kind, row.owner, row.request, row.url)
    return hmac.compare_digest(own.encode(), row.id.encode())


def _hmac(key: EntryKey, said: list[str]) -> str:
    return hmac.digest(key.derive(LABEL), canonical.encode(said), "sha256").hex()
