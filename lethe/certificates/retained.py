"""The retained set: a Merkle tree over sorted, salted commitments to the training records.

A record's commitment is HMAC-SHA256(salt, record id), with 32 random bytes of salt for each
record: without the salt nobody can test who was in the training set, and destroying it
leaves a commitment that means nothing. The tree is RFC 6962's over the commitments in
ascending order, so that two leaves side by side prove that nothing lies between them.

What is proven: each erased record was in the set before (inclusion), is not in the set
after (its two neighbours there are adjacent), and the set shrank by exactly their number.
What is not: an RFC 6962 root fixes neither the number of its leaves nor their order, so
both are the word of whoever signed it. Who has the list of commitments recomputes the root.
"""

import hmac
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import lt
from typing import Any

from lethe.certificates import shape
from lethe.certificates.errors import RemovalError
from lethe.certificates.statement import SetState
from lethe.log.proofs import ProofError, check_inclusion, inclusion_proof
from lethe.log.tree import EMPTY_ROOT, leaf_hash, leaf_hashes, node_hashes, root_of, tree_root

SALT_SIZE = 32


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Where the erased commitment was in the set before."""

    index: int
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A commitment of the set after, and its inclusion there."""

    index: int
    commitment: bytes
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Absence:
    """The last smaller and the first larger commitment after; null beyond either end."""

    left: Neighbour | None
    right: Neighbour | None


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """One erased record, its commitment opened, with both proofs. Personal data."""

    record: str
    salt: bytes
    commitment: bytes
    inclusion: Inclusion
    absence: Absence


@dataclass(frozen=True, slots=True)
class Removal:
    """The `removal` section of an evidence file; records ascend by commitment."""

    before: SetState
    after: SetState
    records: tuple[RemovedRecord, ...]
    records_root: bytes


class RetainedTree:
    """The tree over a sorted set of commitments, every level hashed once."""

    def __init__(self, commitments: Sequence[bytes]) -> None:
        """Hash all levels, in O(n).

        Raises:
            RemovalError: A commitment does not have 32 bytes, or they are not strictly
                ascending: a set in two orders would have two roots.
        """
        if {*map(len, commitments)} - {32}:
            raise RemovalError("a commitment has 32 bytes")
        if not all(map(lt, commitments, islice(commitments, 1, None))):
            raise RemovalError("the commitments must ascend and none may repeat: sort them")
        self.commitments = commitments
        row = leaf_hashes(commitments)
        self._levels = [row]
        while len(row) > 1:
            # Only complete subtrees: the ragged right edge is folded when it is asked for.
            row = node_hashes(row)
            self._levels.append(row)

    @property
    def state(self) -> SetState:
        """The root and the number of records."""
        size = len(self.commitments)
        return SetState(tree_root(size, self._node) if size else EMPTY_ROOT, size)

    def prove(self, index: int) -> tuple[bytes, ...]:
        """Return the inclusion proof of one leaf."""
        return tuple(inclusion_proof(index, len(self.commitments), self._node))

    def neighbour(self, index: int) -> Neighbour | None:
        """Return one leaf with its proof, or None where the set has no such index."""
        if not 0 <= index < len(self.commitments):
            return None
        return Neighbour(index, self.commitments[index], self.prove(index))

    def _node(self, level: int, index: int) -> bytes:
        return self._levels[level][index]


def record_commitment(salt: bytes, record_id: str) -> bytes:
    """Return HMAC-SHA256(salt, UTF-8 of the record id), 32 bytes.

    Raises:
        RemovalError: The salt does not have 32 bytes, which HMAC would accept and which a
            guess at the record id could then confirm.
    """
    if len(salt) != SALT_SIZE:
        raise RemovalError(f"a record's salt has exactly {SALT_SIZE} bytes")
    try:
        return hmac.digest(salt, record_id.encode(), "sha256")
    except UnicodeEncodeError:
        raise RemovalError("a record id is text that UTF-8 can carry") from None


def retained_root(sorted_commitments: Sequence[bytes]) -> bytes:
    """Return the root of the retained set with these commitments, in ascending order.

    Raises:
        RemovalError: They are not strictly ascending, or not of 32 bytes.
    """
    return RetainedTree(sorted_commitments).state.root


