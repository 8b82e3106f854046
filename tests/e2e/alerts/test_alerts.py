"""Each alert rule fires in Prometheus on a real fault, and no other one does beside it.

One installation, watched by a Prometheus with deploy/monitoring's own configuration and rules,
shortened as `tests.e2e.alerts.prometheus` says. Before each fault all alerts are silent; then
the fault is planted, and the alerts that fire must become exactly those that are about it.
`make alerts-check` plants all of them, and writes what was seen into docs/monitoring.md.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.alerts import record
from tests.e2e.alerts.faults import FAULTS, Fault
from tests.e2e.alerts.installation import Watched, watched
from tests.e2e.alerts.prometheus import MONITORING, Prometheus
from tests.e2e.forked import ForkServer

pytestmark = pytest.mark.timeout(600)

PATIENCE_S = 120.0  # on a busy machine; mostly it is 5 to 30 s
HOLDS = 3  # evaluations in a row without an alert that is about something else
# The disk is the machine's, and whoever writes to it has its trend: in 20 s of samples a
# megabyte a second is a full disk within a day.
OTHERS = "LetheDiskFull"

QUERIES = sorted(
    {
        target["expr"]
        for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]
        for target in panel["targets"]
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, forks: ForkServer) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("alerts"), forks) as found:
        yield found


@pytest.fixture(scope="module")
def drawn() -> set[str]:
    """The queries of the dashboard that have returned a number."""
    return set()


def asked(prometheus: Prometheus, drawn: set[str]) -> None:
    drawn |= {query for query in QUERIES if query not in drawn and prometheus.has_data(query)}


def fires(prometheus: Prometheus, fault: Fault) -> bool:
    """Return whether the alert of a fault fires, and none that is about another one."""
    firing = prometheus.firing()
    names = {one["alertname"] for one in firing}
    parts = {one.get("part", "") for one in firing if one["alertname"] == fault.alert}
    is_seen = fault.alert in names and (not fault.part or fault.part in parts)
    return is_seen and names <= {fault.alert, *fault.also, OTHERS}


def settled(prometheus: Prometheus, fault: Fault) -> bool:
    """Return whether it fires, and for as long as it is looked at no other does."""
    for _ in range(HOLDS):
        if not fires(prometheus, fault):
            return False
        time.sleep(1)
    return True


def until(condition: object, what: str, prometheus: Prometheus) -> float:
    """Wait for a condition; return the seconds that it took."""
    begun = time.monotonic()
    assert callable(condition)
    while not condition():
        if time.monotonic() - begun > PATIENCE_S:
            raise AssertionError(f"{what}; firing: {prometheus.firing()}")
        time.sleep(0.5)
    return time.monotonic() - begun


def is_silent(prometheus: Prometheus) -> bool:
    others = {one["alertname"] for one in prometheus.firing()} - {OTHERS}
    return not others and prometheus.scraped() == {"up"}


def cases() -> list[object]:
    """Return the faults; those that `make test-full` leaves to `make alerts-check` are slow."""
    return [
        pytest.param(one, marks=[] if one.is_short else [pytest.mark.slow], id=one.name)
        for one in FAULTS
    ]


@pytest.mark.parametrize("fault", cases())
def test_an_alert_fires_on_its_fault_alone(
    made: Watched, drawn: set[str], fault: Fault
) -> None:
    prometheus = made.prometheus
    assert prometheus is not None
    if not fault.goes_on:
        until(lambda: is_silent(prometheus), "alerts fire without a fault", prometheus)
    asked(prometheus, drawn)
    with fault.plant(made):
        took = until(
            lambda: settled(prometheus, fault), f"{fault.name} does not fire", prometheus
        )
        asked(prometheus, drawn)
        names = {one["alertname"] for one in prometheus.firing()} - {OTHERS, fault.alert}
    record.note(fault, took, names)


@pytest.mark.slow
def test_every_query_of_the_dashboard_has_returned_data(made: Watched, drawn: set[str]) -> None:
    assert made.prometheus is not None
    asked(made.prometheus, drawn)
    assert sorted(drawn) == QUERIES


def test_the_record_is_written() -> None:
    """At the end, and only if all was planted: `make alerts-check` asks for it."""
    if (path := os.environ.get("LETHE_TEST_ALERTS_RECORD")) is not None:
        record.write(Path(path), len(QUERIES))
