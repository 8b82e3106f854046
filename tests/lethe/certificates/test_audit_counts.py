"""Audits of a method are counted from the log's entries, each by the digest that names it."""

from datetime import UTC, date, datetime
from hashlib import sha256

import pytest

from lethe.certificates.audits.counts import audit_digest, count, logged_audits, method_digest
from lethe.log.entries import Leaf, model_leaf, parse_leaf

DAY = date(2026, 1, 2)


def digest(number: int) -> str:
    return f"{number:064x}"


def started(audit: int, method: str = "puf", config: int = 1) -> Leaf:
    named = {"method": method_digest(method), "config": digest(config)}
    return _leaf("audit.started", {"audit": digest(audit), **named})


def reported(audit: int, report: int, code: int = 9) -> Leaf:
    said = {"audit": audit, "config": 1, "report": report, "code": code}
    return _leaf("audit.reported", {name: digest(number) for name, number in said.items()})


def _leaf(event: str, digests: dict[str, str]) -> Leaf:
    return parse_leaf(model_leaf(event, "m", digests, DAY))


LOG = list(
    enumerate(
        [
            started(1),
            started(2, "retrain"),
            reported(2, 12),
            _leaf("audit.failed", {"audit": digest(1), "config": digest(1)}),
            started(3),
            started(4),  # the same configuration, before the other has ended
            reported(4, 14),
            reported(3, 13),
            started(5),
            reported(5, 15, code=8),
        ],
        10,
    )
)


def test_each_start_of_the_method_counts_and_each_report_is_of_the_audit_it_names() -> None:
    found = count(LOG, "puf", 100)
    assert [one.digest for one in found.audits] == [digest(n) for n in (1, 3, 4, 5)]
    assert [one.state for one in found.audits] == ["failed", *["reported"] * 3]
    assert found.reports == {digest(13): 2, digest(14): 3, digest(15): 4}
    assert found.parameters(digest(14)) == {
        "audit.started": "4",
        "audit.reported": "3",
        "audit.log-size": "100",
        "audit.number": "3",
    }
    assert "audit.number" not in found.parameters(None)


def test_the_newest_report_is_the_last_one_of_that_code() -> None:
    found = count(LOG, "puf", 100)
    newest = found.newest(digest(9))
    assert newest is not None
    assert (newest.report, newest.end) == (digest(13), 17)
    other = found.newest(digest(8))
    assert other is not None
    assert other.report == digest(15)
    assert found.newest(digest(7)) is None


@pytest.mark.parametrize(
    ("size", "of"), [(10, (0, 0)), (15, (2, 0)), (17, (3, 1)), (18, (3, 2))]
)
def test_what_lies_beyond_the_size_is_not_counted(size: int, of: tuple[int, int]) -> None:
    found = count(LOG, "puf", size)
    assert (len(found.audits), len(found.reports)) == of


def test_a_second_start_or_end_of_an_audit_changes_nothing() -> None:
    known = logged_audits(LOG)
    more = [(30, started(4, "retrain")), (31, reported(4, 99)), (32, reported(1, 98))]
    assert logged_audits([*LOG, *more]) == known


def test_an_end_without_a_start_is_none() -> None:
    assert logged_audits([(1, reported(1, 11)), (2, started(2))]).keys() == {digest(2)}


def test_of_a_method_that_was_never_audited_nothing_is_said() -> None:
    assert count(LOG, "hf-kcu", 100).parameters(None) == {}


def test_an_audit_is_named_by_what_its_report_says() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    text = b'{"audit":"a","startedAt":"2026-01-02T03:04:05Z"}'
    assert audit_digest("a", at) == sha256(text).hexdigest()
