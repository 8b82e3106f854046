"""A process that appends: `python -m tests.app.ledger.appender DATA_DIR URL FIRST COUNT`."""

import sys
from pathlib import Path

from app.ledger.startup import load_ledger
from app.settings import Settings
from tests.app.ledger.samples import append, entry

data_dir, url, first, count = sys.argv[1:]
settings = Settings(data_dir=Path(data_dir), database_url=url, origin="ledger.test/lethe")
ledger = load_ledger(settings)
sys.stdin.readline()  # all processes start together
for number in range(int(first), int(first) + int(count)):
    (index,) = append(ledger, entry(number))
    assert ledger.receipt(index).leaf == entry(number)
