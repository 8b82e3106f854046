"""Planting a fault, and looking at alerts and dashboard before, in and after it."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import TypeVar

from tests.e2e.alerts import dashboard, record
from tests.e2e.alerts.dashboard import Drawn
from tests.e2e.alerts.fault import Fault
from tests.e2e.alerts.prometheus import EACH, Prometheus

T = TypeVar("T")

PATIENCE_S = 180.0  # on a busy machine; mostly it is 10 to 40 s
LOOKS = 3  # a scrape apart, without an alert that is about something else
# The disk is the machine's, and whoever writes to it has its trend: in a minute of samples a
# megabyte a second is a full disk within a day.
OTHERS = {"LetheDiskFull"}


def see(
    fault: Fault,
    plant: Callable[[], Iterator[None]],
    prometheus: Prometheus,
    places: Mapping[str, str],
) -> set[str]:
    """Plant a fault once nothing fires, and have its alerts fire, and no others.

    They end with its remedy. The panel about it changes visibly, and none becomes empty unless
    the fault blinds all. `places` names the processes by their addresses. Returns which queries
    of the dashboard returned a number.
    """

    def well() -> list[Drawn]:
        return looks(prometheus, places, lambda: is_silent(prometheus))

    def ill() -> list[Drawn]:
        return looks(prometheus, places, lambda: explained(prometheus, fault))

    _, before = until(well, "alerts fire without a fault", prometheus)
    begun = plant()
    assert isinstance(begun, Generator)
    with closing(begun) as planted:
        next(planted)
        fired, after = until(ill, f"{fault.name} does not fire", prometheus)
        answered, beside = dashboard.answered(prometheus), prometheus.firing()
        next(planted, None)  # the remedy
        ended, _ = until(
            lambda: not prometheus.firing() & {*fault.alerts}, "it goes on", prometheus
        )
        next(planted, None)  # what the remedy leaves behind
    changes = dashboard.changes(before, after)
    empty = dashboard.empty(answered) - {*dashboard.OF_LOAD, *dashboard.EMPTY}
    assert {*dashboard.required(fault)} <= changes.keys(), changes
    assert fault.blind or not empty, empty
    others = beside - {*fault.alerts} - (OTHERS - fault.also)
    record.note(fault, record.Seen(fired, ended, others, changes, empty))
    return answered


def looks(
    prometheus: Prometheus, places: Mapping[str, str], holds: Callable[[], bool]
) -> list[Drawn]:
    """Return what the dashboard showed in several looks, nothing if it did not hold meanwhile."""
    found = []
    for _ in range(LOOKS):
        if not holds():
            return []
        found.append(dashboard.drawn(prometheus, places))
        time.sleep(EACH)
    return found


def until(condition: Callable[[], T], what: str, prometheus: Prometheus) -> tuple[float, T]:
    """Wait for a condition; return the seconds that it took, and what it returned."""
    begun = time.monotonic()
    while not (found := condition()):
        if time.monotonic() - begun > PATIENCE_S:
            raise AssertionError(f"{what}; firing: {prometheus.firing()}")
        time.sleep(0.5)
    return time.monotonic() - begun, found


def is_silent(prometheus: Prometheus) -> bool:
    """Return whether all is scraped, and no alert fires."""
    return prometheus.firing() <= OTHERS and prometheus.scraped() == {"up"}


def explained(prometheus: Prometheus, fault: Fault) -> bool:
    """Return whether the alerts of a fault fire, and none that is about another one."""
    return fault.explains(prometheus.firing() - (OTHERS - {*fault.alerts}))
