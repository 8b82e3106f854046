"""docs/monitoring.md has one row for each metric, with its labels."""

import re

from app import metrics
from app.counters import COUNTERS, HISTOGRAMS
from app.ledger.sequencer import Ledger
from app.service.context import open_services
from app.settings import Settings
from tests.docs.markdown import read

PAGE = "docs/monitoring.md"


def documented() -> dict[str, str]:
    """Return the labels of each metric that the page has."""
    section = re.search(r"(?ms)^## Metrics$(.*?)^## ", read(PAGE))
    assert section is not None
    return dict(re.findall(r"(?m)^\| `(lethe_\w+)` \| ([^|]*)\|", section[1]))


def test_each_metric_has_its_row(settings: Settings, ledger: Ledger) -> None:
    services = open_services(settings)
    families = metrics.read(services)
    services.close()
    found = {
        f"{one.name}_total" if one.kind == "counter" else one.name: one.labels
        for one in families
    }
    found |= {f"{one.name}_total": (one.label,) for one in COUNTERS}
    found |= {one.name: (one.label,) if one.label else () for one in HISTOGRAMS}
    rows = {
        name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in documented().items()
    }
    assert rows == found
