"""The table of silo tasks: posted, taken once, answered once, and removed together.

Each step is its own transaction outside the log's lock: nothing here is a log event, and a
task or an answer is a file of megabytes that is durable before its row.
"""

import uuid
from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import ColumnElement, delete, or_, update
from sqlmodel import Session, col, select

from app.service.context import Services
from models import Artifact, Job, SiloTask
from models.database.session import CHUNK, read_by_id
from models.database.types import clock

TASK, ANSWER = "silo-task", "silo-answer"  # kinds of artifacts
OF_ROUNDS = (TASK, ANSWER, "checkpoint")  # new ones in each round
FAULT_LENGTH = 80  # characters, as wide as the column
LONGEST_ROUND = timedelta(hours=12)  # rows twice as old are orphaned
# Rows of shredded artifacts are useless after that. It must be later than the last scrub,
# because `workers.jobs.sweep` finds recently shredded artifacts by these rows.
FORGET = timedelta(hours=1)


def post(
    services: Services,
    job_id: str,
    model_id: int,
    queue: str,
    message: bytes,
    row_id: str | None = None,
) -> str:
    """Seal a message for a silo and return its row id, which the message may contain."""
    with Session(services.engine) as session:
        stored = services.artifacts.put(session, TASK, message)
        row = SiloTask(
            id=row_id or str(uuid.uuid4()),
            job_id=job_id,
            model_id=model_id,
            queue=queue,
            task_id=stored.id,
            created_at=clock(session),
        )
        posted = row.id
        session.add(row)
        session.commit()
    return posted


def take(services: Services, silo_task_id: str, queues: Collection[str]) -> bool:
    """Take a row of one of the worker's queues.

    False if it is in another queue, was already taken, or was removed.
    """
    with services.engine.begin() as connection:
        taken = connection.execute(
            update(SiloTask)
            .where(
                col(SiloTask.id) == silo_task_id,
                col(SiloTask.taken_at).is_(None),
                col(SiloTask.queue).in_(queues),
            )
            .values(taken_at=clock(connection))
        )
    return taken.rowcount == 1


def message_of(services: Services, silo_task_id: str) -> bytes:
    """Return the message of a taken row.

    Raises LetheError or NoResultFound if the round has ended since.
    """
    with services.reading() as session:
        row = session.get_one(SiloTask, silo_task_id)
        return services.artifacts.get(session, row.task_id)


def answer(
    services: Services, silo_task_id: str, message: bytes | None, fault: str | None = None
) -> bool:
    """Store an answer, or the name of a fault; False if the round is over.

    Then the transaction rolls back, and the answer's key with it: the written file can no
    longer be decrypted, and the sweep removes it.
    """
    with Session(services.engine) as session:
        stored = None
        if message is not None:
            stored = services.artifacts.put(session, ANSWER, message).id
        answered = session.connection().execute(
            update(SiloTask)
            .where(col(SiloTask.id) == silo_task_id, col(SiloTask.answered_at).is_(None))
            .values(answer_id=stored, fault=fault, answered_at=clock(session))
        )
        if answered.rowcount != 1:
            session.rollback()
            return False
        session.commit()
    return True


def rows_of(services: Services, job_id: str) -> dict[str, SiloTask]:
    """Return a job's rows by id."""
    with services.reading() as session:
        found = session.exec(select(SiloTask).where(SiloTask.job_id == job_id)).all()
    return {row.id: row for row in found}


def settle(services: Services, silo_task_ids: Collection[str]) -> None:
    """Remove a round's rows and shred their artifacts: the round is over."""
    ids = sorted(silo_task_ids)
    for start in range(0, len(ids), CHUNK):
        _remove(services, col(SiloTask.id).in_(ids[start : start + CHUNK]))


def sweep(services: Services) -> None:
    """Remove rows left by dead workers, once their job is done or they are old.

    The rows of artifacts shredded over an hour ago are removed too, or each round would leave
    some for ever.
    """
    with services.reading() as session:
        now = clock(session)
    done = select(Job.id).where(col(Job.done_at).is_not(None))
    stale = or_(
        col(SiloTask.job_id).in_(done), col(SiloTask.created_at) < now - 2 * LONGEST_ROUND
    )
    # Removing a row before its file would leave an orphan, which takes longer to sweep.
    unlinked = col(Artifact.unlinked_at).is_not(None)
    old = unlinked & (col(Artifact.shredded_at) < now - FORGET)
    spent = col(Artifact.kind).in_(OF_ROUNDS) & old
    with services.reading() as session:  # most sweeps find and write nothing
        found = session.exec(select(SiloTask.id).where(stale).limit(1)).first()
        forgotten = session.exec(select(Artifact.id).where(spent).limit(1)).first()
    if found is not None:
        _remove(services, stale)
    if forgotten is not None:
        with services.engine.begin() as connection:
            connection.execute(delete(Artifact).where(spent))


def _remove(services: Services, condition: ColumnElement[bool]) -> None:
    with Session(services.engine) as session:
        # One statement: an answer committed before it is returned here and shredded; a later
        # one finds no row and rolls back.
        deleted = session.connection().execute(
            delete(SiloTask)
            .where(condition)
            .returning(col(SiloTask.task_id), col(SiloTask.answer_id))
        )
        artifacts = [name for pair in deleted.all() for name in pair if name is not None]
        for artifact in read_by_id(session, Artifact, artifacts):
            services.artifacts.shred(session, artifact.id, TASK, ANSWER)
        session.commit()
    if artifacts:
        services.artifacts.unlink_shredded(services.engine)
