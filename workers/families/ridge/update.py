"""Ridge heads: learn an upload, forget records, fit again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.service.context import Services
from models import ErasureRequest, Model, ModelVersion
from workers.families.ridge import rows as ridge_rows
from workers.families.ridge import state as ridge_state
from workers.families.ridge.blocks import (
    RidgeBlock,
    RowBlock,
    batch_of,
    decode_block,
)
from workers.families.ridge.preflight import check_definite
from workers.families.ridge.removal import answers, remove
from workers.families.ridge.rows import RowDigest, rows_digest
from workers.families.ridge.uploads import ParsedRidgeUpload, parse_upload
from workers.jobs.chain import BatchMember, owned_by_subject
from workers.jobs.lease import JobContext
from workers.jobs.update import ParsedUpload, Update, UpdateResult
from workers.methods.ridge.base import Outcome, RidgeConfig
from workers.methods.ridge.statistics.message import Batch, Message


def read(model: Model, upload: bytes) -> ParsedUpload:
    """Return what an upload teaches. Raises RefusedError if it cannot be learned."""
    number = (model.current_version or 0) + 1
    remote = model.config["data"] != "rows"
    return parse_upload(upload, ridge_state.ridge_config(model), number, remote=remote)


def learn(
    job: JobContext,
    before: ModelVersion | None,
    upload: ParsedUpload,
    salts: Mapping[str, bytes],
) -> UpdateResult:
    """Add an upload to the statistics. Raises RefusedError if no rows have them."""
    services, model = job.services, job.model
    config = ridge_state.ridge_config(model)
    method = ridge_state.method_of(model, model.method)
    with services.reading() as session:
        state = ridge_state.load_state(services, session, before) if before else None
    contents = _grown(services.ledger, model, before, upload)
    assert isinstance(upload, ParsedRidgeUpload)
    outcome = method.learn(config, state, upload.batch)
    if model.config["data"] != "rows" and outcome.state.attested == 0:
        check_definite(outcome.state.statistics, config)
    return _made(outcome, config, method.id, method.version, {}, contents)


def forget(job: JobContext, before: ModelVersion, members: Sequence[BatchMember]) -> Update:
    """Subtract the members' records.

    Raises:
        RefusedError: The method declined.
        AnswerError: A client released what its block cannot have held.
    """
    services, model = job.services, job.model
    config = ridge_state.ridge_config(model)
    with services.reading() as session:
        request = session.get_one(ErasureRequest, job.lease.request_id)
        state = ridge_state.load_state(services, session, before)
        blocks = {
            subject: decode_block(services.features.load(session, subject))
            for subject in owned_by_subject(members)
        }
        released = answers(services, session, members, config.bits)
        retained, targets = _divided(services, session, model, members)
    method = ridge_state.method_of(model, request.method)
    removal = remove(blocks, members, released, config)
    outcome = method.forget(config, state, removal.batch)
    more = {"data": str(model.config["data"])}
    return Update(
        _made(outcome, config, method.id, method.version, more, retained),
        removal.rest,
        frozenset(removal.dropped),
        ridge_state.encode_before(state.statistics, config),
        rows_gone=tuple(one.digest.hex() for one in targets),
        rows_learned=tuple(one.learned for one in targets),
    )


def refit(job: JobContext) -> UpdateResult:
    """Fit anew from the retained rows, whatever was asked for. Raises RefusedError."""
    services, model, model_id = job.services, job.model, job.lease.model_id
    config = ridge_state.ridge_config(model)
    with services.reading() as session:
        stored = list(_stored(services, session, model_id))
        found = ridge_rows.stored_digests(session, model_id, stored)
        contents = _contents(model, (one.digest for one in found))
    blocks = [batch_of(block) for _, block in stored]
    method = ridge_state.method_of(model, _attempt(blocks))
    outcome = method.refit(config, blocks)
    named = f"{method.id}-refit", method.version
    return _made(outcome, config, *named, {}, contents, notes=False)


def _grown(
    ledger: Ledger, model: Model, before: ModelVersion | None, upload: ParsedUpload
) -> dict[str, str]:
    """Return the digests of the rows of the version before with those of an upload.

    `added` is there so that everybody can see one follow from the other.
    """
    if model.config["data"] != "rows":
        return {}
    known = ridge_rows.published(ledger, model, before) if before else rows_digest(())
    if known is None:  # a version without one: nothing can be built on it
        return {}
    added = rows_digest(
        digest
        for owner, block in upload.blocks.items()
        if isinstance(block, RowBlock)
        for digest in ridge_rows.row_digests(block, owner)
    )
    return {"added": added, "rows": ridge_rows.grown_digest(known, added)}


def _divided(
    services: Services, session: Session, model: Model, members: Sequence[BatchMember]
) -> tuple[dict[str, str], list[RowDigest]]:
    """Return what the log says of the retained rows, and the digests of those to forget.

    All rows are read: their digests lie nowhere, or they would outlive the rows in backups.
    """
    assert model.id is not None
    if model.config["data"] != "rows":
        return {}, []
    leaving = {record for member in members for record in member.salts}
    retained, targets = list[bytes](), list[RowDigest]()
    stored = _stored(services, session, model.id)
    for one in ridge_rows.stored_digests(session, model.id, stored):
        if one.record in leaving:
            targets.append(one)
        else:
            retained.append(one.digest)
    return _contents(model, retained), targets


def _contents(model: Model, digests: Iterable[bytes]) -> dict[str, str]:
    return {"rows": rows_digest(digests)} if model.config["data"] == "rows" else {}


def _stored(
    services: Services, session: Session, model_id: int
) -> Iterator[tuple[int, RidgeBlock]]:
    for subject, payload in services.features.load_many(session, model_id):
        yield subject, decode_block(payload)


def _attempt(blocks: Sequence[Batch]) -> str:
    """Return the plainest method that these blocks allow, whichever was asked for."""
    sketched = any(isinstance(block, Message) and block.residual > 0 for block in blocks)
    return "ridge-sketched" if sketched else "ridge-exact"


def _made(
    outcome: Outcome,
    config: RidgeConfig,
    method: str,
    method_version: str,
    more: Mapping[str, Any],
    contents: Mapping[str, str],
    *,
    notes: bool = True,
) -> UpdateResult:
    shown = outcome.notes if notes else {}
    return UpdateResult(
        encoded=ridge_state.encode(outcome.state, config, contents),
        method=method,
        method_version=method_version,
        claim=outcome.claim,
        parameters={**ridge_state.parameters(config), **more, **shown},
        bounds={"head": repr(outcome.state.bound)},
    )
