"""Log entries: what happened, without personal data.

A leaf is permanent, so it holds a commitment to the event instead of the event. The event and
the random key of its commitment are in tables that can be erased; once the key is destroyed,
nothing in the log can be linked to the person. No field can hold a name, an address or an
e-mail address: each has a restricted format.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from hmac import compare_digest, digest
from types import MappingProxyType
from typing import Any
from uuid import UUID

from rfc8785 import CanonicalizationError

from lethe import canonical
from lethe.canonical import format_base64, parse_base64
from lethe.errors import LetheError
from lethe.log.checkpoint import open_checkpoint
from lethe.log.key_changes import KeyChange, MasterKeyChange, key_change, master_key_change
from lethe.log.note import parse_log_vkey, read_note
from lethe.log.tiles import MAX_ENTRY

COMMITMENT_KEY_SIZE = 32  # bytes, fresh for each request
COMMITMENT_SIZE = 32  # bytes, HMAC-SHA256

ERASURE_EVENT = "erasure-event"
MODEL_EVENT = "model-event"
KEY_EVENT = "key-event"
LOG_EVENT, SUCCEEDED = "log-event", "log.succeeded"  # the first entry of a successor log
SERVICE_KEY_EVENT = "service-key-event"  # of a service's signing key; lethe/log/key_changes.py
MASTER_KEY_EVENT = "master-key-event"  # of a secret key; lethe/log/key_changes.py
HOLD_EVENT = "hold-event"
RETENTION_EVENT, RETENTION_ENDED = "retention-event", "retention.ended"
HASHEDREKORD = "hashedrekord"  # a certificate; lethe/certificates/bundle.py writes it

MAX_EVENT = 60  # characters, the width of the column
_EVENT = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)+")
_MODEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_DIGEST_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEPT = re.compile(r"[a-z][a-z-]{0,31}")  # a kind of data with a retention period
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T00:00:00Z")


class EntryError(LetheError):
    """Fields or bytes that cannot be a log entry."""

    slug, title, status = "bad-entry", "Not a valid log entry", 400


class CommitmentError(LetheError):
    """An event and key that do not open the commitment in the log."""

    slug, title, status = "commitment-mismatch", "The commitment does not open", 400


@dataclass(frozen=True, slots=True)
class Leaf:
    """A parsed entry. Fields that its kind does not have are None or empty.

    `digests` maps names to SHA-256 in lower-case hex; a certificate's is "sha256", over the
    pre-authentication encoding of its envelope, and a retention event's is "items".
    `checkpoint` is the last note of the log that this one succeeds, `key` the change of a
    service key, `master` of a master key, `ended` the number destroyed of each kind at the end
    of a retention.
    """

    kind: str
    event: str | None = None
    ref: str | None = None
    commitment: bytes | None = None
    digests: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    day: date | None = None
    checkpoint: str | None = None
    key: KeyChange | None = None
    master: MasterKeyChange | None = None
    ended: Mapping[str, "Ended"] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Ended:
    """Destroyed data of one kind: `count` items whose retention ended before day `before`."""

    count: int
    before: date


def event_leaf(event: str, ref: str, commitment: bytes, day: date) -> bytes:
    """Return the entry for an event of the erasure request `ref` (a UUID version 4).

    Only the date of `day` is stored: a time of day would help to identify the person. Raises
    EntryError: a field does not have the allowed format.
    """
    return _committed(ERASURE_EVENT, event, ref, commitment, day)


def key_leaf(event: str, ref: str, commitment: bytes, day: date) -> bytes:
    """Return the entry for an event of the key registration `ref` (a UUID version 4).

    The keyid is only in the event: it may name its holder. Raises EntryError: a field does not
    have the allowed format.
    """
    return _committed(KEY_EVENT, event, ref, commitment, day)


def hold_leaf(event: str, ref: str, commitment: bytes, day: date) -> bytes:
    """Return the entry for an event of the legal hold `ref` (a UUID version 4).

    The held object is only in the event: the public must not learn what a lawsuit is about.
    Raises EntryError: a field does not have the allowed format.
    """
    return _committed(HOLD_EVENT, event, ref, commitment, day)


def model_leaf(event: str, ref: str, digests: Mapping[str, str], day: date) -> bytes:
    """Return the entry for an event of model `ref`; `digests` are SHA-256 in hex.

    Raises EntryError: a field does not have the allowed format, or the entry is too long.
    """
    _require_event(event)
    if not _MODEL.fullmatch(ref):
        raise EntryError("a model ref is a-z, 0-9, '.', '_' and '-', at most 80 long")
    for name, value in digests.items():
        if not (_DIGEST_NAME.fullmatch(name) and _SHA256.fullmatch(value)):
            raise EntryError("digests map simple names to SHA-256 in lower-case hex")
    spec = {"at": _format_day(day), "digests": dict(digests), "event": event, "ref": ref}
    return _encode(MODEL_EVENT, spec)


def succession_leaf(vkey: str, checkpoint: str, day: date) -> bytes:
    """Return the first entry of a log that succeeds a log which cannot continue.

    `checkpoint` is the last note that the other log's key is known to have signed, with that
    key's line alone, and `vkey` its verifier key, so that readers of the entry can verify the
    note. Raises EntryError: the note is not a checkpoint that this key signed, or has other
    lines.
    """
    try:
        verifier = parse_log_vkey(vkey)
        open_checkpoint(checkpoint, verifier)
        opened = read_note(checkpoint, [verifier])
    except LetheError as error:
        raise EntryError(f"no log is succeeded by this: {error.detail}") from None
    if opened.unverified or len(opened.verified) != 1:
        raise EntryError("the checkpoint of a log that is succeeded has its own line alone")
    return _encode(
        LOG_EVENT,
        {"at": _format_day(day), "checkpoint": checkpoint, "event": SUCCEEDED, "vkey": vkey},
    )


def service_key_leaf(change: KeyChange, day: date) -> bytes:
    """Return the entry for a change of a service key. Raises EntryError as `event_leaf`."""
    return _key_change(SERVICE_KEY_EVENT, change, day)


def master_key_leaf(change: MasterKeyChange, day: date) -> bytes:
    """Return the entry for a change of a master key. Raises EntryError as `event_leaf`."""
    return _key_change(MASTER_KEY_EVENT, change, day)


def _key_change(kind: str, change: KeyChange | MasterKeyChange, day: date) -> bytes:
    try:
        members = change.members()
    except ValueError as error:
        raise EntryError(str(error)) from None
    return _encode(kind, {"at": _format_day(day), **members})


def retention_leaf(ended: Mapping[str, Ended], items: str, day: date) -> bytes:
    """Return the entry for the destruction at the end of a retention, by kind.

    `items` is the SHA-256 in hex of the list of destroyed items, which the operator keeps.
    Raises EntryError: a field does not have the allowed format, or nothing was destroyed.
    """
    if not _SHA256.fullmatch(items) or not ended:
        raise EntryError("an end of retention has kinds, and the SHA-256 of its items")
    for kind, one in ended.items():
        # A bool is an int: `true` would be another spelling of 1.
        if not _KEPT.fullmatch(kind) or type(one.count) is not int or one.count < 1:
            raise EntryError("an end of retention has counts, from 1, of simply named kinds")
    counts = {kind: one.count for kind, one in ended.items()}
    spec = {
        "at": _format_day(day),
        "before": {kind: _format_day(one.before) for kind, one in ended.items()},
        "counts": counts,
        "event": RETENTION_ENDED,
        "items": items,
    }
    return _encode(RETENTION_EVENT, spec)


def commit_event(key: bytes, event: Mapping[str, Any]) -> bytes:
    """Return HMAC-SHA256(key, JCS(event)), 32 bytes.

    It hides the event while `key` is secret, even if all of it but one bit is known, and is
    binding once `key` is revealed. Never use a key twice. Raises EntryError: the key does not
    have 32 bytes, or the event is not JSON.
    """
    # HMAC pads shorter keys with zeros and hashes longer ones: two keys, one commitment.
    if len(key) != COMMITMENT_KEY_SIZE:
        raise EntryError(f"a commitment key has exactly {COMMITMENT_KEY_SIZE} bytes")
    try:
        message = canonical.encode(dict(event))
    except (ValueError, RecursionError, CanonicalizationError):
        raise EntryError("the event is not a JSON object") from None
    return digest(key, message, "sha256")


def check_commitment(key: bytes, event: Mapping[str, Any], commitment: bytes) -> None:
    """Check that `commitment` opens to `event` under `key`.

    Raises CommitmentError: it does not; EntryError: the key does not have 32 bytes, or the
    event is not JSON.
    """
    if not compare_digest(commit_event(key, event), commitment):
        raise CommitmentError("this key and event are not what the log committed to")


def parse_leaf(data: bytes) -> Leaf:
    """Parse an entry of any kind that Lethe writes.

    Raises EntryError: another kind, another spelling, or a field in the wrong format.
    """
    if len(data) > MAX_ENTRY:
        raise EntryError(f"an entry has at most {MAX_ENTRY} bytes")
    try:
        entry = canonical.decode(data)
        parse = _PARSERS[entry["kind"]]
        leaf, again = parse(entry)
    except (canonical.NotCanonicalError, *_MISSHAPEN):
        raise EntryError("the bytes are not an entry of a kind this log holds") from None
    if again != data:
        raise EntryError("the entry has fields or spellings that its kind does not allow")
    return leaf


def _parse_event(entry: Any) -> tuple[Leaf, bytes]:
    kind, spec = entry["kind"], entry["spec"]
    commitment, day = parse_base64(spec["commitment"]), _parse_day(spec["at"])
    leaf = Leaf(kind, spec["event"], spec["ref"], commitment, day=day)
    return leaf, _committed(kind, spec["event"], spec["ref"], commitment, day)


def _parse_model(entry: Any) -> tuple[Leaf, bytes]:
    spec = entry["spec"]
    digests, day = MappingProxyType(dict(spec["digests"])), _parse_day(spec["at"])
    leaf = Leaf(MODEL_EVENT, spec["event"], spec["ref"], digests=digests, day=day)
    return leaf, model_leaf(spec["event"], spec["ref"], digests, day)


def _parse_log(entry: Any) -> tuple[Leaf, bytes]:
    spec = entry["spec"]
    if spec["event"] != SUCCEEDED:
        raise ValueError("no event of a log")
    day, note = _parse_day(spec["at"]), spec["checkpoint"]
    leaf = Leaf(LOG_EVENT, SUCCEEDED, checkpoint=note, day=day)
    return leaf, succession_leaf(spec["vkey"], note, day)


def _parse_service_key(entry: Any) -> tuple[Leaf, bytes]:
    spec = dict(entry["spec"])
    day, change = _parse_day(spec.pop("at")), key_change(spec)
    leaf = Leaf(SERVICE_KEY_EVENT, change.event, day=day, key=change)
    return leaf, service_key_leaf(change, day)


def _parse_master_key(entry: Any) -> tuple[Leaf, bytes]:
    spec = dict(entry["spec"])
    day, change = _parse_day(spec.pop("at")), master_key_change(spec)
    leaf = Leaf(MASTER_KEY_EVENT, change.event, day=day, master=change)
    return leaf, master_key_leaf(change, day)


def _parse_retention(entry: Any) -> tuple[Leaf, bytes]:
    spec = entry["spec"]
    if spec["event"] != RETENTION_ENDED or spec["before"].keys() != spec["counts"].keys():
        raise ValueError("no event of a retention")
    ended = {
        kind: Ended(count, _parse_day(spec["before"][kind]))
        for kind, count in spec["counts"].items()
    }
    day, items = _parse_day(spec["at"]), spec["items"]
    leaf = Leaf(
        RETENTION_EVENT,
        RETENTION_ENDED,
        digests=MappingProxyType({"items": items}),
        day=day,
        ended=MappingProxyType(ended),
    )
    return leaf, retention_leaf(ended, items, day)


def _parse_hashedrekord(entry: Any) -> tuple[Leaf, bytes]:
    """Parse a certificate's entry; the bundle checks whether it matches its envelope."""
    spec = entry["spec"]["hashedRekordV002"]
    value = parse_base64(spec["data"]["digest"]).hex()
    if spec["data"]["algorithm"] != "SHA2_256" or not _SHA256.fullmatch(value):
        raise ValueError("a certificate's digest is SHA-256")
    again = {
        "apiVersion": "0.0.2",
        "kind": HASHEDREKORD,
        "spec": {"hashedRekordV002": {"data": spec["data"], "signature": spec["signature"]}},
    }
    leaf = Leaf(HASHEDREKORD, digests=MappingProxyType({"sha256": value}))
    return leaf, canonical.encode(again)


