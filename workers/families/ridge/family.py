"""Ridge heads whose rows, or whose clients' statistics, are stored here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session

from app.service.context import Services
from lethe.catalogue import data_of
from lethe.certificates.statement import Guarantee
from models import ErasureRequest, Model, ModelVersion
from workers.artifacts import decode_head
from workers.cases.case import ExecutedJob, Judges, NextAttempt
from workers.families.base import Family
from workers.families.ridge import stored
from workers.families.ridge.case import prepare
from workers.families.ridge.export import FORMATS, export
from workers.families.ridge.removal import answers, check_definite, remove
from workers.families.ridge.rows import RowDigest, owners, row_digests, stored_digests
from workers.families.ridge.stored import RidgeBlock, RowBlock, batch_of, decode_block, join
from workers.families.ridge.uploads import ParsedRidgeUpload, parse_upload
from workers.judge.base import Report
from workers.leases.lease import JobContext
from workers.lineage.chain import BatchMember, owned_by_subject
from workers.lineage.logged import require_rows
from workers.methods.ridge.base import Outcome, RidgeConfig
from workers.methods.ridge.statistics.message import Batch, Message
from workers.updates.draft import Draft
from workers.updates.update import ParsedUpload, StoredBlock, Update, UpdateResult, as_digests

# The certificate's wording. The head's part was checked by the verifier named in the claim, the
# statistics' part by check 1.
Kind = Literal["exact", "numerically-exact", "certified-approximate"]

# What the verifier could not see, by the location of the rows.
UNSEEN = "The rows were not seen, and nothing binds them to their record ids."
SEEN: Mapping[str, str] = MappingProxyType(
    {
        "rows": "The statistics are bit-equal to those of the retained records",
        "statistics": f"{UNSEEN} The statistics are bit-equal to the sum of the messages "
        "retained from the clients that hold the rows",
    }
)
HEADS: dict[Kind, str] = {
    "exact": "each entry of the head is the correctly rounded ridge solution for them",
    "numerically-exact": "the head is within the proven bound of the ridge solution for them "
    "(Frobenius norm)",
    "certified-approximate": "the head, which follows sketches of them, is within the proven "
    "bound of the ridge solution for them (Frobenius norm), and the bound within the drift "
    "budget of the registration",
}


def guarantee(claim: str, seen: str, bounds: Mapping[str, str]) -> Guarantee:
    """Return the guarantee of a verified claim; seen: which statistics the verifier saw.

    Raises ValueError for a claim that no verifier of ridge heads covers.
    """
    for kind, head in HEADS.items():
        if kind == claim:
            return Guarantee(kind, f"{seen}, and {head}.", bounds)
    raise ValueError(f"no verifier vouches for the claim {claim}")


class RidgeFamily(Family):
    """Sums are exact, so a contribution is added, and an erasure subtracted."""

    rooms = ("methods/ridge",)
    judge_rooms = ("judge",)
    audited = False
    formats = tuple(FORMATS)
    judges_together = True

    def read(self, model: Model, upload: BinaryIO) -> ParsedUpload:
        """Parse an upload. Raises RefusedError if it cannot be learned."""
        number = (model.current_version or 0) + 1
        remote = not data_of(model.config).rows_here
        return parse_upload(upload, stored.ridge_config(model), number, remote=remote)

    def join(self, model: Model, stored: bytes, fresh: StoredBlock) -> StoredBlock:
        """Add up rows, or statistics. Raises RefusedError, ExactnessError."""
        return join(decode_block(stored), fresh, bits=model.config["bits"])

    def learn(
        self,
        job: JobContext,
        before: ModelVersion | None,
        upload: ParsedUpload,
        salts: NDArray[np.uint8],
    ) -> UpdateResult:
        """Add an upload to the statistics.

        Raises RefusedError if no rows can have the result, or the state is not of `before`.
        """
        services, model = job.services, job.model
        config = stored.ridge_config(model)
        method = stored.method_of(model, model.method)
        with services.reading() as session:
            state = stored.load_state(services, session, before) if before else None
        if state is not None:  # a tampered row may name another model's
            require_rows(before, stored.digest_of(state, config))
        assert isinstance(upload, ParsedRidgeUpload)
        outcome = method.learn(config, state, upload.batch)
        if not data_of(model.config).rows_here and outcome.state.attested == 0:
            check_definite(outcome.state.statistics, config)
        made = _made(outcome, config, method.id, method.version, {})
        return replace(made, contents=_contents(model, upload))

    def forget(
        self, job: JobContext, before: ModelVersion, members: Sequence[BatchMember]
    ) -> Update:
        """Subtract the members' records.

        Raises:
            RefusedError: The method declined.
            AnswerError: A client released what its block cannot have held.
        """
        services, model = job.services, job.model
        config = stored.ridge_config(model)
        with services.reading() as session:
            request = session.get_one(ErasureRequest, job.lease.request_id)
            state = stored.load_state(services, session, before)
            payloads = services.features.load_each(session, list(owned_by_subject(members)))
            blocks = {subject: decode_block(payload) for subject, payload in payloads.items()}
            released = answers(services, session, model, members)
            leaving = _leaving(session, members, blocks)
        method = stored.method_of(model, request.method)
        removal = remove(blocks, members, released, config)
        outcome = method.forget(config, state, removal.batch)
        more = {"data": str(model.config["data"])}
        return Update(
            _made(outcome, config, method.id, method.version, more),
            removal.rest,
            frozenset(removal.dropped),
            stored.encode_before(state.statistics, config),
            rows_gone=tuple(one.digest.hex() for one in leaving),
            rows_learned=tuple(one.learned for one in leaving),
        )

    def refit(self, job: JobContext) -> UpdateResult:
        """Refit from the retained rows, whatever the request named. Raises RefusedError."""
        services, model, model_id = job.services, job.model, job.lease.model_id
        config = stored.ridge_config(model)
        with services.reading() as session:
            blocks = [
                batch_of(decode_block(payload))
                for _, payload in services.features.load_many(session, model_id)
            ]
        method = stored.method_of(model, _attempt(blocks))
        outcome = method.refit(config, blocks)
        named = f"{method.id}-refit", method.version
        return _made(outcome, config, *named, {}, notes=False)

    def next_attempt(
        self, job: JobContext, session: Session, case: ExecutedJob, report: Report
    ) -> NextAttempt | None:
        """Return the refit, whatever the request and verdict were; None if that was it."""
        return None if job.lease.step > 1 else NextAttempt(2, "refit", compared=True)

    def compares(self, claim: str) -> bool:
        """Statistics can be compared with those before, whatever produced them."""
        return True

    def prepare(
        self, job: JobContext, session: Session, cases: Sequence[ExecutedJob], seed: bytes
    ) -> Judges:
        """Load the results of executed jobs on a head; the returned function judges them."""
        return prepare(job, session, cases, seed)

    def guarantee(self, plan: Draft) -> Guarantee:
        """Return the guarantee for statistics and head. Raises ValueError."""
        return guarantee(plan.claim, SEEN[plan.parameters["data"]], plan.bounds)

    def registered(self, model: Model) -> dict[str, str]:
        """Return the digest of the extractor."""
        return {"extractor": model.extractor["digest"]}

    def registered_with_rows(self, model: Model) -> bool:
        """Otherwise rows or their statistics come with the first contribution."""
        return data_of(model.config).rows_here

    def asks(self, model: Model) -> bool:
        """A client's sum does not show the share of one record."""
        return data_of(model.config).messages_here

    def predict_held_out(
        self,
        services: Services,
        model: Model,
        file: bytes,
        features: "NDArray[np.float64]",
    ) -> "NDArray[Any] | None":
        """Return the class of the highest score, as every export of a head does."""
        head, _ = decode_head(file)
        found: NDArray[Any] = (features @ head.astype(np.float64)).argmax(axis=1)
        return found

    def export(
        self, artifact: bytes, form: str, classes: Sequence[str], config: Mapping[str, Any]
    ) -> bytes:
        """Return the head for other programs. Raises RefusedError."""
        return export(artifact, form, classes)