def prove_removal(before: Sequence[bytes], erased: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the `removal` section of the evidence for erasing records from a set.

    `before` are all commitments in ascending order, `erased` maps each erased record id to
    its salt. The result is JSON; it holds record ids and salts, so it is personal data.

    Raises:
        RemovalError: A record is not in `before`, none is given, or `before` is unsorted.
    """
    if not erased:
        raise RemovalError("a removal needs at least one record")
    old = RetainedTree(before)
    opened = sorted(
        (record_commitment(salt, record), record, salt) for record, salt in erased.items()
    )
    gone = {commitment for commitment, _, _ in opened}
    new = RetainedTree([commitment for commitment in before if commitment not in gone])
    records = []
    for commitment, record, salt in opened:
        index = bisect_left(before, commitment)
        if index == len(before) or before[index] != commitment:
            raise RemovalError("a record to erase is not in the retained set under this salt")
        place = bisect_left(new.commitments, commitment)
        absence = Absence(new.neighbour(place - 1), new.neighbour(place))
        inclusion = Inclusion(index, old.prove(index))
        records.append(RemovedRecord(record, salt, commitment, inclusion, absence))
    root = _root_of_records([commitment for commitment, _, _ in opened])
    return shape.write(Removal(old.state, new.state, tuple(records), root))


def check_removal(
    section: Any,
    before_root: bytes,
    before_count: int,
    after_root: bytes,
    after_count: int,
    records: int,
    records_root: bytes,
) -> None:
    """Check a `removal` section (JSON) against what a certificate says.

    Raises:
        ShapeError: The section is not one.
        RemovalError: It is of other sets, a record is not shown to be in the one before and
            absent from the one after, or the numbers do not add up.
    """
    before, after = SetState(before_root, before_count), SetState(after_root, after_count)
    check_sets(shape.read(Removal, section), before, after, records, records_root)


def check_sets(
    removal: Removal, before: SetState, after: SetState, records: int, records_root: bytes
) -> None:
    """Check a removal section that was read already, as `check_removal` does.

    Raises:
        RemovalError: As there.
    """
    if removal.before != before or removal.after != after:
        raise RemovalError("the proofs are of other retained sets than the certificate's")
    commitments = [record.commitment for record in removal.records]
    if not commitments or len(commitments) != records:
        raise RemovalError("the proofs are for another number of records than the scope's")
    if any(left >= right for left, right in pairwise(commitments)):
        raise RemovalError("the records must ascend by commitment and none may repeat")
    if len({record.record for record in removal.records}) != records:
        # One person's record under two salts would hide a second record that stayed.
        raise RemovalError("a record is listed twice under different salts")
    if not removal.records_root == _root_of_records(commitments) == records_root:
        raise RemovalError("the records are not those of the certificate's scope")
    if after.count != before.count - records:
        raise RemovalError("the set did not shrink by exactly the erased records")
    for position, record in enumerate(removal.records):
        try:
            _check_record(record, before, after)
        except (RemovalError, ProofError) as error:
            # By position: a record id in a message would be personal data in a log file.
            raise RemovalError(f"record {position + 1}: {error.detail}") from None


def _check_record(record: RemovedRecord, before: SetState, after: SetState) -> None:
    commitment = record.commitment
    if record_commitment(record.salt, record.record) != commitment:
        raise RemovalError("record id and salt do not open the commitment")
    leaf, place = leaf_hash(commitment), record.inclusion
    check_inclusion(place.index, before.count, leaf, place.hashes, before.root)
    left, right = record.absence.left, record.absence.right
    if left is not None and left.commitment >= commitment:
        raise RemovalError("the left neighbour is not below the erased commitment")
    if right is not None and right.commitment <= commitment:
        raise RemovalError("the right neighbour is not above the erased commitment")
    # Beyond the ends: index -1 on the left, count on the right. An empty set has both.
    first = -1 if left is None else left.index
    second = after.count if right is None else right.index
    if second != first + 1:
        raise RemovalError("the two neighbours are not adjacent in the set after")
    if after.count == 0 and after.root != EMPTY_ROOT:
        raise RemovalError("the set after is said to be empty and its root is not")
    for neighbour in (left, right):
        if neighbour is not None:
            leaf = leaf_hash(neighbour.commitment)
            check_inclusion(neighbour.index, after.count, leaf, neighbour.hashes, after.root)


def _root_of_records(commitments: Sequence[bytes]) -> bytes:
    return root_of(leaf_hashes(commitments))
