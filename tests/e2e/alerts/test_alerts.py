"""Each alert rule fires in Prometheus on a real fault, and no other one does beside it.

One installation, watched by a Prometheus with deploy/monitoring's own configuration and rules,
shortened as `tests.e2e.alerts.prometheus` says. Before each fault all alerts are silent; then
the fault is planted, and the alerts that fire must become exactly those that are about it. They
end once the remedy is applied that the rule names. Meanwhile the queries of the dashboard are
sent, and the fault must be seen on the panel that is about it.
`make alerts-check` plants all of them, and writes what was seen into docs/monitoring.md.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.alerts import dashboard
from tests.e2e.alerts.fault import Fault, Plant
from tests.e2e.alerts.faults import PLANTED
from tests.e2e.alerts.installation import Watched, watched
from tests.e2e.alerts.look import see
from tests.e2e.forked import ForkServer

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def made(forks: ForkServer) -> Iterator[Watched]:
    # On a disk: of a file system in memory, files of gigabytes would take the memory.
    with (
        TemporaryDirectory(prefix="lethe-alerts-", dir="/var/tmp") as directory,
        watched(Path(directory), forks) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def answered() -> set[str]:
    """The queries of the dashboard that have returned a number."""
    return set()


def cases() -> list[object]:
    """Return the faults; those that `make test-full` leaves to `make alerts-check` are slow."""
    return [
        pytest.param(
            fault, plant, marks=[] if fault.is_short else [pytest.mark.slow], id=fault.name
        )
        for fault, plant in PLANTED
    ]


@pytest.mark.parametrize(("fault", "plant"), cases())
def test_an_alert_fires_on_its_fault_alone_and_ends_with_its_remedy(
    made: Watched, answered: set[str], fault: Fault, plant: Plant
) -> None:
    assert made.prometheus is not None
    answered |= see(fault, partial(plant, made), made.prometheus, made.places)


@pytest.mark.slow
def test_every_query_of_the_dashboard_has_returned_data(answered: set[str]) -> None:
    assert sorted(answered) == dashboard.QUERIES
