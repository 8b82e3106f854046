"""The trust root: which keys an operator's certificates are verified with, in one file.

It names each key of the log and of the issuer with the range of entries that it may sign, and
holds the log entries that say so, with proofs. The log's key signs it, not the issuer's: an
attacker with only an issuer's key can neither add a key nor hide a revocation. Each key of the
log was announced by an entry in a tree that the previous key signed, so a reader who trusts one
key can trust the next. The same holds for the log's ML-DSA-44 keys, after their first rotation.

A trust root decides on the certificates of its first `size` entries for ever, and on no later
one (`lethe.certificates.issuers`). So replaying an old trust root hides nothing.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal

from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.issuers import IssuerKeys
from lethe.certificates.keys import AGAIN
from lethe.certificates.shape import Blob, Moment
from lethe.errors import LetheError
from lethe.log.entries import parse_leaf
from lethe.log.fetch import MAX_TRUST_ROOT
from lethe.log.key_changes import LOG, ML_DSA, load_p256
from lethe.log.key_history import Change, KeySpan, replay
from lethe.log.log_keys import LogKey, LogKeys, spki_of_log, trust_text
from lethe.log.note import ED25519, ML_DSA_44, NoteVerifier, parse_vkey, read_note
from lethe.log.proofs import check_inclusion
from lethe.log.tree import leaf_hash
from lethe.records import dataclass

URI: Final = "https://w3id.org/lethe-ledger/trust-root/v1"


class TrustRootError(LetheError):
    """A file that is not a trust root, or that its log did not sign."""

    slug, title, status = "bad-trust-root", "Wrong trust root", 400


@dataclass(frozen=True, slots=True)
class RevocationPart:
    """The entry from which on a key is revoked, and why."""

    log_index: int
    reason: str


@dataclass(frozen=True, slots=True)
class IssuerPart:
    """A key of the issuer: it signs entries from `from` up to, but not including, `until`."""

    keyid: str
    public_key: Blob
    from_: int
    until: int | None
    revoked: RevocationPart | None


@dataclass(frozen=True, slots=True)
class AnnouncementPart:
    """A checkpoint by the previous key over the entry that announces a key, with the proof."""

    checkpoint: str
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class LogPart:
    """A key of the log.

    `from`: the entry that announces it; the first key has no announcement.
    """

    vkey: str
    from_: int
    announcement: AnnouncementPart | None
    revoked: RevocationPart | None


@dataclass(frozen=True, slots=True)
class EntryPart:
    """A log entry about a key, with its inclusion proof in the tree of `checkpoint`."""

    log_index: int
    leaf: Blob
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TrustRootFile:
    """The file. `signature` has the log keys' signature lines over all other members.

    ml_dsa_keys: the log's second keys, left out if no entry names one.
    """

    api_version: Literal["1"]
    kind: Literal["trust-root"]
    made_at: Moment
    log_keys: tuple[LogPart, ...]
    checkpoint: str
    issuer_keys: tuple[IssuerPart, ...]
    entries: tuple[EntryPart, ...]
    signature: str
    ml_dsa_keys: tuple[LogPart, ...] = ()


@dataclass(frozen=True, slots=True)
class TrustRoot:
    """The content of a trust root after verification under `log`.

    ml_dsa: the log's ML-DSA-44 keys, None if no entry names one.
    """

    log: LogKeys
    issuers: IssuerKeys
    made_at: datetime
    ml_dsa: LogKeys | None = None


def trust_root_schema() -> dict[str, object]:
    """Return the JSON schema of the file; docs/schemas has it as a file."""
    return shape.json_schema(TrustRootFile, f"{URI}/trust-root.json", "Trust root")


def build_trust_root(
    *,
    made_at: datetime,
    log: Sequence[tuple[LogKey, AnnouncementPart | None]],
    ml_dsa: Sequence[tuple[LogKey, AnnouncementPart | None]] = (),
    checkpoint_note: str,
    issuers: Sequence[KeySpan],
    entries: Sequence[tuple[int, bytes, Sequence[bytes]]],
    sign: Callable[[bytes], str],
) -> bytes:
    """Return the file; `sign` returns the log's signature lines over a digest.

    log: its keys, oldest first; ml_dsa: its second keys, if entries name any. entries: index,
    leaf and inclusion proof of each. Raises TrustRootError: the parts contradict each other, so
    that no reader would accept them.
    """
    file = TrustRootFile(
        "1",
        "trust-root",
        made_at,
        tuple(_log_part(one, said) for one, said in log),
        checkpoint_note,
        tuple(map(_part, issuers)),
        tuple(EntryPart(index, leaf, tuple(hashes)) for index, leaf, hashes in entries),
        "",
        tuple(_log_part(one, said) for one, said in ml_dsa),
    )
    members = shape.write(file)
    members["signature"] = sign(root_digest(members))
    data = canonical.encode(members)
    parse_trust_root(data)
    return data


def parse_trust_root(
    data: bytes, log: NoteVerifier | None = None, ml_dsa: NoteVerifier | None = None
) -> TrustRoot:
    """Parse a trust root and verify everything in it.

    log: a trusted key of the log, if the caller has one: then the file adds nothing that this
    key, or a key that it led to, did not sign. Otherwise the file itself is trusted, as
    `log.vkey` and `issuer.pem` are. ml_dsa: a trusted ML-DSA-44 key of the log; then the same
    holds for this chain of keys, once entries name it. Raises TrustRootError: it is not a trust
    root, its log did not sign it, or it is another log's.
    """
    if len(data) > MAX_TRUST_ROOT:
        raise TrustRootError(f"a trust root has at most {MAX_TRUST_ROOT} bytes")
    try:
        return _parse(data.removesuffix(b"\n"), log, ml_dsa)
    except TrustRootError:
        raise
    except LetheError as error:
        raise TrustRootError(_unverified(error.detail)) from None
    except ValueError as error:  # a key of another kind
        raise TrustRootError(_unverified(str(error))) from None


def _unverified(why: str) -> str:
    return f"the trust root does not verify: {why}; {AGAIN}"


def _parse(
    data: bytes, known: NoteVerifier | None, known_ml_dsa: NoteVerifier | None
) -> TrustRoot:
    file = shape.decode(TrustRootFile, data)
    if not file.issuer_keys or not file.log_keys:
        raise TrustRootError("the trust root names no key of an issuer, or none of a log")
    changes = _changes(file)
    log = _chain(file, changes, LOG)
    ml_dsa = _chain(file, changes, ML_DSA) if file.ml_dsa_keys else None
    if ml_dsa is not None and ml_dsa.name != log.name:
        raise TrustRootError("its ML-DSA-44 keys belong to another log than its log keys")
    if ml_dsa is None and any(change.role == ML_DSA for _, change in changes):
        raise TrustRootError("the trust root leaves out the ML-DSA-44 keys of its log entries")
    trusted = _from(log, known)
    signed, _ = trusted.open(file.checkpoint)
    if ml_dsa is not None and known_ml_dsa is not None:
        _from(ml_dsa, known_ml_dsa).open(file.checkpoint)
    for entry in file.entries:
        check_inclusion(
            entry.log_index, signed.size, leaf_hash(entry.leaf), entry.hashes, signed.root
        )
    text = trust_text(log.name, root_digest(shape.write(file)))
    by = read_note(f"{text}\n{file.signature}", trusted.verifiers).verified
    if all(one.revoked is not None for one in trusted.keys if one.verifier in by):
        raise TrustRootError("only keys signed the trust root that it says are revoked")
    first = file.issuer_keys[0]
    load_p256(first.public_key)
    keys = replay(changes, (first.keyid, first.public_key))
    if tuple(map(_part, keys)) != file.issuer_keys:
        raise TrustRootError("its issuer keys are not those that its log entries name")
    return TrustRoot(log, IssuerKeys(keys, signed.size, signed.root), file.made_at, ml_dsa)


def _from(chain: LogKeys, known: NoteVerifier | None) -> LogKeys:
    """Return the keys to trust: the known key and the keys that it led to, but no earlier ones.

    known: None if the file itself is trusted.
    """
    if known is None:
        return chain
    vkeys = [one.verifier.vkey for one in chain.keys]
    if known.vkey not in vkeys:
        what = "ML-DSA-44 key" if chain.kind == ML_DSA_44 else "log key"
        raise TrustRootError(f"the trust root belongs to another log than the given {what}")
    return LogKeys(chain.keys[vkeys.index(known.vkey) :], chain.kind)


def _changes(file: TrustRootFile) -> list[Change]:
    changes: list[Change] = []
    for entry in file.entries:
        change = parse_leaf(entry.leaf).key
        if change is None or (changes and entry.log_index <= changes[-1][0]):
            raise TrustRootError("the trust root lists other entries than those on keys")
        changes.append((entry.log_index, change))
    return changes


def _chain(file: TrustRootFile, changes: Sequence[Change], role: str) -> LogKeys:
    """Return the log's keys of a role, LOG or ML_DSA, each announced under the previous one."""
    parts, kind = (file.log_keys, ED25519) if role == LOG else (file.ml_dsa_keys, ML_DSA_44)
    what = "log" if role == LOG else "ML-DSA-44"
    wrong = TrustRootError(f"its {what} keys are not those that its log entries name")
    verifiers = [parse_vkey(one.vkey) for one in parts]
    if any(one.kind != kind for one in verifiers):
        raise wrong
    if role == ML_DSA and not any(change.role == role for _, change in changes):
        raise wrong  # a key that only the log's Ed25519 key vouches for
    name = verifiers[0].name
    spans = replay(changes, (verifiers[0].key_id.hex(), spki_of_log(verifiers[0])), role)
    leaves = {entry.log_index: entry.leaf for entry in file.entries}
    keys: list[LogKey] = []
    if len(spans) != len(verifiers):
        raise wrong
    for span, part, verifier in zip(spans, parts, verifiers, strict=True):
        said = span.keyid, span.spki, span.start, _revocation(span.revoked, span.reason)
        own = verifier.key_id.hex(), spki_of_log(verifier), part.from_, part.revoked
        if said != own or verifier.name != name or bool(keys) != bool(part.announcement):
            raise wrong
        if part.announcement is not None:
            signed, _ = LogKeys((keys[-1],), kind).open(part.announcement.checkpoint)
            leaf = leaf_hash(leaves[span.start])
            check_inclusion(
                span.start, signed.size, leaf, part.announcement.hashes, signed.root
            )
        keys.append(LogKey(verifier, span.start, span.revoked, span.reason))
    return LogKeys(tuple(keys), kind)


def _log_part(key: LogKey, said: AnnouncementPart | None) -> LogPart:
    return LogPart(key.verifier.vkey, key.start, said, _revocation(key.revoked, key.reason))


def _part(key: KeySpan) -> IssuerPart:
    revoked = _revocation(key.revoked, key.reason)
    return IssuerPart(key.keyid, key.spki, key.start, key.end, revoked)


def _revocation(index: int | None, reason: str | None) -> RevocationPart | None:
    return None if index is None else RevocationPart(index, reason or "unspecified")


def root_digest(members: dict[str, object]) -> bytes:
    """Return what the log's key signs: SHA-256 of the other members (RFC 8785)."""
    others = {name: value for name, value in members.items() if name != "signature"}
    return sha256(canonical.encode(others)).digest()
