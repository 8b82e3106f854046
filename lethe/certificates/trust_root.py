"""The trust root: which keys an operator's certificates are verified with, in one file.

It names each key of the log and of the issuer with the entries between which it signs, and the
log entries that say so with their proofs. The log's key signs it, and not the issuer's: whoever
has an issuer's key alone can neither add a key nor leave a revocation out. Each key of the log
was announced by an entry in a tree that the key before it signed: who knows one knows the next.

A trust root decides on the certificates of its first `size` entries for ever, and on no later
one (`lethe.certificates.issuers`). So an old one that is handed out again hides nothing.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal

from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.issuers import IssuerKeys
from lethe.certificates.shape import Blob, Moment
from lethe.errors import LetheError
from lethe.log.entries import parse_leaf
from lethe.log.key_changes import LOG, load_p256
from lethe.log.key_history import Change, KeySpan, replay
from lethe.log.log_keys import LogKey, LogKeys, spki_of_log
from lethe.log.note import NoteVerifier, parse_log_vkey, read_note
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash
from lethe.log.trust_text import trust_text
from lethe.records import dataclass

URI: Final = "https://w3id.org/lethe-ledger/trust-root/v1"
MAX_TRUST_ROOT = 1 << 20  # bytes; one of a log with ten rotations has about 20,000


class TrustRootError(LetheError):
    """A file that is no trust root, or one that its log did not sign."""

    slug = "bad-trust-root"
    title = "Wrong trust root"
    status = 400


@dataclass(frozen=True, slots=True)
class RevocationPart:
    """The entry from which on a key is refused, and why."""

    log_index: int
    reason: str


@dataclass(frozen=True, slots=True)
class IssuerPart:
    """A key of the issuer: it signs entries from `from` on, those from `until` on no more."""

    keyid: str
    public_key: Blob
    from_: int
    until: int | None
    revoked: RevocationPart | None


@dataclass(frozen=True, slots=True)
class AnnouncementPart:
    """A checkpoint by the key before, over the entry that announces a key, with the proof."""

    checkpoint: str
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LogPart:
    """A key of the log: entry `from` announces it, which the first one does without."""

    vkey: str
    from_: int
    announcement: AnnouncementPart | None
    revoked: RevocationPart | None


@dataclass(frozen=True, slots=True)
class EntryPart:
    """A log entry on a key, with its inclusion proof in the tree of `checkpoint`."""

    log_index: int
    leaf: Blob
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TrustRootFile:
    """The file. `signature` has signature lines of the log's keys over all else."""

    api_version: Literal["1"]
    kind: Literal["trust-root"]
    made_at: Moment
    log_keys: tuple[LogPart, ...]
    checkpoint: str
    issuer_keys: tuple[IssuerPart, ...]
    entries: tuple[EntryPart, ...]
    signature: str


@dataclass(frozen=True, slots=True)
class TrustRoot:
    """What a trust root says, once all of it was verified under `log`."""

    log: LogKeys
    issuers: IssuerKeys
    made_at: datetime


def trust_root_schema() -> dict[str, object]:
    """Return the JSON schema of the file; docs/schemas has it as a file."""
    return shape.json_schema(TrustRootFile, f"{URI}/trust-root.json", "Trust root")


def build_trust_root(
    *,
    made_at: datetime,
    log: Sequence[tuple[LogKey, AnnouncementPart | None]],
    checkpoint_note: str,
    issuers: Sequence[KeySpan],
    entries: Sequence[tuple[int, bytes, Sequence[bytes]]],
    sign: Callable[[bytes], str],
) -> bytes:
    """Return the file; `sign` returns the log's signature lines over a digest.

    log: its keys, oldest first. entries: index, leaf and inclusion proof of each.

    Raises:
        TrustRootError: The parts contradict each other, so that no reader would accept them.
    """
    file = TrustRootFile(
        "1",
        "trust-root",
        made_at,
        tuple(
            LogPart(one.verifier.vkey, one.start, said, _revocation(one.revoked, one.reason))
            for one, said in log
        ),
        checkpoint_note,
        tuple(map(_part, issuers)),
        tuple(EntryPart(index, leaf, tuple(hashes)) for index, leaf, hashes in entries),
        "",
    )
    members = shape.write(file)
    members["signature"] = sign(_digest(members))
    data = canonical.encode(members)
    parse_trust_root(data)
    return data


