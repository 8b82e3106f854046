"""A model's subjects: found by their tags, named while they have records, nameless after."""

from collections.abc import Collection

from sqlalchemy import update
from sqlmodel import Session, col, exists, select

from app.service.scope import chunks
from models import Record, Subject
from workers.jobs.lesson import Owner


def find(session: Session, model_id: int, owner: Owner) -> Subject | None:
    """Return the row of (client, subject), also if its names were destroyed."""
    query = select(Subject).where(
        Subject.model_id == model_id,
        Subject.client_tag == owner[0],
        Subject.subject_tag == owner[1],
    )
    return session.exec(query).first()


def named(session: Session, model_id: int, owner: Owner) -> Subject:
    """Return the row of (client, subject), made if there is none; it gets its names again."""
    found = find(session, model_id, owner)
    if found is None:
        found = Subject(model_id=model_id, client_tag=owner[0], subject_tag=owner[1])
        session.add(found)
    if found.client is None:
        found.client, found.subject = owner
    session.flush()
    return found


def forget_names(session: Session, subjects: Collection[int]) -> None:
    """Destroy the names of those among `subjects` of whom no record is left."""
    for chunk in chunks(sorted(subjects)):
        holds = exists().where(col(Record.subject_id) == col(Subject.id))
        statement = update(Subject).where(col(Subject.id).in_(chunk), ~holds)
        session.connection().execute(statement.values(client=None, subject=None))
