"""Content-Digest (RFC 9530): binds the body to a signature that covers only headers."""

import base64
import hashlib
import hmac

import http_sf

from lethe.signing.errors import DigestMismatchError

# The two that RFC 9530 section 5 registers as active; it calls all others insecure.
HASHES = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}


def format_content_digest(body: bytes) -> str:
    """Return the field value with the SHA-256 of `body`."""
    return http_sf.ser({"sha-256": hashlib.sha256(body).digest()})


def check_content_digest(value: str, body: bytes) -> None:
    """Accept `body` only if it matches every digest whose algorithm is supported.

    Raises DigestMismatchError: as `ContentDigest` and its `check`.
    """
    if value == f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:":
        return  # the spelling of Lethe's clients needs no parsing
    digest = ContentDigest(value)
    digest.update(body)
    digest.check()


class ContentDigest:
    """The field's value, and the digests of the part of the body that has arrived.

    Digests by other algorithms are ignored (RFC 9530 section 2), but at least one of SHA-256
    and SHA-512 is required, or the body would be unprotected. Raises DigestMismatchError: the
    field is malformed or has neither.
    """

    def __init__(self, value: str) -> None:
        self._wanted = {name: one for name, one in _parse(value).items() if name in HASHES}
        self._found = {name: HASHES[name]() for name in self._wanted}
        if not self._wanted:
            raise DigestMismatchError(
                "Content-Digest names neither sha-256 nor sha-512: add one of them"
            )

    def update(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        for found in self._found.values():
            found.update(data)

    def check(self) -> None:
        """Accept the body once all of it was given.

        Raises DigestMismatchError: a digest does not match.
        """
        for name, wanted in self._wanted.items():
            if not hmac.compare_digest(wanted, self._found[name].digest()):
                raise DigestMismatchError(
                    f"the {name} in Content-Digest is not that of the body received: compute "
                    "it over the very bytes sent"
                )


def _parse(value: str) -> dict[str, bytes]:
    def refuse_duplicate(name: str, context: str) -> None:
        # A parser would silently take the last (RFC 9651 section 4.2.2); others may differ.
        raise ValueError("duplicate")

    try:
        members = http_sf.parse(
            value.encode("ascii"), tltype="dictionary", on_duplicate_key=refuse_duplicate
        )
    except ValueError:
        raise DigestMismatchError(
            "Content-Digest is not a dictionary of digests, as in sha-256=:BASE64:"
        ) from None
    assert isinstance(members, dict)
    digests = {}
    for name, member in members.items():
        digest = member[0] if isinstance(member, tuple) else member
        if not isinstance(digest, bytes):
            raise DigestMismatchError(
                "a value in Content-Digest is not a byte sequence, as in :BASE64:"
            )
        digests[name] = digest
    return digests
