"""At the end, and only if all was planted: `make alerts-check` asks for the record."""

import os
from pathlib import Path

from tests.e2e.alerts import record
from tests.e2e.alerts.faults import PLANTED
from tests.e2e.alerts.test_database import CUTS


def test_the_record_is_written() -> None:
    if (path := os.environ.get("LETHE_TEST_ALERTS_RECORD")) is not None:
        record.write(Path(path), [*(fault for fault, _ in PLANTED), *CUTS.values()])
