"""Keyed digests of people's identities, and the authentication of the rows that hold them.

The keys are derived from the model's own random secret, which the root secret seals: the tags
of one person in two models are unrelated, and without the secret nobody can compute a tag or
test a guess.

The rows of a model are authenticated as a set, by the multiset hash MSet-Add-Hash (Clarke et
al., ASIACRYPT 2003): the rows' MACs are added modulo 2**256, and the log has the sum, masked
with a new nonce. Changing, copying, adding, removing or restoring a row changes the sum, and an
update costs only as much as its number of rows. The same sum in parts, one per first byte of a
tag (`Sums`), lets a lookup read a single part.
"""

import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple, Self

from lethe.identity import ALGORITHMS, NORMALISATION

TAG_BYTES = 16  # of HMAC-SHA256: enough that two identities never share a tag by chance
NONCE_BYTES = 32
MODULUS = 1 << 256
_TAG = b"\xfflethe person tag 1"  # tombstones tag record ids, and none begins with this byte
_ROW = b"\xfflethe person row 1"
_MASK = b"\xfflethe person mask 1"
_LENGTHS, _NONE = Struct(">q6I").pack, 2**32 - 1  # of a row's parts; _NONE exceeds any length


class StoredRow(NamedTuple):
    """A row as stored: `record` sealed, tags in the order of ALGORITHMS."""

    id: int
    state: str
    record: bytes | None
    tags: tuple[bytes | None, ...]
    request_id: str | None
    imported_by: str | None = None


class Sums:
    """The sum over a model's rows in parts: for each algorithm, one per first byte of a tag.

    The last part of each algorithm is for rows without such a digest. So each algorithm's parts
    add up to the sum over all rows, which is the logged one.

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
        """Return the sum over the rows whose tag of an algorithm begins with byte `first`."""
        return self._values[algorithm * self.PARTS + first]

    def add(self, row: StoredRow, mac: int) -> None:
        """Add a row's MAC; pass the negative MAC to remove the row."""
        for algorithm, tag in enumerate(row.tags):
            place = algorithm * self.PARTS + (self.PARTS - 1 if tag is None else tag[0])
            self._values[place] = (self._values[place] + mac) % MODULUS

    def encode(self) -> bytes:
        """Return the bytes to seal."""
        return b"".join(value.to_bytes(32) for value in (self.follows, *self._values))

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Return the sums that `encode` encoded, None if the length is wrong."""
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
        """Return the tag of each digest in the order of ALGORITHMS, None if it is missing."""
        return tuple(
            self._tagged(kind, name, digests[name]) if name in digests else None
            for name in ALGORITHMS
        )

    def mac(self, row: StoredRow) -> int:
        """Return a row's MAC, its summand."""
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
        # The importer needs no length: it is last, and never empty.
        message += (by or b"") + (importer or "").encode()
        return int.from_bytes(hmac.digest(self._row, message, "sha256"))

    def total(self, rows: Iterator[StoredRow] | Sequence[StoredRow]) -> int:
        """Return the sum of the rows' MACs."""
        return sum(map(self.mac, rows)) % MODULUS

    def sums(self, rows: Iterator[StoredRow]) -> Sums:
        """Return the sum of the rows' MACs in parts."""
        found = Sums()
        for row in rows:
            found.add(row, self.mac(row))
        found.follows = found.total
        return found

    def logged(self, total: int) -> dict[str, str]:
        """Return the log's digests for a sum: the masked sum and the nonce."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        masked = (total + self._mask_of(nonce)) % MODULUS
        return {"people": masked.to_bytes(32).hex(), "nonce": nonce.hex()}

    def opened(self, digests: Mapping[str, Any]) -> int:
        """Return the sum that `logged` masked; 0, the sum of no rows, without digests."""
        if not digests:
            return 0
        masked = int(digests["people"], 16)
        return (masked - self._mask_of(bytes.fromhex(digests["nonce"]))) % MODULUS

    def _mask_of(self, nonce: bytes) -> int:
        return int.from_bytes(hmac.digest(self._mask, nonce, "sha256"))

    def _tagged(self, kind: str, algorithm: str, digest: bytes) -> bytes:
        # Kinds and algorithms contain no NUL, so the domains are unambiguous.
        domain = f"{NORMALISATION}\0{kind}\0{algorithm}\0".encode()
        return hmac.digest(self._tag, domain + digest, "sha256")[:TAG_BYTES]
