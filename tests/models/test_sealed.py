"""Sealed columns: clear text in rows, ciphertext in the database, nothing without the key."""

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import StatementError
from sqlmodel import Session, select

from app.vault.errors import SealError
from app.vault.master import RootSecret
from app.vault.seal import new_key
from models import RequesterKey
from models.database.session import make_engine
from models.database.types import UnsealedError, seal_columns


def key(client: str, subject: str | None = None) -> RequesterKey:
    return RequesterKey(
        keyid="k",
        algorithm="ed25519",
        public_key="",
        role="client",
        client=client,
        subject=subject,
    )


def test_a_row_is_clear_and_the_database_is_not(engine: Engine) -> None:
    with Session(engine) as session:
        session.add(key(client="clinic", subject="jane"))
        session.commit()
        read = session.exec(select(RequesterKey)).one()
        assert (read.client, read.subject) == ("clinic", "jane")
        stored = session.connection().execute(
            text("SELECT client, subject FROM requester_keys")
        )
        assert not any(
            name in bytes(value) for value in stored.one() for name in (b"clinic", b"jane")
        )


def test_a_value_of_another_column_or_key_does_not_open(engine: Engine) -> None:
    with Session(engine) as session:
        session.add(key(client="clinic", subject="jane"))
        session.commit()
        session.connection().execute(text("UPDATE requester_keys SET client = subject"))
        session.commit()
        with pytest.raises(SealError):
            session.exec(select(RequesterKey)).one()
        session.rollback()
        seal_columns(engine, RootSecret(new_key()))
        with pytest.raises(SealError):
            session.exec(select(RequesterKey.subject)).one()


def test_without_the_key_a_sealed_column_is_of_no_use(database_url: str) -> None:
    engine = make_engine(database_url)
    with Session(engine) as session:
        session.add(key(client="clinic"))
        with pytest.raises((UnsealedError, StatementError), match="master key"):
            session.flush()
    engine.dispose()


def test_a_tag_is_of_one_purpose_and_one_key() -> None:
    root_secret = RootSecret(new_key())
    assert root_secret.tag("client", "x") == root_secret.tag("client", "x")
    assert root_secret.tag("client", "x") != root_secret.tag("subject", "x")
    assert root_secret.tag("client", "x") != RootSecret(new_key()).tag("client", "x")
    assert len(root_secret.tag("client", "x")) == 64


def test_equal_names_are_equal_bytes_of_one_column_only() -> None:
    root_secret = RootSecret(new_key())
    once = root_secret.seal_name(b"r1", b"records.record")
    assert once == root_secret.seal_name(b"r1", b"records.record")
    assert once != root_secret.seal_name(b"r2", b"records.record")
    assert once != root_secret.seal_name(b"r1", b"elsewhere")
    assert root_secret.open_name(once, b"records.record") == b"r1"
    for blob, place in ((once, b"elsewhere"), (b"\0" + once[1:], b"records.record")):
        with pytest.raises(SealError):
            root_secret.open_name(blob, place)
