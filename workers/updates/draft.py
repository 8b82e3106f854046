"""The draft: sealed facts of an execution that verification and certification need.

Execution destroys data that later stages must still describe: which records were erased, with
their salts, and what was shredded. These facts are kept in one sealed artifact, which is
shredded when the certificate is issued. The log's `request.executed` commits to its digest: if
a table points a job at another request's draft, loading fails.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlmodel import Session

from app.reconcile.judgement import EXECUTED, Event, opened
from app.reconcile.model_events import request_events
from app.service.context import Services
from lethe import canonical
from lethe.canonical import format_base64, parse_base64
from lethe.certificates import shape
from lethe.certificates.evidence import Removal
from lethe.certificates.retained_tree import Leaf as RetainedLeaf
from lethe.certificates.statement import NAMED, Purged, certified_number
from lethe.log.entries import CommitmentError, EntryError, Leaf
from models import Artifact, ErasureRequest, Job
from workers.errors import RefusedError

DRAFT = "draft"  # in the payload of request.executed: hex SHA-256 of the draft


class OtherDraftError(RefusedError):
    """The stored draft does not belong to the execution that the log has for the request."""


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

    ref: the log's reference of the executed request. One update may serve several requests,
    each with its own draft. `removal` is this request's link: the sets before and after the
    removal of its own records. `earlier` and `later` are the leaves (base64, concatenated) that
    the requests before and after it removed; they lead from version `before_number` to the link
    and from the link to version `number`.
    """

    ref: str
    removal: dict[str, Any]
    earlier: str
    later: str
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
    # Digest of the executing process's code: a newer release may certify it weeks later.
    code: str
    environment: dict[str, str]
    # The artifact of the model before, which is destroyed with the last of its certificates.
    before_id: str | None = None
    # Of a masked round: leaves (base64, concatenated) that it added before its first link.
    added: str = ""
    round_id: str | None = None
    # Salted digests (hex) of all rows that the update removed and, for a ridge head, the
    # numbers of the versions that learned them.
    rows_gone: list[str] = field(default_factory=list)
    rows_learned: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The method with the settings that differ, as certificates and the log name it."""
        return self.parameters.get(NAMED, self.method)

    @property
    def attempt(self) -> int:
        """The number of the attempt that the draft belongs to, as `AttemptPart` has it."""
        return certified_number(self.parameters)

    def gone(self) -> list[RetainedLeaf]:
        """Return the leaves that the whole update removed, for this request and others."""
        removal = shape.read(Removal, self.removal)
        own = [(record.commitment, record.path.content) for record in removal.records]
        return [*read_leaves(self.earlier), *own, *read_leaves(self.later)]

    def others(self) -> tuple[list[bytes], list[bytes]]:
        """Return the commitments that the requests before and after this one removed."""
        earlier, later = read_leaves(self.earlier), read_leaves(self.later)
        return [commitment for commitment, _ in earlier], [one for one, _ in later]

    def purged(self) -> Purged:
        """Return the certificate's list; each artifact and each block had a key."""
        return Purged(
            artifacts=tuple(artifact.digest for artifact in self.artifacts),
            feature_rows=self.feature_rows,
            keys_destroyed=len(self.artifacts) + len(self.blocks),
        )


def store(services: Services, session: Session, drafts: Sequence[Draft]) -> list[Artifact]:
    """Seal drafts; `request.executed` names each digest in the same transaction."""
    contents = [canonical.encode(_document(one)) for one in drafts]
    return services.artifacts.put_all(session, DRAFT, contents)


def _document(draft: Draft) -> dict[str, Any]:
    # `asdict` would copy the proofs, node by node.
    named = {one.name: getattr(draft, one.name) for one in fields(draft)}
    return named | {name: [*map(asdict, named[name])] for name in ("artifacts", "blocks")}


def load(services: Services, session: Session, job: Job) -> Draft:
    """Open the draft that the last execution of a job's request left.

    Raises:
        OtherDraftError: The job names another draft, or the log has no such execution.
        ShreddedError, SealError: As `ArtifactStore.get`.
    """
    request = session.get_one(ErasureRequest, job.request_id)
    leaves = request_events(services.ledger, request.ref)
    return load_executed(services, session, job, open_events(session, request, leaves))


def open_events(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> list[Event]:
    """Return a request's events, decrypted. Raises OtherDraftError if they do not decrypt."""
    try:
        return opened(session, request, leaves)
    except (CommitmentError, EntryError) as error:
        why = f"what the log says of the request cannot be read: {error.title}"
        raise OtherDraftError(why) from None


def load_executed(
    services: Services, session: Session, job: Job, events: Sequence[Event]
) -> Draft:
    """Open the draft of the last execution among a request's `events`. Raises as `load`."""
    assert job.draft_id is not None
    data = services.artifacts.get(session, job.draft_id)
    request = session.get_one(ErasureRequest, job.request_id)
    if sha256_hex(data) != logged_digest(events):
        raise OtherDraftError("the draft is not the one that the log has as executed")
    known = json.loads(data)  # the log committed to these bytes
    if known["ref"] != request.ref:
        raise OtherDraftError("the draft belongs to another request")
    known["artifacts"] = [ShreddedArtifact(**item) for item in known["artifacts"]]
    known["blocks"] = [RewrittenBlock(**item) for item in known["blocks"]]
    return Draft(**known)


def logged_digest(events: Sequence[Event]) -> str | None:
    """Return the digest of the draft of a request's last execution, as the log has it."""
    last = [event.payload for event in events if event.event == EXECUTED][-1:]
    return last[0].get(DRAFT) if last else None


def write_leaves(leaves: Sequence[RetainedLeaf]) -> str:
    """Encode leaves of the retained set as one text for a draft, which is fast to parse."""
    return format_base64(b"".join(commitment + content for commitment, content in leaves))


def read_leaves(text: str) -> list[RetainedLeaf]:
    """Decode the text of `write_leaves`."""
    data = parse_base64(text)
    starts = range(0, len(data), 64)
    return [(data[start : start + 32], data[start + 32 : start + 64]) for start in starts]


def sha256_hex(data: bytes) -> str:
    """Return the hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()
