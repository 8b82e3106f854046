"""The keys of a role according to the entries of a log."""

from collections.abc import Iterable
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from lethe.errors import LetheError
from lethe.log.key_changes import ANNOUNCED, ISSUER, ROTATED, KeyChange, load_p256
from lethe.records import dataclass

# (change of a key, index of its entry)
Change = tuple[int, KeyChange]


class KeyHistoryError(LetheError):
    """Entries on keys that contradict each other."""

    slug, title, status = "key-history", "The log contradicts itself on keys", 400


@dataclass(frozen=True, slots=True)
class KeySpan:
    """A key of one role, SubjectPublicKeyInfo in DER, and the range of entries it may sign.

    start: the first entry. end: the first entry that it may not sign any more because another
    key replaced it. revoked: the entry that revokes it, with its reason.
    """

    keyid: str
    spki: bytes
    start: int
    end: int | None = None
    revoked: int | None = None
    reason: str | None = None

    @property
    def key(self) -> EllipticCurvePublicKey:
        """The parsed key of an issuer."""
        return load_p256(self.spki)

    @property
    def ends(self) -> int | None:
        """The first entry that it may not sign, by replacement or revocation."""
        return min((one for one in (self.end, self.revoked) if one is not None), default=None)


def replay(
    changes: Iterable[Change], first: tuple[str, bytes], role: str = ISSUER
) -> tuple[KeySpan, ...]:
    """Return the keys of a role that a log's entries name, oldest first.

    first: name and bytes of the key in use before the first entry about keys. Raises
    KeyHistoryError: the entries contradict each other.
    """
    keys: list[KeySpan] = []
    for index, change in changes:
        if change.role != role:
            continue
        places = [at for at, one in enumerate(keys) if one.spki == change.key]
        if change.event in (ANNOUNCED, ROTATED):
            if places or any(one.keyid == change.keyid for one in keys):
                raise KeyHistoryError(f"entry {index} names a key, or a keyid, a second time")
            if (change.event == ANNOUNCED) != (not keys):
                raise KeyHistoryError(
                    f"entry {index} begins the keys of its role a second time"
                )
            if keys and keys[-1].spki != change.replaces:
                raise KeyHistoryError(f"entry {index} replaces another key than the last")
            if keys:
                keys[-1] = replace(keys[-1], end=index)
            keys.append(KeySpan(change.keyid, change.key, index if keys else 0))
        elif not places or keys[places[0]].keyid != change.keyid:
            raise KeyHistoryError(f"entry {index} revokes a key that nobody had")
        elif keys[places[0]].revoked is None:  # a second revocation changes nothing
            at = places[0]
            keys[at] = replace(keys[at], revoked=index, reason=change.reason)
    return tuple(keys) if keys else (KeySpan(first[0], first[1], 0),)