# Raised by field access when the JSON has another structure.
_MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError)

_PARSERS = {
    ERASURE_EVENT: _parse_event,
    KEY_EVENT: _parse_event,
    HOLD_EVENT: _parse_event,
    MODEL_EVENT: _parse_model,
    LOG_EVENT: _parse_log,
    SERVICE_KEY_EVENT: _parse_service_key,
    MASTER_KEY_EVENT: _parse_master_key,
    RETENTION_EVENT: _parse_retention,
    HASHEDREKORD: _parse_hashedrekord,
}


def _committed(kind: str, event: str, ref: str, commitment: bytes, day: date) -> bytes:
    _require_event(event)
    if not _is_uuid4(ref):
        raise EntryError("the ref of an event is a UUID version 4 in lower case")
    if len(commitment) != COMMITMENT_SIZE:
        raise EntryError(f"a commitment has {COMMITMENT_SIZE} bytes")
    spec = {
        "at": _format_day(day),
        "commitment": format_base64(commitment),
        "event": event,
        "ref": ref,
    }
    return _encode(kind, spec)


def _encode(kind: str, spec: Mapping[str, Any]) -> bytes:
    data = canonical.encode({"apiVersion": "1", "kind": kind, "spec": spec})
    if len(data) > MAX_ENTRY:
        raise EntryError(f"an entry has at most {MAX_ENTRY} bytes")
    return data


def _require_event(event: str) -> None:
    if len(event) > MAX_EVENT or not _EVENT.fullmatch(event):
        raise EntryError(
            f"an event's name is lower-case words joined by dots, at most {MAX_EVENT} long"
        )


def _is_uuid4(ref: str) -> bool:
    try:
        value = UUID(ref)
    except ValueError:
        return False
    return str(value) == ref and value.version == 4


def _format_day(day: date) -> str:
    return f"{day.year:04}-{day.month:02}-{day.day:02}T00:00:00Z"


def _parse_day(text: str) -> date:
    match = _DAY.fullmatch(text)
    if match is None:
        raise ValueError("not a whole day in UTC")
    return date.fromisoformat(match[1])
