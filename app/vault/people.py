"""Keyed digests of people's identities, and what authenticates the rows that hold them.

The keys are derived from a model's own random secret, which the master key wraps: tags of one
person in two models have nothing in common, and whoever lacks the secret can neither test a
guess nor name a tag.

The rows of a model are authenticated as a set, by the multiset hash MSet-Add-Hash (Clarke et
al., ASIACRYPT 2003): MACs of the rows are added modulo 2**256, and the log has the sum behind a
mask that a fresh nonce gives. A row that is changed, copied, added, taken out or brought back
changes the sum, and adding or erasing rows costs as much as they are many. The same sum by
parts, one for each first byte of a tag (`Sums`), lets a lookup read one part.
"""

import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, Self

from lethe.identity import ALGORITHMS, NORMALISATION

TAG_BYTES = 16  # of HMAC-SHA256: nobody finds another identity of the same tag by chance
NONCE_BYTES = 32
MODULUS = 1 << 256
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
    imported_by: str | None = None


class Sums:
    """The sum over a model's rows, by parts: for each algorithm one for each first byte.

    The last part of each algorithm is that of rows without such a digest. So the parts of every
    algorithm add up to the sum over all rows, which is the one in the log.

    follows: the logged sum that these parts replace, if a restore changed rows and has not
    logged it yet; else the sum over all rows.
    """

    PARTS = 257

    def __init__(self, follows: int = 0, values: Iterable[int] = ()) -> None:
        self.follows = follows
        self._values = list(values) or [0] * (self.PARTS * len(ALGORITHMS))

    @property
    def total(self) -> int:
        """The sum over all rows."""
        return sum(self._values[: self.PARTS]) % MODULUS

    def part(self, algorithm: int, first: int) -> int:
        """Return the sum over the rows whose tag of an algorithm begins with a byte."""
        return self._values[algorithm * self.PARTS + first]

    def add(self, row: StoredRow, mac: int) -> None:
        """Add a row; with its negative MAC, take it out."""
        for algorithm, tag in enumerate(row.tags):
            place = algorithm * self.PARTS + (self.PARTS - 1 if tag is None else tag[0])
            self._values[place] = (self._values[place] + mac) % MODULUS

    def encode(self) -> bytes:
        """Return it as it is sealed."""
        return b"".join(value.to_bytes(32) for value in (self.follows, *self._values))

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Return what `encode` encoded, None of anything else."""
        if len(data) != 32 * (1 + cls.PARTS * len(ALGORITHMS)):
            return None
        first, *values = (
            int.from_bytes(data[place : place + 32]) for place in range(0, len(data), 32)
        )
        return cls(first, values)


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
        row_id, state, record, (first, second, third), request, importer = row
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
        # What follows the parts whose lengths are written is the importer, who has a name.
        message += (by or b"") + (importer or "").encode()
        return int.from_bytes(hmac.digest(self._row, message, "sha256"))

    def total(self, rows: Iterator[StoredRow] | Sequence[StoredRow]) -> int:
        """Return the sum over rows."""
        return sum(map(self.mac, rows)) % MODULUS

    def sums(self, rows: Iterator[StoredRow]) -> Sums:
        """Return the sums over rows, by parts."""
        found = Sums()
        for row in rows:
            found.add(row, self.mac(row))
        found.follows = found.total
        return found

    def logged(self, total: int) -> dict[str, str]:
        """Return the digests by which the log commits to a sum."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        masked = (total + self._mask_of(nonce)) % MODULUS
        return {"people": masked.to_bytes(32).hex(), "nonce": nonce.hex()}

    def opened(self, digests: Mapping[str, Any]) -> int:
        """Return the sum that `logged` masked; 0, that of no rows, where nothing was logged."""
        if not digests:
            return 0
        masked = int(digests["people"], 16)
        return (masked - self._mask_of(bytes.fromhex(digests["nonce"]))) % MODULUS

    def _mask_of(self, nonce: bytes) -> int:
        return int.from_bytes(hmac.digest(self._mask, nonce, "sha256"))

    def _tagged(self, kind: str, algorithm: str, digest: bytes) -> bytes:
        # Kinds and algorithms hold no NUL, so no two of these are spelled alike.
        domain = f"{NORMALISATION}\0{kind}\0{algorithm}\0".encode()
        return hmac.digest(self._tag, domain + digest, "sha256")[:TAG_BYTES]
