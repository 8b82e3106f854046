"""Ridge heads: learn, forget, fit anew. Loads, and calls methods."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlmodel import Session

from app.service.context import Services
from models import ErasureRequest, Model, ModelVersion
from workers.methods.base import Outcome, RidgeConfig
from workers.statistics.message import Batch, Message
from workers.tasks import before as before_statistics
from workers.tasks import releasing, versions
from workers.tasks.batch import Member
from workers.tasks.blocks import Block, MessageBlock, RidgeBlock, batch_of, decode_block
from workers.tasks.case import Case
from workers.tasks.ladder import Climb
from workers.tasks.lease import Lease
from workers.tasks.lesson import Lesson, read_lesson
from workers.tasks.preflight import check_definite
from workers.tasks.removal import owned_by_subject, remove
from workers.tasks.ridge_case import prepare
from workers.tasks.update import Made, Update
from workers.verifier.base import Report

__all__ = ["climb", "forget", "learn", "prepare", "read", "refit"]


def read(model: Model, upload: bytes) -> Lesson:
    """Return what an upload teaches. Raises RefusedError if it cannot be learned."""
    remote = model.config["data"] != "rows"
    return read_lesson(upload, versions.ridge_config(model), remote=remote)


def learn(
    services: Services,
    lease: Lease,
    model: Model,
    before: ModelVersion | None,
    lesson: Lesson,
    salts: Mapping[str, bytes],
) -> Made:
    """Add a lesson to the statistics. Raises RefusedError if no rows have them."""
    config = versions.ridge_config(model)
    method = versions.method_of(model, model.method)
    with services.reading() as session:
        state = versions.load_state(services, session, before) if before else None
    assert lesson.batch is not None
    outcome = method.learn(config, state, lesson.batch)
    if model.config["data"] != "rows" and outcome.state.attested == 0:
        check_definite(outcome.state.statistics, config)
    return _made(outcome, config, method.id, method.version, {})


def forget(
    services: Services,
    lease: Lease,
    model: Model,
    before: ModelVersion,
    members: Sequence[Member],
) -> Update:
    """Subtract the members' records.

    Raises:
        RefusedError: The method declined.
        AnswerError: A client released what its block cannot have held.
    """
    config = versions.ridge_config(model)
    with services.reading() as session:
        request = session.get_one(ErasureRequest, lease.request_id)
        state = versions.load_state(services, session, before)
        blocks = {
            subject: _ridge(services.features.load(session, subject))
            for subject in owned_by_subject(members)
        }
        released = releasing.answers(services, session, members, config.bits)
    method = versions.method_of(model, request.method)
    removal = remove(blocks, members, released, config)
    outcome = method.forget(config, state, removal.batch)
    more = {"data": str(model.config["data"])}
    return Update(
        _made(outcome, config, method.id, method.version, more),
        removal.rest,
        frozenset(removal.dropped),
        before_statistics.encode(state.statistics, config),
    )


def refit(services: Services, lease: Lease, model: Model) -> Made:
    """Fit anew from the retained rows, whatever was asked for. Raises RefusedError."""
    config = versions.ridge_config(model)
    with services.reading() as session:
        blocks = [
            batch_of(_ridge(payload))
            for _, payload in services.features.load_many(session, lease.model_id)
        ]
    method = versions.method_of(model, _rung(blocks))
    outcome = method.refit(config, blocks)
    return _made(outcome, config, f"{method.id}-refit", method.version, {}, notes=False)


def climb(
    services: Services, session: Session, lease: Lease, case: Case, report: Report
) -> Climb | None:
    """Return the refit, whatever was asked for and found, None where it was that."""
    return None if lease.rung > 0 else Climb(1, "refit")


def _ridge(payload: bytes) -> RidgeBlock:
    block = decode_block(payload)
    assert isinstance(block, Block | MessageBlock)
    return block


def _rung(blocks: Sequence[Batch]) -> str:
    """Return the plainest method that these blocks allow, whichever was asked for."""
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
) -> Made:
    said = outcome.notes if notes else {}
    return Made(
        encoded=versions.encode(outcome.state, config),
        method=method,
        method_version=method_version,
        claim=outcome.claim,
        parameters={**versions.parameters(config), **more, **said},
        bounds={"head": repr(outcome.state.bound)},
    )
