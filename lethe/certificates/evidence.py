"""Removal proofs, and the evidence file of a certificate that carries them.

A record's commitment is HMAC-SHA256(salt, record id), with 32 random bytes of salt for each
record: without the salt nobody can test whether a record was in the training set, and once it
is destroyed the commitment can no longer be opened. `retained_tree` defines the set and its
hashes.

Records are removed in ascending order of their commitments, each from the set that the previous
removal left. One path proves both sides: with the leaf it leads to the root before, and with
the leaf's parent replaced by the leaf's sibling to the root after. So exactly this leaf was
removed, and a look-up of its commitment in the set after fails. Not proven: that the signed
tree is well formed, so a second copy of a leaf could be where no look-up leads. A holder of all
leaves can recompute the root.

The certificate is public and names nobody. The evidence opens the erased records' commitments,
so it is given only to those entitled to it; the certificate's `retainedSet.removalProof` holds
its digest.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, Literal

from lethe.certificates import shape
from lethe.certificates.errors import RemovalError
from lethe.certificates.retained_tree import Path, RetainedTree, follow
from lethe.certificates.shape import Sha256
from lethe.certificates.statement import (
    CheckPart,
    EvidencePart,
    Outcome,
    Predicate,
    SetState,
    VerifierPart,
)
from lethe.log.tree import leaf_hashes, root_of
from lethe.records import dataclass

SALT_SIZE = 32
_IPAD = bytes(byte ^ 0x36 for byte in range(256))
_OPAD = bytes(byte ^ 0x5C for byte in range(256))


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """One erased record: its commitment's opening, and its path. Personal data."""

    record: str
    salt: bytes
    commitment: bytes
    path: Path


@dataclass(frozen=True, slots=True)
class Removal:
    """The `removal` section of an evidence file; records ascend by commitment."""

    before: SetState
    after: SetState
    records: tuple[RemovedRecord, ...]
    records_root: bytes


def record_commitment(salt: bytes, record_id: str) -> bytes:
    """Return HMAC-SHA256(salt, UTF-8 of the record id), 32 bytes.

    Raises RemovalError unless the salt has 32 bytes: HMAC accepts shorter ones, and with them a
    guess at the record id could be confirmed.
    """
    if len(salt) != SALT_SIZE:
        raise RemovalError(f"a record's salt has exactly {SALT_SIZE} bytes")
    try:
        record = record_id.encode()
    except UnicodeEncodeError:
        raise RemovalError("a record id is text that UTF-8 can carry") from None
    # RFC 2104, written out: OpenSSL's HMAC takes twice as long for such a short text.
    padded = salt.ljust(64, b"\0")
    inner = sha256(padded.translate(_IPAD) + record).digest()
    return sha256(padded.translate(_OPAD) + inner).digest()


def prove_removal(tree: RetainedTree, erased: Mapping[str, bytes]) -> dict[str, Any]:
    """Remove records from a set; return the `removal` section of the evidence.

    `erased` maps each record id to its salt. The result is JSON and personal data: it holds
    record ids and salts. Raises RemovalError if a record is not in the set or none is given;
    the set is then unchanged.
    """
    if not erased:
        raise RemovalError("a removal needs at least one record")
    opened = sorted(
        (record_commitment(salt, record), record, salt) for record, salt in erased.items()
    )
    commitments = [commitment for commitment, _, _ in opened]
    if not all(map(tree.__contains__, commitments)):
        raise RemovalError("a record to erase is not in the retained set under this salt")
    before = SetState(tree.root, tree.count)
    records = tuple(
        RemovedRecord(record, salt, commitment, tree.remove(commitment))
        for commitment, record, salt in opened
    )
    after = SetState(tree.root, tree.count)
    return shape.write(Removal(before, after, records, _root_of_records(commitments)))


