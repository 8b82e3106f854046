"""Keyed digests of people's identities, and what authenticates the rows that hold them.

The keys are derived from a model's own random secret, which the master key wraps: tags of one
person in two models have nothing in common, and whoever lacks the secret can neither test a
guess nor name a tag.

The rows of a model are authenticated as a set, by the multiset hash MSet-Add-Hash (Clarke et
al., ASIACRYPT 2003): MACs of the rows are added modulo 2**256, and the log has the sum behind a
mask that a fresh nonce gives. A row that is changed, copied, added, taken out or brought back
changes the sum, and adding or erasing rows costs as much as they are many.
"""

import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from lethe.identity import ALGORITHMS, NORMALISATION

TAG_BYTES = 16  # of HMAC-SHA256: nobody finds another identity of the same tag by chance
NONCE_BYTES = 32
_MODULUS = 1 << 256
_TAG = b"\xfflethe person tag 1"  # no record id begins so, and tombstones tag record ids
_ROW = b"\xfflethe person row 1"
_MASK = b"\xfflethe person mask 1"
_LENGTHS, _NONE = Struct(">q6I").pack, 2**32 - 1  # of a row's parts; no value is that long


class StoredRow(NamedTuple):
    """A row as it is stored: `record` sealed, tags in the order of ALGORITHMS."""

    id: int
    state: str
    record: bytes | None
    tags: tuple[bytes | None, ...]
    request_id: str | None


class PeopleKey:
    """The keys of one model's identities. secret: its tombstone key, unsealed."""

    def __init__(self, secret: bytes) -> None:
        self._tag = hmac.digest(secret, _TAG, "sha256")
        self._row = hmac.digest(secret, _ROW, "sha256")
        self._mask = hmac.digest(secret, _MASK, "sha256")

    def tags(self, kind: str, digests: Mapping[str, bytes]) -> tuple[bytes | None, ...]:
        """Return the tag of each digest in the order of ALGORITHMS, None of a missing one."""
        return tuple(
            self._tagged(kind, name, digests[name]) if name in digests else None
            for name in ALGORITHMS
        )

    def mac(self, row: StoredRow) -> int:
        """Return what a row adds to the sum."""
        row_id, state, record, (first, second, third), request = row
        state_bytes, by = state.encode(), None if request is None else request.encode()
        message = _LENGTHS(
            row_id,
            len(state_bytes),
            _NONE if record is None else len(record),
            _NONE if first is None else len(first),
            _NONE if second is None else len(second),
            _NONE if third is None else len(third),
            _NONE if by is None else len(by),
        ) + b"".join((state_bytes, record or b"", first or b"", second or b"", third or b""))
        return int.from_bytes(hmac.digest(self._row, message + (by or b""), "sha256"))

    def total(self, rows: Iterator[StoredRow] | Sequence[StoredRow]) -> int:
        """Return the sum over rows."""
        return sum(map(self.mac, rows)) % _MODULUS

    def logged(self, total: int) -> dict[str, str]:
        """Return the digests by which the log commits to a sum."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        masked = (total + self._mask_of(nonce)) % _MODULUS
        return {"people": masked.to_bytes(32).hex(), "nonce": nonce.hex()}

    def opened(self, digests: Mapping[str, Any]) -> int:
        """Return the sum that `logged` masked; 0, that of no rows, where nothing was logged."""
        if not digests:
            return 0
        masked = int(digests["people"], 16)
        return (masked - self._mask_of(bytes.fromhex(digests["nonce"]))) % _MODULUS

    def _mask_of(self, nonce: bytes) -> int:
        return int.from_bytes(hmac.digest(self._mask, nonce, "sha256"))

    def _tagged(self, kind: str, algorithm: str, digest: bytes) -> bytes:
        # Kinds and algorithms hold no NUL, so no two of these are spelled alike.
        domain = f"{NORMALISATION}\0{kind}\0{algorithm}\0".encode()
        return hmac.digest(self._tag, domain + digest, "sha256")[:TAG_BYTES]