def parse_trust_root(data: bytes, log: NoteVerifier | None = None) -> TrustRoot:
    """Read a trust root and verify all that it says.

    log: a key of the log, where one is known: then the file adds nothing that this key, or one
    that it led to, did not sign. Without it the file itself is what is trusted, as `log.vkey`
    and `issuer.pem` are.

    Raises:
        TrustRootError: It is none, its log did not sign it, or it is another log's.
    """
    if len(data) > MAX_TRUST_ROOT:
        raise TrustRootError(f"a trust root has at most {MAX_TRUST_ROOT} bytes")
    try:
        return _parse(data.removesuffix(b"\n"), log)
    except TrustRootError:
        raise
    except LetheError as error:
        raise TrustRootError(f"the trust root does not hold: {error.detail}") from None
    except ValueError as error:  # a key of another kind
        raise TrustRootError(f"the trust root does not hold: {error}") from None


def _parse(data: bytes, known: NoteVerifier | None) -> TrustRoot:
    file = shape.decode(TrustRootFile, data)
    if not file.issuer_keys or not file.log_keys:
        raise TrustRootError("the trust root names no key of an issuer, or none of a log")
    changes = _changes(file)
    log = _log(file, changes)
    # Whoever knows a key knows those that it led to, and none from before it.
    vkeys = [one.verifier.vkey for one in log.keys]
    if known is not None and known.vkey not in vkeys:
        raise TrustRootError("the trust root is of another log than the given log key")
    trusted = LogKeys(log.keys[0 if known is None else vkeys.index(known.vkey) :])
    signed, _ = trusted.open(file.checkpoint)
    for entry in file.entries:
        check_inclusion(
            entry.log_index, signed.size, leaf_hash(entry.leaf), entry.hashes, signed.root
        )
    text = trust_text(log.name, _digest(shape.write(file)))
    by = read_note(f"{text}\n{file.signature}", trusted.verifiers).verified
    if all(one.revoked is not None for one in trusted.keys if one.verifier in by):
        raise TrustRootError("only keys signed the trust root that it says are revoked")
    first = file.issuer_keys[0]
    load_p256(first.public_key)
    keys = replay(changes, (first.keyid, first.public_key))
    if tuple(map(_part, keys)) != file.issuer_keys:
        raise TrustRootError("its issuer keys are not those that its log entries name")
    return TrustRoot(log, IssuerKeys(keys, signed.size, signed.root), file.made_at)


def _changes(file: TrustRootFile) -> list[Change]:
    changes: list[Change] = []
    for entry in file.entries:
        change = parse_leaf(entry.leaf).key
        if change is None or (changes and entry.log_index <= changes[-1][0]):
            raise TrustRootError("the trust root lists other entries than those on keys")
        changes.append((entry.log_index, change))
    return changes


def _log(file: TrustRootFile, changes: Sequence[Change]) -> LogKeys:
    """Return the keys of the log, each led to by the one before."""
    verifiers = [parse_log_vkey(one.vkey) for one in file.log_keys]
    name = verifiers[0].name
    spans = replay(changes, (verifiers[0].key_id.hex(), spki_of_log(verifiers[0])), LOG)
    leaves = {entry.log_index: entry.leaf for entry in file.entries}
    keys: list[LogKey] = []
    if len(spans) != len(verifiers):
        raise TrustRootError("its log keys are not those that its log entries name")
    for span, part, verifier in zip(spans, file.log_keys, verifiers, strict=True):
        said = span.keyid, span.spki, span.start, _revocation(span.revoked, span.reason)
        own = verifier.key_id.hex(), spki_of_log(verifier), part.from_, part.revoked
        if said != own or verifier.name != name or bool(keys) != bool(part.announcement):
            raise TrustRootError("its log keys are not those that its log entries name")
        if part.announcement is not None:
            signed, _ = LogKeys((keys[-1],)).open(part.announcement.checkpoint)
            leaf = leaf_hash(leaves[span.start])
            check_inclusion(
                span.start, signed.size, leaf, part.announcement.hashes, signed.root
            )
        keys.append(LogKey(verifier, span.start, span.revoked, span.reason))
    return LogKeys(tuple(keys))


def _part(key: KeySpan) -> IssuerPart:
    revoked = _revocation(key.revoked, key.reason)
    return IssuerPart(key.keyid, key.spki, key.start, key.end, revoked)


def _revocation(index: int | None, reason: str | None) -> RevocationPart | None:
    return None if index is None else RevocationPart(index, reason or "unspecified")


def _digest(members: dict[str, object]) -> bytes:
    others = {name: value for name, value in members.items() if name != "signature"}
    return sha256(canonical.encode(others)).digest()