def check_sets(
    removal: Removal, before: SetState, after: SetState, records: int, records_root: bytes
) -> None:
    """Check a parsed `removal` section against the sets and the scope of a certificate.

    Raises RemovalError: it is about other sets, the sets differ by more or less than the
    records, or the numbers do not add up.
    """
    if removal.before != before or removal.after != after:
        raise RemovalError("the proofs are of other retained sets than the certificate's")
    commitments = [record.commitment for record in removal.records]
    if not commitments or len(commitments) != records:
        raise RemovalError("the proofs are for another number of records than the scope's")
    if any(left >= right for left, right in pairwise(commitments)):
        raise RemovalError("the records must ascend by commitment and none may repeat")
    if len({record.record for record in removal.records}) != records:
        # One record under two salts would hide a second record that was not removed.
        raise RemovalError("a record is listed twice under different salts")
    if not removal.records_root == _root_of_records(commitments) == records_root:
        raise RemovalError("the records are not those of the certificate's scope")
    if after.count != before.count - records:
        raise RemovalError("the set did not shrink by exactly the erased records")
    state = before
    for position, record in enumerate(removal.records):
        try:
            state = _check_record(record, state)
        except RemovalError as error:
            # By position: a record id in a message would be personal data in a log file.
            raise RemovalError(f"record {position + 1}: {error.detail}") from None
    if state != after:
        raise RemovalError("the set after is not what the removed records leave")


def _check_record(record: RemovedRecord, state: SetState) -> SetState:
    """Return the state of the set after this record is removed from `state`."""
    if record_commitment(record.salt, record.record) != record.commitment:
        raise RemovalError("record id and salt do not open the commitment")
    before, after = follow(record.commitment, record.path)
    if SetState(*before) != state:
        raise RemovalError("its path does not lead to the set that it is removed from")
    return SetState(*after)


def _root_of_records(commitments: Sequence[bytes]) -> bytes:
    return root_of(leaf_hashes(commitments))


MEDIA_TYPE = "application/json"
SCORES_TYPE = "application/octet-stream"  # safetensors has no registered type
SCORES = "scores"  # of the certified verdict
ESCALATION_SCORES = "escalation.scores"  # of an earlier attempt


@dataclass(frozen=True, slots=True)
class Report:
    """The verifier's own report; `details` are further measurements, as strings."""

    verifier: VerifierPart
    result: Outcome
    checks: tuple[CheckPart, ...]
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A whole evidence file; `statistics` are digests of the data that the method updated."""

    api_version: Literal["2"]
    kind: Literal["erasure-evidence"]
    removal: Removal
    report: Report
    statistics: Mapping[str, Sha256]


def build_evidence(
    removal: Mapping[str, Any], report: Report, statistics: Mapping[str, str]
) -> bytes:
    """Return the evidence file (RFC 8785 bytes).

    `removal` is what `prove_removal` returned, `statistics` maps names such as "gram.before" to
    SHA-256 in hexadecimal. Raises ShapeError: a part does not fit the format.
    """
    section = shape.read(Removal, dict(removal))
    return shape.encode(Evidence("2", "erasure-evidence", section, report, statistics))


def parse_evidence(data: bytes) -> Evidence:
    """Parse an evidence file; nothing is verified yet.

    Raises NotCanonicalError: the bytes are not RFC 8785 canonical JSON; ShapeError: a member is
    missing, unknown or misspelled.
    """
    return shape.decode(Evidence, data)


def evidence_part(name: str, evidence: bytes) -> EvidencePart:
    """Return a certificate's entry for an evidence file: name, digest, media type."""
    return EvidencePart(name, sha256(evidence).hexdigest(), MEDIA_TYPE)


def scores_part(digest: str, *, certified: bool) -> EvidencePart:
    """Return a certificate's entry for a scores file (hex SHA-256).

    certified: the scores belong to the certified verdict, not to an earlier attempt.
    """
    return EvidencePart(SCORES if certified else ESCALATION_SCORES, digest, SCORES_TYPE)


def check_evidence(
    evidence: bytes, predicate: Predicate, parsed: Evidence | None = None
) -> None:
    """Check an evidence file against the certificate that names it.

    parsed: what `parse_evidence` returned for these bytes, if the caller has it.

    Raises RemovalError: the digest is not the certificate's, a proof does not verify, or the
    report is not the certified one; NotCanonicalError, ShapeError: the file that the
    certificate names is not evidence.
    """
    retained, scope = predicate.retained_set, predicate.scope
    if sha256(evidence).hexdigest() != retained.removal_proof:
        raise RemovalError("this is not the evidence file that the certificate names")
    if parsed is None:
        parsed = parse_evidence(evidence)
    check_sets(
        parsed.removal, retained.before, retained.after, scope.records, scope.records_root
    )
    said: Sequence[object] = (predicate.verifier, predicate.result, predicate.checks)
    if said != (parsed.report.verifier, parsed.report.result, parsed.report.checks):
        raise RemovalError("the evidence reports other checks than the certificate")
