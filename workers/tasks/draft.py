"""What execution hands on to verification and certification, sealed at rest.

Execution destroys what the later stages must still speak about: which records went, with
their salts, and what was shredded. That knowledge lives in one sealed artifact until the
certificate is issued, and is shredded with it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlmodel import Session

from app import canonical
from app.certificates.statement import Purged
from app.ledger.spelling import format_base64, parse_base64
from app.service.context import Services
from models import Job


@dataclass(frozen=True, slots=True)
class ShreddedArtifact:
    """An artifact whose key was destroyed: `id` to probe, `digest` to certify."""

    id: str
    digest: str


@dataclass(frozen=True, slots=True)
class RewrittenBlock:
    """A subject's block before it was rewritten or destroyed: SHA-256 of its ciphertext."""

    subject_id: int
    generation: int
    ciphertext: str


@dataclass(frozen=True, slots=True)
class Draft:
    """Facts of one execution. Digests are hex SHA-256; numbers in mappings are strings.

    One update may serve several requests, each with its own draft. `removal` is this
    request's link: the sets before and after its own records went. `earlier` and `later`
    are the commitments (base64) that the requests before and after it removed, which lead
    from the version `before_number` to the link and from the link to the version `number`.
    """

    removal: dict[str, Any]
    earlier: list[str]
    later: list[str]
    before_number: int
    number: int
    head_before: str
    statistics_before: str
    statistics_after: str
    method: str
    method_version: str
    claim: str
    parameters: dict[str, str]
    bounds: dict[str, str]
    artifacts: list[ShreddedArtifact]
    blocks: list[RewrittenBlock]
    feature_rows: int
    # Of a masked round: commitments (base64) that it added before its first link.
    added: list[str] = field(default_factory=list)
    round_id: str | None = None
    # Salted digests (hex) of all rows that the update removed, and, of a ridge head, the
    # numbers of the versions that they came with.
    rows_gone: list[str] = field(default_factory=list)
    rows_learned: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The method with the settings that differ, as certificates and the log name it."""
        return self.parameters.get("rung", self.method)

    def purged(self) -> Purged:
        """Return the certificate's list; each artifact and each block had a key."""
        return Purged(
            artifacts=tuple(artifact.digest for artifact in self.artifacts),
            feature_rows=self.feature_rows,
            keys_destroyed=len(self.artifacts) + len(self.blocks),
        )


def store(services: Services, session: Session, draft: Draft) -> str:
    """Seal a draft; returns the artifact's id."""
    return services.artifacts.put(session, "draft", canonical.encode(asdict(draft))).id


def load(services: Services, session: Session, job: Job) -> Draft:
    """Open the draft that a job's execution left."""
    assert job.draft_id is not None
    fields = canonical.decode(services.artifacts.get(session, job.draft_id))
    fields["artifacts"] = [ShreddedArtifact(**item) for item in fields["artifacts"]]
    fields["blocks"] = [RewrittenBlock(**item) for item in fields["blocks"]]
    return Draft(**fields)


def write_commitments(values: Sequence[bytes]) -> list[str]:
    """Return commitments as a draft holds them."""
    return [format_base64(value) for value in values]


def read_commitments(texts: Sequence[str]) -> list[bytes]:
    """Return the commitments that `write_commitments` wrote."""
    return [parse_base64(text) for text in texts]


def sha256_hex(data: bytes) -> str:
    """Return the hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()
