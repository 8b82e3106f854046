"""The trust root: which keys an operator's certificates are verified with, in one file.

It names the log's key, each key of the issuer with the entries between which it signs, and the
log entries that say so with their proofs. The log's key signs it, and not the issuer's: whoever
has an issuer's key alone can neither add a key nor leave a revocation out.

A trust root decides on the certificates of its first `size` entries for ever, and on no later
one (`lethe.certificates.issuers`). So an old one that is handed out again hides nothing.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal

from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.issuers import Change, IssuerError, IssuerKey, IssuerKeys, replay
from lethe.certificates.shape import Blob, Moment
from lethe.errors import LetheError
from lethe.log.checkpoint import open_checkpoint
from lethe.log.entries import parse_leaf
from lethe.log.key_changes import load_p256
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
class EntryPart:
    """A log entry on a key, with its inclusion proof in the tree of `checkpoint`."""

    log_index: int
    leaf: Blob
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TrustRootFile:
    """The file. `signature` has the signature line of the log's key over all else."""

    api_version: Literal["1"]
    kind: Literal["trust-root"]
    made_at: Moment
    log_key: str
    checkpoint: str
    issuer_keys: tuple[IssuerPart, ...]
    entries: tuple[EntryPart, ...]
    signature: str


@dataclass(frozen=True, slots=True)
class TrustRoot:
    """What a trust root says, once all of it was verified under `log`."""

    log: NoteVerifier
    issuers: IssuerKeys
    made_at: datetime


def trust_root_schema() -> dict[str, object]:
    """Return the JSON schema of the file; docs/schemas has it as a file."""
    return shape.json_schema(TrustRootFile, f"{URI}/trust-root.json", "Trust root")


def build_trust_root(
    *,
    made_at: datetime,
    log: NoteVerifier,
    checkpoint_note: str,
    issuers: Sequence[IssuerKey],
    entries: Sequence[tuple[int, bytes, Sequence[bytes]]],
    sign: Callable[[bytes], str],
) -> bytes:
    """Return the file; `sign` returns the log's signature line over a digest.

    entries: index, leaf and inclusion proof of each.

    Raises:
        TrustRootError: The parts contradict each other, so that no reader would accept them.
    """
    file = TrustRootFile(
        "1",
        "trust-root",
        made_at,
        log.vkey,
        checkpoint_note,
        tuple(map(_part, issuers)),
        tuple(EntryPart(index, leaf, tuple(hashes)) for index, leaf, hashes in entries),
        "",
    )
    members = shape.write(file)
    members["signature"] = sign(_digest(members))
    data = canonical.encode(members)
    parse_trust_root(data, log)
    return data


def parse_trust_root(data: bytes, log: NoteVerifier | None = None) -> TrustRoot:
    """Read a trust root and verify all that it says.

    log: the log's key, where it is known: then the file adds nothing that this key did not
    sign. Without it the file itself is what is trusted, as `log.vkey` and `issuer.pem` are.

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


def _parse(data: bytes, known: NoteVerifier | None) -> TrustRoot:
    file = shape.decode(TrustRootFile, data)
    log = parse_log_vkey(file.log_key)
    if known is not None and known.vkey != log.vkey:
        raise TrustRootError("the trust root is of another log than the given log key")
    members = shape.write(file)
    text = trust_text(log.name, _digest(members))
    read_note(f"{text}\n{file.signature}", [log])
    signed = open_checkpoint(file.checkpoint, log)
    changes: list[Change] = []
    for entry in file.entries:
        check_inclusion(
            entry.log_index, signed.size, leaf_hash(entry.leaf), entry.hashes, signed.root
        )
        change = parse_leaf(entry.leaf).key
        if change is None or (changes and entry.log_index <= changes[-1][0]):
            raise TrustRootError("the trust root lists other entries than those on keys")
        changes.append((entry.log_index, change))
    if not file.issuer_keys:
        raise TrustRootError("the trust root names no key of an issuer")
    first = file.issuer_keys[0]
    try:
        load_p256(first.public_key)
    except ValueError as error:
        raise TrustRootError(f"the trust root does not hold: {error}") from None
    keys = replay(changes, (first.keyid, first.public_key))
    if tuple(map(_part, keys)) != file.issuer_keys:
        raise IssuerError("its keys are not those that its log entries name")
    return TrustRoot(log, IssuerKeys(keys, signed.size, signed.root), file.made_at)


def _part(key: IssuerKey) -> IssuerPart:
    revoked = (
        None
        if key.revoked is None
        else RevocationPart(key.revoked, key.reason or "unspecified")
    )
    return IssuerPart(key.keyid, key.spki, key.start, key.end, revoked)


def _digest(members: dict[str, object]) -> bytes:
    others = {name: value for name, value in members.items() if name != "signature"}
    return sha256(canonical.encode(others)).digest()
