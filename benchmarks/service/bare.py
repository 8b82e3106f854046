"""The contender: FastAPI and SQLModel, one row for each request, committed before the answer.

    LETHE_BARE_URL=… python -m benchmarks.service.bare PORT

It checks nothing and logs nothing: what a framework and a database cost without Lethe.
"""

import os
import sys
import uuid
from datetime import UTC, datetime

import uvicorn
from fastapi import FastAPI
from sqlmodel import Field, Session, SQLModel, create_engine


class BareRequest(SQLModel, table=True):
    """What a request for erasure would be without a ledger."""

    __tablename__ = "bare_rows"

    id: str = Field(primary_key=True)
    model: str
    record: str
    received_at: datetime


class Wanted(SQLModel):
    """The body."""

    model: str
    record: str


def main() -> None:
    """Serve POST /rows on 127.0.0.1 until killed."""
    url = os.environ["LETHE_BARE_URL"]
    engine = create_engine(url, pool_size=10, max_overflow=50)
    if url.startswith("sqlite"):
        from sqlalchemy import event

        @event.listens_for(engine, "connect")
        def prepare(connection, _):  # type: ignore[no-untyped-def]
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")  # durable, as Lethe's own

    SQLModel.metadata.create_all(engine, tables=[BareRequest.__table__])  # type: ignore[attr-defined]
    app = FastAPI()

    @app.post("/rows", status_code=202)
    def insert(wanted: Wanted) -> dict[str, str]:
        row = BareRequest(
            id=str(uuid.uuid4()),
            model=wanted.model,
            record=wanted.record,
            received_at=datetime.now(UTC),
        )
        identity = row.id
        with Session(engine) as session:
            session.add(row)
            session.commit()
        return {"id": identity}

    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
