"""Registration: a model, its pinned configuration, and its first training set."""

import secrets
from collections.abc import Iterator
from typing import Any

from sqlmodel import Session, col, select

from app import traces
from app.ledger.journal import digest_of, pinned_of, record_model_event
from app.ledger.transaction import Transaction
from app.problems import ConflictError, ModelDeletedError, NotOverSilosError
from app.reconcile.deleted import GONE, require_present
from app.schemas.families.manifests import Manifest
from app.schemas.models import ModelView
from app.service.access import silo_keys
from app.service.context import Services
from app.service.desk import people
from app.service.models import contributions, held_out, registry
from app.service.models.held_out import HeldOutRows
from app.uploads.checked import CheckedHeldOut, CheckedUpload
from app.vault.master import UPLOAD, noise_commitment
from app.vault.wipe import DELETED
from lethe.catalogue import data_of
from lethe.identity import unpack
from models import Contribution, Model
from models.person import HELD_OUT


def register(
    services: Services, wanted: Manifest, sent: CheckedUpload | CheckedHeldOut | None
) -> ModelView:
    """Record a model and its first training set, and queue the fit.

    A registration that failed before any version is replaced.

    A model whose rows stay with its clients waits for their messages; held-out rows, for
    evaluating its versions, may come with the registration. Repeating a registration, as after
    a lost answer, returns its model unless it failed.

    Raises:
        ModelDeletedError: A model of this reference was deleted.
        ConflictError: The reference is taken by another registration.
        NotOverSilosError: The judge must train for this policy, but silos have the rows.
    """
    upload = sent if isinstance(sent, CheckedUpload) else None
    rows = sent if isinstance(sent, CheckedHeldOut) else None
    measured_on = None if rows is None else HeldOutRows.of(rows.features, rows.labels, rows.ids)
    with contributions.discarding(services, upload):
        require_present(services.ledger, wanted.ref)
        _check_trainable(services, wanted)
    pinned = {
        **wanted.pinned(),
        "decide": wanted.decide or services.settings.decide,
        "cooling_off": wanted.cooling_off_seconds,
    }
    digest = digest_of(pinned)
    parts = {name: digest_of(part) for name, part in wanted.logged_parts().items()}
    tombstone_key = services.root_secret.seal(
        secrets.token_bytes(32), aad=f"tombstone|{wanted.ref}".encode()
    )

    def effect(tx: Transaction) -> tuple[ModelView, str | None]:
        taken = tx.session.exec(select(Model).where(Model.ref == wanted.ref)).first()
        if taken is not None and taken.state == DELETED:
            raise ModelDeletedError(GONE)
        failed = taken is not None and taken.state == "failed" and taken.current_version is None
        same = taken is not None and not failed and _same(tx.session, taken, pinned, upload)
        if taken is not None and same and _same_held_out(services, tx, taken, measured_on):
            return registry.show(taken), None
        if taken is None:
            model = Model(
                ref=wanted.ref, tombstone_key=tombstone_key, created_at=tx.now, **pinned
            )
        elif failed:
            # It never had a version: the registration, or the machine that fitted it, may have
            # been corrected.
            model = taken
            model.state, model.failure, model.created_at = "registered", None, tx.now
            for name, value in pinned.items():
                setattr(model, name, value)
        else:
            raise ConflictError("a model with this reference exists already: choose another")
        tx.session.add(model)
        tx.session.flush()
        noise = noise_commitment(services.root_secret, model)
        new = None if upload is None else contributions.named(services, model, upload)
        sent_rows = {} if new is None else {UPLOAD: new.tag}
        silos: dict[str, str] = {}
        if wanted.trained_by_silos:
            # Under the log's lock: a key that is revoked meanwhile must not be named again.
            silos = silo_keys.registered(services.settings, services.ledger)
        digests = {"config": digest, **parts, **noise, **silos, **sent_rows}
        index = record_model_event(tx, wanted.ref, "model.registered", digests)
        if rows is not None:
            people.add(services, tx, model, _identities(rows))
            held_out.replace(services, tx, model, None, measured_on)
        if new is None:
            return registry.show(model), None
        _, job = contributions.queue(services, tx, model, new, index)
        return registry.show(model), job.id

    with contributions.discarding(services, upload):
        shown, job_id = services.committer.submit(effect)
    if job_id is not None:
        traces.queued(job_id, "learn")
        services.dispatcher.nudge(job_id)
    elif upload is not None:
        services.artifacts.discard(upload.file)
    return shown


def _same_held_out(
    services: Services, tx: Transaction, model: Model, sent: HeldOutRows | None
) -> bool:
    """Return whether a model registered without rows has these held-out rows."""
    if data_of(model.config).rows_here:
        return True  # they came with the rows
    stored = held_out.stored(services, tx.session, model)
    if stored is None or sent is None:
        return stored is sent
    return stored.content == sent.content


def _identities(rows: CheckedHeldOut) -> Iterator[people.RecordIdentity]:
    for kind, packed in rows.identities.items():
        for record, one in zip(rows.ids["records"], packed, strict=True):
            if found := unpack(one):
                yield people.RecordIdentity(record, HELD_OUT, kind, found)


def _check_trainable(services: Services, wanted: Manifest) -> None:
    if services.settings.silos and wanted.judge_trains:
        raise NotOverSilosError(
            "the judge cannot train on rows that stay at silos: leave lira, rmia, references "
            "and distances out of the policy"
        )


def _same(
    session: Session, model: Model, pinned: dict[str, Any], upload: CheckedUpload | None
) -> bool:
    first = session.exec(
        select(Contribution.body_digest)
        .where(Contribution.model_id == model.id, col(Contribution.keyid).is_(None))
        .order_by(col(Contribution.log_index).desc())  # the last, where earlier ones failed
    ).first()
    sent = None if upload is None else upload.file.digest
    return pinned_of(model) == pinned and first == sent
