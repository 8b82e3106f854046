"""Models and their versions: find, list, show, sign."""

import hashlib
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

from sqlmodel import Session, col, select

from app.keys.issuer import signing_issuer
from app.problems import ModelDeletedError, NotFoundError, UnknownModelError
from app.reconcile.deleted import GONE, require_present
from app.reconcile.inputs import is_withdrawn, logged_leaf
from app.schemas.base import Page
from app.schemas.models import (
    Extractor,
    HeldOutView,
    ManifestView,
    ModelView,
    VersionCertificate,
    VersionView,
)
from app.service.context import Services
from app.service.issued import certificates
from app.service.paging import page_of
from app.service.signatures import current_key
from app.vault.errors import ShreddedError
from app.vault.request_ref import request_ref
from app.vault.wipe import DELETED
from lethe.catalogue import data_of, family_of
from lethe.certificates.model_signature import sign_model
from lethe.signing.http import SignedBy
from models import Certificate, ErasureRequest, Model, ModelVersion, Verification

T = TypeVar("T")


def find(session: Session, ref: str) -> Model:
    """Return a model by its reference. Raises UnknownModelError if there is none."""
    model = session.exec(select(Model).where(Model.ref == ref)).first()
    if model is None:
        raise UnknownModelError("no model has this reference: GET /v1/models lists them")
    return model


def present(session: Session, ref: str) -> Model:
    """Return a model that is not deleted by its table.

    To check the log, use `app.reconcile.deleted.require_present`.

    Raises UnknownModelError: there is none; ModelDeletedError: it was deleted.
    """
    model = find(session, ref)
    if model.state == DELETED:
        raise ModelDeletedError(GONE)
    return model


def page(session: Session, after: str | None, limit: int) -> Page[ModelView]:
    """Return models in the order of their references."""
    return page_of(session, select(Model), Model.ref, after, limit, show)


def versions(
    services: Services,
    session: Session,
    ref: str,
    after: int | None,
    limit: int,
    *,
    lineage: bool = False,
) -> Page[VersionView]:
    """Return a model's versions, oldest first. Raises as `show_version`.

    lineage: with the certificates of what made each.
    """
    model = find(session, ref)
    query = select(ModelVersion).where(ModelVersion.model_id == model.id)

    def shown(row: ModelVersion) -> VersionView:
        view = show_version(services, model, row)
        if not lineage:
            return view
        issued = certificates_of(services, session, row)
        return view.model_copy(update={"certificates": issued})

    return page_of(session, query, ModelVersion.number, after, limit, shown)


def version_of_digest(
    services: Services, session: Session, ref: str, digest: str
) -> VersionView | None:
    """Return a model's version by the digest of its file. Raises as `show_version`."""
    model = find(session, ref)
    query = select(ModelVersion).where(
        ModelVersion.model_id == model.id, ModelVersion.head_digest == digest
    )
    row = session.exec(query.order_by(col(ModelVersion.number))).first()
    return None if row is None else show_version(services, model, row)


def version(
    services: Services, session: Session, ref: str, number: int | Literal["current"]
) -> ModelVersion:
    """Return the row of a version by its number, or of the current version.

    Raises:
        UnknownModelError: No such model.
        ModelDeletedError: The table or the log has the model as deleted.
        NotFoundError: No such version.
    """
    require_present(services.ledger, ref)
    return _version(session, present(session, ref), number)


def _version(session: Session, model: Model, number: int | Literal["current"]) -> ModelVersion:
    if number == "current" and model.current_version is None:
        raise NotFoundError("the model has no version yet: it is still being fitted, or failed")
    row = session.exec(
        select(ModelVersion).where(
            ModelVersion.model_id == model.id,
            ModelVersion.number == (model.current_version if number == "current" else number),
        )
    ).first()
    if row is None:
        raise NotFoundError("the model has no version of this number")
    return row


def head(services: Services, ref: str, number: int | Literal["current"]) -> bytes:
    """Return a version's file. The table `model_versions` may say that a version is kept.

    Raises UnknownModelError, ModelDeletedError, NotFoundError: as `version`; ShreddedError: by
    the log, the version was withdrawn, or its file is destroyed.
    """

    def read(session: Session, model: Model, row: ModelVersion) -> bytes:
        gone = is_withdrawn(services.ledger, model, row.number)
        with suppress(ShreddedError):
            if not gone:
                return services.artifacts.get(session, row.head_id)
        raise ShreddedError(
            f"version {number} was withdrawn by a later erasure, and its file destroyed: "
            "download the current version"
        )

    return _of_version(services, ref, number, read)


