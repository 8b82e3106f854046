"""The operator's guide has one row for each metric, with its labels."""

import re

from app import metrics
from app.counters import COUNTERS, HISTOGRAMS
from app.ledger.sequencer import Ledger
from app.service.context import open_services
from app.settings import Settings
from tests.docs.markdown import read

GUIDE = "docs/operator-guide.md"


def _rows() -> dict[str, str]:
    section = re.search(r"(?ms)^### Metrics$(.*?)^### ", read(GUIDE))
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
    documented = {
        name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in _rows().items()
    }
    assert documented == found


def test_alert_rules_use_metrics_that_exist() -> None:
    rules = re.search(r"(?ms)^```yaml\ngroups:(.*?)^```", read(GUIDE))
    assert rules is not None
    used = {name.removesuffix("_bucket") for name in re.findall(r"\blethe_\w+", rules[1])}
    assert len(used) > 5
    assert used <= set(_rows())
