"""The log under real processes: two that append at once, and one that is killed."""

import subprocess
import sys

import pytest

from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from tests.app.ledger.samples import append, entry, stored_leaves
from tests.lethe.log import oracle

EACH = 25


def _appender(settings: Settings, first: int, **environment: str) -> subprocess.Popen[bytes]:
    arguments = [str(settings.data_dir), settings.database_url, str(first), str(EACH)]
    command = [sys.executable, "-m", "tests.app.ledger.appender", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment or None)


def test_processes_append_at_once_and_no_entry_is_lost_or_doubled(
    settings: Settings, ledger: Ledger
) -> None:
    processes = [_appender(settings, first) for first in (0, 1000)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for number in range(2000, 2000 + EACH):  # and this process is a third
        append(ledger, entry(number))
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    leaves = stored_leaves(ledger.engine)
    expected = [entry(first + i) for first in (0, 1000, 2000) for i in range(EACH)]
    assert sorted(leaves) == sorted(expected)
    for first in (0, 1000, 2000):  # the order within each process is kept
        own = [entry(first + i) for i in range(EACH)]
        assert [leaf for leaf in leaves if leaf in own] == own
    assert ledger.latest().root == oracle.mth(leaves)
    assert fsck(ledger).ok


@pytest.mark.parametrize(
    "moment",
    [pytest.param(3, marks=pytest.mark.full), 11, pytest.param(24, marks=pytest.mark.full)],
)
def test_a_process_killed_while_appending_leaves_a_log_that_goes_on(
    settings: Settings, ledger: Ledger, moment: int
) -> None:
    process = _appender(settings, 0)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    while ledger.latest().size < moment:
        assert process.poll() is None
    process.kill()
    process.communicate(timeout=120)
    again = load_ledger(settings, ledger.engine)
    assert append(again, entry(5000)) == [len(stored_leaves(ledger.engine)) - 1]
    leaves = stored_leaves(ledger.engine)
    assert leaves == (*(entry(i) for i in range(len(leaves) - 1)), entry(5000))
    assert fsck(again).ok
