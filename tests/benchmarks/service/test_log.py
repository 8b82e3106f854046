"""The log that is measured is one that the service itself could have written."""

from base64 import b64decode
from pathlib import Path

import pytest

from app.ledger.startup import ENTRIES_KEY, init_log, load_ledger
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from benchmarks.service import log
from migrations.runner import upgrade
from models.database.session import opened_engine


@pytest.mark.parametrize("size", [1, 16, 33, 70])
def test_a_log_that_was_filled_is_a_log(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PAGE_LEVEL", 4)
    monkeypatch.setattr(log, "PAGE", 16)
    settings = Settings(data_dir=tmp_path, origin="log.example")
    with opened_engine(settings.resolved_database_url) as engine:
        upgrade(engine)
        ledger = init_log(settings, engine)
        secret = b64decode((settings.keys_dir / ENTRIES_KEY).read_bytes())
        log.fill(ledger, secret, size)
        again = load_ledger(settings, engine)
        again.transact(log.append)
        report = fsck(again)
        assert report.findings == []
        assert (report.size, report.macs) == (size + 1, True)
