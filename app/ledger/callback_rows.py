"""Authenticates rows of `callbacks`: a row's id is a keyed digest of its other columns.

An attacker who can write the database must not have a request's events sent to an address of
theirs. Changing a row's address or request makes its id wrong, and deliveries name the id under
a separate key. Restoring an old row is harmless, since its address cannot have changed.
"""

import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.ledger.entry_macs import EntryKey
from lethe import canonical
from models import Callback

LABEL = "lethe callbacks 1"
REQUEST = "request"  # the kind of callback that POST /v1/requests registers


def callback_id(key: EntryKey, kind: str, owner: str, request: str, url: str) -> str:
    """Return a callback's id: an HMAC of these values, which needs the key to compute."""
    return f"cb_{_hmac(key, ['callback', kind, owner, request, url])[:32]}"


def lane(key: EntryKey, kind: str, owner: str) -> str:
    """Return the pseudonym of a callback's owner in its deliveries."""
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
    """Return a callback's rows, one for each logged request that it follows."""
    name = callback_id(key, kind, owner, request, url)
    fixed = {"kind": kind, "owner": owner, "request": request, "url": url}
    return [
        {
            "id": name,
            "ref": ref,
            **fixed,
            "created_at": now,
            "delivered_state": None,
            "ended": False,
        }
        for ref in dict.fromkeys(refs or [""])
    ]


def is_authentic(key: EntryKey, row: Callback) -> bool:
    """Return whether this installation wrote the callback with its current address."""
    own = callback_id(key, row.kind, row.owner, row.request, row.url)
    return hmac.compare_digest(own.encode(), row.id.encode())


def _hmac(key: EntryKey, said: list[str]) -> str:
    return hmac.digest(key.derive(LABEL), canonical.encode(said), "sha256").hex()
