"""Columns that name a file to destroy: one UPDATE of them destroys no file of another kind."""

import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app.ledger.transaction import Transaction
from models import Job
from tests.installation import Installation
from workers.jobs.endings import fail

HELD = b"evidence under a legal hold"


@pytest.mark.parametrize("column", ["draft_id", "checkpoint_id", "before_id"])
def test_the_end_of_a_job(ready: Installation, column: str) -> None:
    services = ready.services
    ready.caller.erase_records("r1")
    with Session(services.engine) as session:
        held = services.artifacts.put(session, "evidence", HELD).id
        session.commit()
        session.connection().execute(
            text(f"UPDATE jobs SET {column} = :id WHERE done_at IS NULL"),
            {"id": held},
        )
        session.commit()

    def end(tx: Transaction) -> None:
        job = tx.session.exec(select(Job).where(col(Job.done_at).is_(None))).one()
        assert getattr(job, column) == held
        fail(services, tx, job, "given up")

    services.ledger.transact(end)
    with services.reading() as session:
        assert services.artifacts.get(session, held) == HELD
