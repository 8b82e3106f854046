"""Which issuer's key may have signed the certificate at which entry of the log.

The log's position decides and no date: a date is written by whoever signs, a position by the
log. A key may sign from the entry that announces it (the first one from the log's start) until
the entry that replaces it, and never at or after the entry that revokes it.
"""

from collections.abc import Iterable
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from lethe.certificates.errors import CertificateError
from lethe.log.key_changes import ANNOUNCED, ROTATED, KeyChange, load_p256
from lethe.records import dataclass

# A change of a key and the index of its entry.
Change = tuple[int, KeyChange]


class IssuerError(CertificateError):
    """A key that may not have signed a certificate, or keys that contradict each other."""

    slug = "issuer-refused"
    title = "The issuer's key is refused"


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A key of the issuer, SubjectPublicKeyInfo in DER, and where in the log it may sign.

    start: the first entry. end: the first entry that it may not sign any more, as another
    replaced it. revoked: the entry that revokes it, with its reason.
    """

    keyid: str
    spki: bytes
    start: int
    end: int | None = None
    revoked: int | None = None
    reason: str | None = None

    @property
    def key(self) -> EllipticCurvePublicKey:
        """The key itself."""
        return load_p256(self.spki)

    @property
    def ends(self) -> int | None:
        """The first entry that it may not sign, for whichever reason."""
        return min((one for one in (self.end, self.revoked) if one is not None), default=None)


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    """All keys of an issuer, oldest first, as the first `size` entries of its log say.

    `root` is the root of these entries. What comes later changes nothing for a certificate
    below `size`, since a key is revoked from its entry on: so these keys decide on those for
    ever, and on no other.
    """

    keys: tuple[IssuerKey, ...]
    size: int
    root: bytes | None = None

    def named(self, spki: bytes) -> IssuerKey:
        """Return the key with these bytes.

        Raises:
            IssuerError: The issuer never had it.
        """
        for one in self.keys:
            if one.spki == spki:
                return one
        raise IssuerError("the issuer has no such key: a newer trust root may have it")

    def check(self, spki: bytes, index: int) -> str:
        """Return in words why this key may have signed entry `index`.

        Raises:
            IssuerError: It may not have, or these keys are older than the entry.
        """
        found = self.named(spki)
        if index >= self.size:
            raise IssuerError(
                f"entry {index} is newer than the trust root, which ends at {self.size} "
                "entries: get a newer one"
            )
        if index < found.start:
            raise IssuerError(
                f"the issuer's key {found.keyid} signs from entry {found.start} on, "
                f"and this is entry {index}"
            )
        if found.revoked is not None and index >= found.revoked:
            raise IssuerError(
                f"the issuer's key {found.keyid} was revoked at entry {found.revoked} "
                f"({found.reason}), and this is entry {index}"
            )
        if found.end is not None and index >= found.end:
            raise IssuerError(
                f"the issuer's key {found.keyid} was replaced at entry {found.end}, "
                f"and this is entry {index}"
            )
        until = "" if found.ends is None else f" until entry {found.ends}"
        later = f", revoked at entry {found.revoked}" if found.revoked is not None else ""
        return f"key {found.keyid} signs from entry {found.start}{until}{later}"

    @property
    def current(self) -> IssuerKey | None:
        """The key that signs the next certificate, None if it was revoked."""
        last = self.keys[-1]
        return last if last.ends is None else None


def replay(changes: Iterable[Change], first: tuple[str, bytes]) -> tuple[IssuerKey, ...]:
    """Return the keys that a log's entries name, oldest first.

    first: name and bytes of the key before any entry names one.

    Raises:
        IssuerError: The entries contradict each other.
    """
    keys: list[IssuerKey] = []
    for index, change in changes:
        places = [at for at, one in enumerate(keys) if one.spki == change.key]
        if change.event in (ANNOUNCED, ROTATED):
            if places or any(one.keyid == change.keyid for one in keys):
                raise IssuerError(f"entry {index} names a key, or a keyid, a second time")
            if (change.event == ANNOUNCED) != (not keys):
                raise IssuerError(f"entry {index} begins the issuer's keys a second time")
            if keys and keys[-1].spki != change.replaces:
                raise IssuerError(f"entry {index} replaces another key than the last")
            if keys:
                keys[-1] = replace(keys[-1], end=index)
            keys.append(IssuerKey(change.keyid, change.key, index if keys else 0))
        elif not places or keys[places[0]].keyid != change.keyid:
            raise IssuerError(f"entry {index} revokes a key that the issuer never had")
        elif keys[places[0]].revoked is None:  # a second revocation changes nothing
            at = places[0]
            keys[at] = replace(keys[at], revoked=index, reason=change.reason)
    return tuple(keys) if keys else (IssuerKey(first[0], first[1], 0),)
