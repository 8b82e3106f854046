"""Audits of a method are counted from the log's entries, and none is left out by being odd."""

from datetime import date

import pytest

from app.ledger.audit_counts import Report, count, method_digest
from app.ledger.entries import Leaf, model_leaf, parse_leaf

DAY = date(2026, 1, 2)


def digest(number: int) -> str:
    return f"{number:064x}"


def started(config: int, method: str | None = "puf") -> Leaf:
    named = {} if method is None else {"method": method_digest(method)}
    return _leaf("audit.started", {"config": digest(config), **named})


def reported(config: int, report: int) -> Leaf:
    return _leaf("audit.reported", {"config": digest(config), "report": digest(report)})


def _leaf(event: str, digests: dict[str, str]) -> Leaf:
    return parse_leaf(model_leaf(event, "m", digests, DAY))


LOG = list(
    enumerate(
        [
            started(1),
            started(2, "retrain"),
            reported(2, 12),
            _leaf("audit.failed", {"config": digest(1)}),
            started(3),
            reported(3, 13),
            started(3),
            reported(3, 14),
            started(4),
        ],
        10,
    )
)


def test_each_start_of_the_method_counts_and_reports_are_of_the_last_with_their_digest() -> (
    None
):
    found = count(LOG, "puf", 100)
    assert (found.started, found.named) == (4, 10)
    assert found.reports == {
        digest(13): Report(2, digest(3)),
        digest(14): Report(3, digest(3)),
    }
    assert found.parameters(digest(14)) == {
        "audit.started": "4",
        "audit.reported": "2",
        "audit.log-size": "100",
        "audit.number": "3",
    }
    assert "audit.number" not in found.parameters(None)


@pytest.mark.parametrize(
    ("size", "of"), [(10, (0, 0)), (15, (2, 0)), (16, (2, 1)), (18, (3, 2))]
)
def test_what_lies_beyond_the_size_is_not_counted(size: int, of: tuple[int, int]) -> None:
    found = count(LOG, "puf", size)
    assert (found.started, len(found.reports)) == of


def test_a_start_that_names_no_method_counts_for_each() -> None:
    old = [*LOG, (30, started(5, None)), (31, reported(5, 15))]
    for method, starts in (("puf", 5), ("retrain", 2), ("hf-kcu", 1)):
        found = count(old, method, 100)
        assert found.started == starts
        assert found.reports[digest(15)].number == starts
    assert count(old, "hf-kcu", 100).named is None


def test_a_report_without_a_start_is_none() -> None:
    assert count([(1, reported(1, 11)), (2, started(1))], "puf", 100).reports == {}


def test_of_a_method_that_was_never_audited_nothing_is_said() -> None:
    assert count(LOG, "hf-kcu", 100).parameters(None) == {}