def _of_version(
    services: Services,
    ref: str,
    number: int | Literal["current"],
    read: Callable[[Session, Model, ModelVersion], T],
) -> T:
    """Return what `read` returns of a version; as it may, it raises ShreddedError.

    The log and the files are newer than the snapshot. If the version that was current there was
    withdrawn meanwhile, the next one is read.
    """
    seen = None
    while True:
        with services.reading() as session:
            row = version(services, session, ref, number)
            try:
                return read(session, find(session, ref), row)
            except ShreddedError:
                if number != "current" or row.number == seen:
                    raise
                seen = row.number


def certificates_of(
    services: Services, session: Session, row: ModelVersion
) -> list[VersionCertificate]:
    """Return the certificates of the erasures that made a version, in the log's order.

    Raises CertificateChangedError if one is another request's.
    """
    query = (
        select(ErasureRequest.ref, Certificate)
        .join(Verification, col(Verification.request_id) == col(ErasureRequest.id))
        .join(Certificate, col(Certificate.request_id) == col(ErasureRequest.id))
        .where(Verification.version_id == row.id)
        .order_by(col(Certificate.log_index))
    )
    found = []
    for ref, one in session.exec(query):
        certificates.stated(one, ref, request_ref(services.root_secret, one.request_id))
        statement = hashlib.sha256(b64decode(one.envelope["payload"])).hexdigest()
        shown = VersionCertificate(
            ref=ref, statement=statement, result=one.result, log_index=one.log_index
        )
        found.append(shown)
    return found


def sign_version(services: Services, ref: str, number: int | Literal["current"]) -> bytes:
    """Return the issuer's signature of a version's file (`lethe.certificates.model_signature`).

    Only a logged version is signed: write access to the tables is not enough.

    Raises:
        UnknownModelError, ModelDeletedError, NotFoundError: As `version`.
        ShreddedError: The version was withdrawn.
        UnloggedVersionError: The table's row differs from the log's version.
    """

    def read(_: Session, model: Model, row: ModelVersion) -> tuple[str, str]:
        logged_leaf(services.ledger, model, row)
        if row.withdrawn_at is not None or is_withdrawn(services.ledger, model, row.number):
            raise ShreddedError(
                "this version was withdrawn: the service no longer vouches for it"
            )
        return f"{ref}@{row.number}", row.head_digest

    name, digest = _of_version(services, ref, number, read)
    issuer, keyid, _ = signing_issuer(services.settings, services.ledger)
    return sign_model(name, digest, issuer=issuer, issuer_keyid=keyid)


def manifest(services: Services, signed: SignedBy, ref: str) -> ManifestView:
    """Return the parameters that a client needs to send rows or statistics.

    Raises KeyNotEntitledError: the key is no client's; UnknownModelError: no such model.
    """
    with services.reading() as session:
        current_key(session, signed, "client")
        model = present(session, ref)
        names = ("exponents", "bits", "columns", "features", "categories", "weighted")
        config = {name: model.config[name] for name in names if name in model.config}
        if "penalty" in model.config:
            config["penalty"] = float.fromhex(model.config["penalty"])
        return ManifestView(
            ref=model.ref,
            family=family_of(model.config),
            classes=model.classes,
            data=model.config["data"],
            method=model.method,
            extractor=Extractor.model_validate(model.extractor) if model.extractor else None,
            **config,
        )


def is_remote(model: Model) -> bool:
    """Return whether a model's rows stay with its clients."""
    return not data_of(model.config).rows_here


def show(model: Model) -> ModelView:
    """Return a model as the API shows it."""
    fields = model.model_dump(exclude={"id", "tombstone_key"})
    return ModelView.model_validate({**fields, "extractor": fields["extractor"] or None})


def current_figure(services: Services, session: Session, model: Model) -> HeldOutView | None:
    """Return the current version's metric on held-out rows. Raises as `show_version`."""
    if model.current_version is None:
        return None
    return _figure(services, model, _version(session, model, "current"))


def _figure(services: Services, model: Model, row: ModelVersion) -> HeldOutView | None:
    if row.held_out is None:
        return None
    logged_leaf(services.ledger, model, row)
    return HeldOutView.model_validate({**row.held_out, "rows": int(row.held_out["rows"])})


def show_version(services: Services, model: Model, row: ModelVersion) -> VersionView:
    """Return a version as the API shows it.

    Raises UnloggedVersionError if the log has another held-out metric, or another row.
    """
    return VersionView(
        number=row.number,
        head=row.head_digest,
        statistics=row.statistics_digest,
        retained_root=row.retained_root.hex(),
        retained_count=row.retained_count,
        held_out=_figure(services, model, row),
        log_index=row.log_index,
        created_at=row.created_at,
        withdrawn_at=row.withdrawn_at,
        artifact=f"/v1/models/{model.ref}/versions/{row.number}/artifact",
    )