def _contents(model: Model, upload: ParsedUpload) -> NDArray[np.uint8] | None:
    """Return the salted digest of each row of an upload, None for messages."""
    if not data_of(model.config).rows_here:
        return None
    return as_digests(
        b"".join(
            digest
            for owner, block in upload.blocks.items()
            if isinstance(block, RowBlock)
            for digest in row_digests(block, owner)
        )
    )


def _leaving(
    session: Session, members: Sequence[BatchMember], blocks: Mapping[int, RidgeBlock]
) -> list[RowDigest]:
    """Return the digests of the members' rows, with the versions that learned them."""
    known = owners(session, blocks)
    return [
        one
        for subject, records in owned_by_subject(members).items()
        if isinstance(block := blocks[subject], RowBlock)
        for one in stored_digests(block.only(records), known[subject])
    ]


def _attempt(blocks: Sequence[Batch]) -> str:
    """Return the simplest method that these blocks allow, whatever the request named."""
    sketched = any(isinstance(block, Message) and block.residual > 0 for block in blocks)
    return "ridge-sketched" if sketched else "ridge-exact"


def _made(
    outcome: Outcome,
    config: RidgeConfig,
    method: str,
    method_version: str,
    more: Mapping[str, Any],
    *,
    notes: bool = True,
) -> UpdateResult:
    shown = outcome.notes if notes else {}
    return UpdateResult(
        encoded=stored.encode(outcome.state, config),
        method=method,
        method_version=method_version,
        claim=outcome.claim,
        parameters={**stored.parameters(config), **more, **shown},
        bounds={"head": repr(outcome.state.bound)},
    )


FAMILY: Family = RidgeFamily()
