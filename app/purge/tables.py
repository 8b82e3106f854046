"""Searches every column of every table, unsealed, and every sealed artifact and block.

The columns are those of the models, so new tables are included automatically.
"""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

from sqlalchemy import LargeBinary, or_, type_coerce
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from app.purge.needles import Findings, Needles
from app.reconcile.people import people_key, stored_rows, tag_conditions
from app.service.requests import CLOSED
from app.vault.artifacts import ArtifactStore
from app.vault.features import FeatureVault
from app.vault.master import RootSecret, open_tombstone_key, record_tag
from lethe.errors import LetheError
from lethe.identity import KINDS, IdentityError, digests
from models import (
    Artifact,
    ErasureRequest,
    Model,
    RequestEvent,
    Subject,
    Tombstone,
    Verification,
)
from models.database.types import METADATA, Sealed, Tagged
from models.person import ERASED

FETCH = 500  # rows in memory at once
# Sealed columns with an ended request's scope: the operator's proof.
PROOF = {
    ("erasure_requests", "scope"): ErasureRequest.id,
    ("request_events", "payload"): RequestEvent.request_id,
}
UNTIL = "sealed, until the end of the request's retention"
TAG = "a one-way tag, which answers that there was one"
# The artifact kinds behind an ended request's certificate.
EVIDENCE = ("evidence", "scores")


def search_tables(session: Session, needles: Needles, found: Findings) -> None:
    """Search every column of every table, after unsealing."""
    ended = set(
        session.exec(select(ErasureRequest.id).where(col(ErasureRequest.state).in_(CLOSED)))
    )
    dialect = session.get_bind().dialect
    for table in METADATA.sorted_tables:
        for column in table.columns:
            place = f"{table.name}.{column.name}"
            owner = PROOF.get((table.name, column.name))
            kind = column.type
            # Read as stored: a row that does not open must not end the search.
            value = type_coerce(column, LargeBinary()) if isinstance(kind, Sealed) else column
            columns_read = [value] if owner is None else [value, owner]
            query = columns(*columns_read).where(column.is_not(None))
            tags = needles.tags(kind.purpose) if isinstance(kind, Tagged) else set[str]()
            for row in session.connection().execute(query.execution_options(yield_per=FETCH)):
                held = row[0]
                if isinstance(kind, Sealed):
                    try:
                        held = kind.process_result_value(held, dialect)
                    except LetheError as error:
                        found.not_inspected[place] = error.detail
                        continue
                if isinstance(held, str) and held in tags:
                    found.kept[f"{place}: {TAG}"] += 1
                elif needles.clear(as_bytes(held)):
                    if owner is not None and row[1] in ended:
                        found.kept[f"{place}: {UNTIL}"] += 1
                    else:
                        found.leftovers[place] += 1
            found.inspected[table.name] = 1


def _kept(session: Session) -> Sequence[Model]:
    """Return the models that were not deleted: their key still exists."""
    return session.exec(select(Model).where(Model.tombstone_key != b"")).all()


def search_tombstones(
    session: Session, root_secret: RootSecret, needles: Needles, found: Findings
) -> None:
    """Count the tombstones of records with these ids; tombstones are kept on purpose."""
    for model in _kept(session):
        key = open_tombstone_key(root_secret, model)
        tags = [record_tag(key, text) for text in needles.texts]
        for start in range(0, len(tags), FETCH):
            query = select(Tombstone.tag).where(
                col(Tombstone.model_id) == model.id,
                col(Tombstone.tag).in_(tags[start : start + FETCH]),
            )
            for _ in session.exec(query):
                found.kept[f"tombstones.tag: {TAG}"] += 1


def search_people(
    session: Session, root_secret: RootSecret, needles: Needles, found: Findings
) -> None:
    """Search for identifiers as identities of the usual kinds, by their keyed digests."""
    for model in _kept(session):
        key = people_key(root_secret, model)
        for kind, text in product(KINDS, needles.texts):
            try:
                tags = key.tags(kind, digests(kind, text))
            except IdentityError:
                continue
            for row in stored_rows(session, model.id, or_(*tag_conditions(tags))):
                if row.state == ERASED:
                    found.kept[f"people: {TAG}"] += 1
                else:
                    found.leftovers[f"people: {row.state} records of the person"] += 1


def search_sealed(
    session: Session,
    artifacts: ArtifactStore,
    features: FeatureVault,
    needles: Needles,
    found: Findings,
) -> None:
    """Search every block and artifact whose key is not destroyed."""
    for subject in session.exec(select(Subject.id).order_by(col(Subject.id))).all():
        assert subject is not None
        try:
            payload = features.load(session, subject)
        except LetheError as error:
            if error.slug not in ("shredded", "not-stored"):
                found.not_inspected["feature_blocks"] = error.detail
            continue
        if needles.clear(payload):
            found.leftovers["feature_blocks: rows under their subject's key"] += 1
    proof = set(session.exec(select(Verification.evidence_id)))
    query = select(Artifact.id, Artifact.kind).where(col(Artifact.wrapped_key).is_not(None))
    for artifact, kind in session.exec(query).all():
        try:
            data = artifacts.get(session, artifact)
        except LetheError as error:
            found.not_inspected[f"artifact {artifact} ({kind})"] = error.detail
            continue
        found.inspected["artifacts"] += 1
        if needles.clear(data):
            if artifact in proof or kind in EVIDENCE:
                found.kept[f"artifacts of kind {kind}: {UNTIL}"] += 1
            else:
                found.leftovers[f"artifacts of kind {kind}"] += 1


def as_bytes(value: Any) -> bytes:
    """Return a column's value as bytes for searching."""
    match value:
        case bytes() | memoryview():
            return bytes(value)
        case str():
            return value.encode()
    return json.dumps(value, ensure_ascii=False, default=str).encode()
