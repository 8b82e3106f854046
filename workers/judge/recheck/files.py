"""The files that a certificate names: compare their digests and check their proofs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from lethe.certificates.evidence import (
    ESCALATION_SCORES,
    SCORES,
    Evidence,
    check_evidence,
    parse_evidence,
)
from lethe.certificates.statement import Predicate
from lethe.errors import LetheError
from workers.judge.recheck.lines import Line, compare, skipped

POLICY = "policy"
# The members that a registration's digest covers.
PINNED = ("config", "classes", "method", "extractor", "decide", "cooling_off")
BY_SAMPLES = "empirical-approximate"


@dataclass(frozen=True)
class RecheckFiles:
    """The files available beside the certificate.

    policy: hex SHA-256 of a document. registration: the answer of GET /v1/models/REF.
    """

    evidence: bytes
    scores: Sequence[bytes] = field(default=())
    model: bytes | None = None
    policy: str | None = None
    registration: Mapping[str, Any] | None = None

    @cached_property
    def parsed(self) -> Evidence | None:
        """The evidence, None if the file is not evidence; `compare_files` reports why."""
        try:
            return parse_evidence(self.evidence)
        except LetheError:
            return None


def compare_files(said: Predicate, given: RecheckFiles) -> list[Line]:
    """Return a line for each file that the certificate names, and one for the removal."""
    lines = [compare("evidence file", said.retained_set.removal_proof, _hex(given.evidence))]
    before, after = said.retained_set.before.count, said.retained_set.after.count
    proven = f"{before} - {said.scope.records} = {after} records; the checks as reported"
    try:
        check_evidence(given.evidence, said, given.parsed)
        lines.append(compare("removal proof", proven, proven))
    except LetheError as error:
        lines.append(compare("removal proof", proven, error.detail))
    published = said.model.version_after.digest
    if given.model is None:
        lines.append(skipped("model file", published, "give it with --model"))
    else:
        found = compare("model file", published, _hex(given.model))
        another = (
            f"the file's SHA-256 is {found.recomputed}; this certificate is about {published}"
        )
        lines.append(found if found.status == "same" else replace(found, reason=another))
    registered = said.method.parameters.get(POLICY)
    if given.policy is not None:
        lines.append(compare("policy document", registered or "none named", given.policy))
    elif registered is not None:
        lines.append(skipped("policy document", registered, "give it with --policy"))
    # A verifier is named after the one class that it judges.
    lines.append(compare("guarantee class", said.guarantee.class_, said.verifier.id))
    return [*lines, *_scores(said, given)]


def named_scores(said: Predicate) -> list[tuple[str, str]]:
    """Return name and digest (hex SHA-256) of each scores file that the certificate names."""
    listed = [(part.name, part.digest) for part in said.evidence]
    return [(name, digest) for name, digest in listed if name in (SCORES, ESCALATION_SCORES)]


def scores_of(said: Predicate, given: RecheckFiles, name: str) -> list[bytes]:
    """Return the given scores files that the certificate lists under a name."""
    listed = [part.digest for part in said.evidence if part.name == name]
    found = {_hex(file): file for file in given.scores}
    return [found[digest] for digest in listed if digest in found]


def _scores(said: Predicate, given: RecheckFiles) -> list[Line]:
    listed = named_scores(said)
    found = [_hex(file) for file in given.scores]
    lines = [
        compare(f"{name} file", digest, digest)
        if digest in found
        else skipped(f"{name} file", digest, "give it with --scores")
        for name, digest in listed
    ]
    own = [digest for name, digest in listed if name == SCORES]
    if len(own) > 1:
        # The judged one would be a matter of choice.
        lines.append(compare("scores", "of one verdict", f"{len(own)} are named"))
    if own and said.guarantee.class_ != BY_SAMPLES:
        lines.append(compare("class with scores", said.guarantee.class_, BY_SAMPLES))
    named = {digest for _, digest in listed}
    strange = [digest for digest in found if digest not in named]
    return [*lines, *(compare("scores file", "not named", digest) for digest in strange)]


def _hex(data: bytes) -> str:
    return sha256(data).hexdigest()
