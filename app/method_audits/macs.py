"""Which numbers of an audit's pairs were recorded by a worker: the MAC of each row.

Rows lie between the worker that computed a pair and the one that signs the report. Whoever
writes the database in between could turn a leak into none. The key is derived from the model's
sealed secret, which the database has only under the master key.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import rfc8785

from app.ledger import journal
from lethe import canonical
from models import Model

# What a worker records of a pair and a report is made of.
RECORDED = ("before", "after", "retrained", "gave_way", "version", "environment")


def about(
    model: Model,
    audit_id: str,
    config: Mapping[str, str],
    version: str | None,
    code: str | None,
) -> dict[str, Any]:
    """Return what all pairs of an audit have in common, as each MAC holds it.

    config: of the audit. version: of its method. code: digest of what trains and unlearns.
    """
    return {
        "audit": audit_id,
        "config": dict(config),
        "registration": journal.digest_of(journal.pinned_of(model)),
        "method": version,
        "code": code,
    }


def pair_mac(
    key: bytes, common: Mapping[str, Any], pair: int, recorded: Mapping[str, Any]
) -> str:
    """Return HMAC-SHA256 in hex of a pair's number and what was `RECORDED` of it."""
    document = {**common, "pair": pair, **{name: recorded[name] for name in RECORDED}}
    return hmac.new(key, canonical.encode(document), hashlib.sha256).hexdigest()


def is_authentic(
    key: bytes,
    common: Mapping[str, Any],
    pair: int,
    recorded: Mapping[str, Any],
    mac: str | None,
) -> bool:
    """Return whether a worker recorded this of this pair."""
    try:
        wanted = pair_mac(key, common, pair, recorded)
    except rfc8785.CanonicalizationError:  # no worker records a NaN
        return False
    return hmac.compare_digest(wanted.encode(), (mac or "").encode())
