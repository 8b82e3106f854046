"""Twenty disjoint requests, or an error that says why not."""

import pytest

from workers.demo.plan import plan_requests
from workers.demo.service import DemoError

RECORDS = [f"r{number}" for number in range(60)]
CLIENTS = [f"c{number % 5}" for number in range(60)]


def test_twenty_disjoint_wishes_and_what_is_left() -> None:
    wishes, untouched = plan_requests(RECORDS, CLIENTS)
    assert len(wishes) == 20
    named = [record for wish in wishes for record in wish.records]
    (client,) = [wish.client for wish in wishes if wish.client is not None]
    owned = {r for r, c in zip(RECORDS, CLIENTS, strict=True) if c == client}
    assert len(named) == len(set(named)) == 32
    assert not set(named) & owned
    assert set(untouched) == set(RECORDS) - owned - set(named)


@pytest.mark.parametrize(
    ("records", "clients"),
    [
        (RECORDS, ["one"] * 60),
        (RECORDS[:40], CLIENTS[:40]),  # 32 of other clients: none would be left
        ([], []),
    ],
)
def test_too_little_data_is_said(records: list[str], clients: list[str]) -> None:
    with pytest.raises(DemoError, match="record"):
        plan_requests(records, clients)


def test_one_record_more_is_enough() -> None:
    assert plan_requests([*RECORDS[:40], "more"], [*CLIENTS[:40], "c0"])[1]
