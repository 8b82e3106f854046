"""Ridge heads: learn an upload, forget records, refit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session

from models import ErasureRequest, Model, ModelVersion
from workers.families.ridge import state as ridge_state
from workers.families.ridge.blocks import (
    RidgeBlock,
    RowBlock,
    batch_of,
    decode_block,
)
from workers.families.ridge.preflight import check_definite
from workers.families.ridge.removal import answers, remove
from workers.families.ridge.rows import RowDigest, owners, row_digests, stored_digests
from workers.families.ridge.uploads import ParsedRidgeUpload, parse_upload
from workers.jobs.leases.lease import JobContext
from workers.jobs.model.chain import BatchMember, owned_by_subject
from workers.jobs.model.logged import require_rows
from workers.jobs.update import ParsedUpload, Update, UpdateResult, as_digests
from workers.methods.ridge.base import Outcome, RidgeConfig
from workers.methods.ridge.statistics.message import Batch, Message


def read(model: Model, upload: BinaryIO) -> ParsedUpload:
    """Parse an upload. Raises RefusedError if it cannot be learned."""
    number = (model.current_version or 0) + 1
    remote = model.config["data"] != "rows"
    return parse_upload(upload, ridge_state.ridge_config(model), number, remote=remote)


def learn(
    job: JobContext,
    before: ModelVersion | None,
    upload: ParsedUpload,
    salts: NDArray[np.uint8],
) -> UpdateResult:
    """Add an upload to the statistics.

    Raises RefusedError if no rows can have the result, or if the state is not that of `before`.
    """
    services, model = job.services, job.model
    config = ridge_state.ridge_config(model)
    method = ridge_state.method_of(model, model.method)
    with services.reading() as session:
        state = ridge_state.load_state(services, session, before) if before else None
    if state is not None:  # a tampered row may name another model's
        require_rows(before, ridge_state.digest_of(state, config))
    assert isinstance(upload, ParsedRidgeUpload)
    outcome = method.learn(config, state, upload.batch)
    if model.config["data"] != "rows" and outcome.state.attested == 0:
        check_definite(outcome.state.statistics, config)
    made = _made(outcome, config, method.id, method.version, {})
    return replace(made, contents=_contents(model, upload))


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
        payloads = services.features.load_each(session, list(owned_by_subject(members)))
        blocks = {subject: decode_block(payload) for subject, payload in payloads.items()}
        released = answers(services, session, members, config.bits)
        leaving = _leaving(session, members, blocks)
    method = ridge_state.method_of(model, request.method)
    removal = remove(blocks, members, released, config)
    outcome = method.forget(config, state, removal.batch)
    more = {"data": str(model.config["data"])}
    return Update(
        _made(outcome, config, method.id, method.version, more),
        removal.rest,
        frozenset(removal.dropped),
        ridge_state.encode_before(state.statistics, config),
        rows_gone=tuple(one.digest.hex() for one in leaving),
        rows_learned=tuple(one.learned for one in leaving),
    )


def refit(job: JobContext) -> UpdateResult:
    """Refit from the retained rows, whatever the request named. Raises RefusedError."""
    services, model, model_id = job.services, job.model, job.lease.model_id
    config = ridge_state.ridge_config(model)
    with services.reading() as session:
        blocks = [
            batch_of(decode_block(payload))
            for _, payload in services.features.load_many(session, model_id)
        ]
    method = ridge_state.method_of(model, _attempt(blocks))
    outcome = method.refit(config, blocks)
    named = f"{method.id}-refit", method.version
    return _made(outcome, config, *named, {}, notes=False)


def _contents(model: Model, upload: ParsedUpload) -> NDArray[np.uint8] | None:
    """Return the salted digest of each row of an upload, None for messages."""
    if model.config["data"] != "rows":
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
        encoded=ridge_state.encode(outcome.state, config),
        method=method,
        method_version=method_version,
        claim=outcome.claim,
        parameters={**ridge_state.parameters(config), **more, **shown},
        bounds={"head": repr(outcome.state.bound)},
    )
