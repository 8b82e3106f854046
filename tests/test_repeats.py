"""Tests are left out on PostgreSQL only if others send all that they send."""

import psycopg
import pytest

from tests import repeats
from tests.repeats import chosen, is_of_the_database, note_all


def test_who_sends_what_nobody_else_sends_stays() -> None:
    sent = {
        "slow": {("SELECT a", "rows"), ("SELECT b", "rows")},
        "a": {("SELECT a", "rows")},
        "b": {("SELECT b", "rows"), ("SELECT b", "none")},
        "ledger": {("SELECT c", "rows")},
    }
    known = {("SELECT c", "rows")}
    assert chosen(sent, {"slow": 9, "a": 1, "b": 1, "ledger": 1}, known) == {"a", "b"}
    assert chosen(sent, {"slow": 0.1, "a": 1, "b": 1, "ledger": 1}, known) == {"slow", "b"}


def test_a_statement_is_its_text_and_its_end_but_not_its_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: repeats.Sent = set()
    monkeypatch.setattr(repeats, "sent_here", seen)

    class Cursor:
        rowcount = 0

    def execute(cursor: Cursor, query: str) -> Cursor:
        cursor.rowcount = int(query.startswith("SELECT"))
        if query == "LOCK":
            raise psycopg.errors.LockNotAvailable
        return cursor

    noting = note_all(execute)
    noting(Cursor(), "SELECT x WHERE y IN (%(y_1)s::INTEGER, %(y_2)s::INTEGER)")
    noting(Cursor(), "SELECT x WHERE y IN (%(y_1)s::INTEGER)")
    noting(
        Cursor(), "UPDATE t SET at=%(at)s::TIMESTAMP WITH TIME ZONE WHERE t.x = %(x)s::INTEGER"
    )
    noting(Cursor(), "INSERT INTO t VALUES (%(a)s, %(b)s), (%(c)s, %(d)s)")
    noting(Cursor(), "INSERT INTO t VALUES (%(a)s, %(b)s)")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        noting(Cursor(), "LOCK")
    assert seen == {
        ("SELECT x WHERE y IN (?)", "rows"),
        ("UPDATE t SET at=? WHERE t.x = ?", "none"),
        ("INSERT INTO t VALUES (?)", "none"),
        ("LOCK", "55P03"),
    }


def test_what_is_about_the_database_itself_stays() -> None:
    place = "tests/app/service/access/test_quota.py::"
    assert is_of_the_database(
        f"{place}test_the_one_that_waits_for_the_lock_counts_what_its_holder_stored"
    )
    threads = (
        "tests/app/service/test_holds.py::test_no_hold_comes_between_selection_and_removal"
    )
    assert is_of_the_database(threads)
    assert not is_of_the_database(f"{place}test_a_preview_says_so_too")
