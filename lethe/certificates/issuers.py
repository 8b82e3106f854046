"""Which issuer's key may have signed the certificate at a given log entry.

The position in the log decides, not a date: the signer chooses the date, but not the position.
A key may sign from the entry that announces it (the first key from the log's start) until the
entry that replaces it, and never at or after the entry that revokes it.
"""

from lethe.certificates.errors import CertificateError
from lethe.log.key_history import KeySpan
from lethe.records import dataclass


class IssuerError(CertificateError):
    """A key that may not have signed a certificate."""

    slug, title = "issuer-refused", "The issuer's key is refused"


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    """All keys of an issuer, oldest first, according to the first `size` entries of its log.

    `root` is the root of these entries. Later entries change nothing for a certificate below
    `size`, because a revocation only takes effect from its own entry on: these keys decide on
    entries below `size` for ever, and on no other.
    """

    keys: tuple[KeySpan, ...]
    size: int
    root: bytes | None = None

    def named(self, spki: bytes) -> KeySpan:
        """Return the key with these bytes. Raises IssuerError if the issuer never had it."""
        for one in self.keys:
            if one.spki == spki:
                return one
        raise IssuerError("the issuer has no such key: a newer trust root may have it")

    def check(self, spki: bytes, index: int) -> str:
        """Return in words why this key may have signed entry `index`.

        Raises IssuerError if it may not, or if entry `index` is not below `size`.
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
    def current(self) -> KeySpan | None:
        """The key that signs the next certificate, None if it was revoked."""
        last = self.keys[-1]
        return last if last.ends is None else None
