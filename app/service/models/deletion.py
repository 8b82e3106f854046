"""Deleting a model and all its data, in one transaction with one log entry."""

from sqlmodel import Session, col, select

from app.ledger.journal import digests_of, record_model_event, stored_digest
from app.ledger.transaction import Transaction
from app.problems import ModelInUseError
from app.reconcile.deleted import EVENT
from app.reconcile.inputs import logged_leaf
from app.reconcile.model_events import CLOSED, model_events, requests_events
from app.schemas.models import DeletionView
from app.service.context import Services
from app.service.holds import require_deletable
from app.service.models import registry
from app.steps import reached
from app.vault.master import open_tombstone_key
from app.vault.scrub import scrub
from app.vault.wipe import shared, wipe
from models import Audit, ErasureRequest, Job, Model, ModelVersion, Release, Round
from models.database.session import chunks

AUDITED = "running"


def delete(services: Services, ref: str) -> DeletionView:
    """Delete a model: keys, files, rows and identities. Its entries and certificates remain.

    Deleting it again returns the same; data that a restore or another program brought back is
    destroyed by `lethe restore --journal-only`.

    Raises:
        UnknownModelError: There is none.
        SealError: The row's reference is not the one that its key is sealed for.
        UnloggedVersionError: Its newest version is another one's by the log.
        HeldError: A legal hold keeps it, or a request to it.
        HoldsChangedError: Table and log disagree on legal holds.
        ModelInUseError: A request, job, round, release or method audit of it is not finished,
            or another model's row names one of its files.
    """

    def effect(tx: Transaction) -> DeletionView:
        model = registry.find(tx.session, ref)
        logged = model_events(services.ledger, ref, EVENT)
        if len(logged):
            return DeletionView(ref=ref, log_index=logged[0][0])
        _require_own(services, tx.session, model)
        _require_unused(services, tx.session, model)
        require_deletable(services, tx.session, model)
        said = {"config": stored_digest(model), **_last(tx.session, model)}
        index = record_model_event(tx, ref, EVENT, said)
        services.journal.deleted(tx.session, ref, index)
        wipe(tx.session, model)
        return DeletionView(ref=ref, log_index=index)

    shown = services.ledger.transact(effect)
    reached("execute.applied")
    # After a crash before this, or with a long reader, the sweep does it again.
    services.artifacts.unlink_shredded(services.engine)
    scrub(services.engine)
    return shown


def _require_own(services: Services, session: Session, model: Model) -> None:
    """Check that a row has the reference under which its data were registered.

    Otherwise whoever exchanged the references of two models would have the other one destroyed
    by an honest operator, even under a legal hold. Raises as `delete`.
    """
    own = select(ModelVersion).where(ModelVersion.model_id == model.id)
    newest = session.exec(own.order_by(col(ModelVersion.number).desc()).limit(1)).first()
    if newest is not None:
        logged_leaf(services.ledger, model, newest)
    open_tombstone_key(services.root_secret, model)


def _last(session: Session, model: Model) -> dict[str, str]:
    """Return the digests of a model's current version, none where it has no version."""
    query = select(ModelVersion).where(
        ModelVersion.model_id == model.id, ModelVersion.number == model.current_version
    )
    row = session.exec(query).first()
    if row is None:
        return {}
    found = digests_of(row)
    return {name: str(found[name]) for name in ("head", "statistics", "retained")}


def _require_unused(services: Services, session: Session, model: Model) -> None:
    """Raise ModelInUseError unless all work on a model has ended.

    Whether a request has ended is also read from the log: write access is enough to change its
    state in the table.
    """
    requests = select(ErasureRequest.ref, ErasureRequest.state).where(
        ErasureRequest.model_id == model.id
    )
    states = dict(session.exec(requests).all())
    open_ = {ref for ref, state in states.items() if state not in CLOSED}
    for chunk in chunks(sorted(states)):
        logged = requests_events(services.ledger, chunk)
        open_ |= {ref for ref, events in logged.items() if events}
    if open_:
        raise ModelInUseError(
            f"{len(open_)} requests to the model are open, and cases may rest on them: wait "
            f"until they are certified, or withdraw or decide on them (`lethe request list "
            f"--model {model.ref}`)"
        )
    for table, unfinished, message in (
        (
            Round,
            col(Round.state).not_in(("done", "failed")),
            "a masked round of the model is open: wait for its end, or abort it",
        ),
        (
            Release,
            col(Release.state) != "done",
            "clients are asked for statistics of the model: wait for their answers, or drop "
            "the releases",
        ),
        (
            Audit,
            col(Audit.state) == AUDITED,
            "a method audit of the model is running: wait for its report, or stop it (`lethe "
            "audit stop`)",
        ),
        (
            Job,
            col(Job.done_at).is_(None),
            "the model is learning rows: wait until it is ready (`lethe model show`)",
        ),
    ):
        own = select(table).where(col(table.model_id) == model.id, unfinished).limit(1)
        if session.exec(own).first() is not None:
            raise ModelInUseError(message)
    if shared(session, model):
        raise ModelInUseError(
            "a row of something else names a file of the model, which would be destroyed too: "
            "run `lethe log fsck`, find out who writes to the database"
        )
