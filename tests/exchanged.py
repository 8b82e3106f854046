"""What who writes the database, and has no key, exchanges between two requests or two rows."""

from typing import Any

from sqlalchemy import Engine, Table, delete, insert, select, text, update

from models import Certificate, ErasureRequest, Verification

_CERTIFICATES: Table = Certificate.__table__  # type: ignore[attr-defined]
_REQUESTS: Table = ErasureRequest.__table__  # type: ignore[attr-defined]
_VERIFICATIONS: Table = Verification.__table__  # type: ignore[attr-defined]


def exchange_certificates(engine: Engine, one: str, other: str) -> None:
    """Exchange the certificates of two requests, by their ids."""
    own = _CERTIFICATES.c.request_id.in_([one, other])
    with engine.begin() as connection:
        stored = connection.execute(select(_CERTIFICATES).where(own)).mappings()
        rows = [dict(row) for row in stored]
        assert len(rows) == 2
        connection.execute(delete(_CERTIFICATES).where(own))
        for row in rows:
            row["request_id"] = other if row["request_id"] == one else one
        connection.execute(insert(_CERTIFICATES), rows)


def exchange_references(engine: Engine, one: str, other: str) -> None:
    """Exchange the public references of two requests."""
    refs = select(_REQUESTS.c.id, _REQUESTS.c.ref).where(_REQUESTS.c.id.in_([one, other]))
    with engine.begin() as connection:
        found: dict[str, str] = dict(connection.execute(refs).all())
        for request, ref in ((one, "-"), (other, found[one]), (one, found[other])):
            own = update(_REQUESTS).where(_REQUESTS.c.id == request)
            connection.execute(own.values(ref=ref))


def exchange_evidence(engine: Engine, one: str, other: str) -> None:
    """Exchange the evidence that the judgements of two requests name."""
    columns = _VERIFICATIONS.c
    named = select(columns.request_id, columns.evidence_id)
    with engine.begin() as connection:
        found: dict[str, str] = dict(connection.execute(named).all())
        for request, evidence in ((one, found[other]), (other, found[one])):
            own = update(_VERIFICATIONS).where(columns.request_id == request)
            connection.execute(own.values(evidence_id=evidence))


def exchange_columns(engine: Engine, table: str, where: str, *columns: str) -> None:
    """Exchange columns of the two rows of a table on SQLite, as they are stored."""
    query = text(f"SELECT id, {', '.join(columns)} FROM {table} WHERE {where}")
    sets = ", ".join(f"{name} = :{name}" for name in columns)
    with engine.begin() as connection:
        rows: list[dict[str, Any]] = [dict(row) for row in connection.execute(query).mappings()]
        assert len(rows) == 2
        if "ref" in columns:  # it is unique
            connection.execute(text(f"UPDATE {table} SET ref = '-' || ref WHERE {where}"))
        for row, its in zip(rows, reversed(rows), strict=True):
            own = text(f"UPDATE {table} SET {sets} WHERE id = :id")
            connection.execute(own, {**its, "id": row["id"]})
