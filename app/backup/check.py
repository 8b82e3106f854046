"""fsck of a whole installation: log, keys, tables, stored files and erasure journal."""

from contextlib import suppress

from app.keys.fsck import fsck_keys, fsck_master
from app.keys.issuer import issuer_keys
from app.ledger.guard import GuardError
from app.ledger.sequencer import Ledger
from app.ledger.storage import LogDamagedError
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.journal import fsck_journal
from app.reconcile.fsck.run import fsck
from app.reconcile.fsck.state import Verified
from app.reconcile.fsck.vault import fsck_vault
from app.settings import Settings
from app.vault.artifacts import ArtifactStore
from app.vault.errors import MasterKeyError
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import ErasureJournal
from app.vault.master import RootSecret


def fsck_installation(
    settings: Settings, ledger: Ledger, held: Verified | None = None
) -> FsckReport:
    """Check everything. held: what an earlier call verified, which is not read again.

    Without the master key, files and the journal are not checked; the report says so.
    """
    keys = None
    with suppress(GuardError, LogDamagedError):  # `fsck` reports problems of the log
        keys = issuer_keys(settings, ledger)
    known = {} if keys is None else {one.keyid: one.key for one in keys.keys}
    report = fsck(ledger, known, held, keys, settings)
    if keys is not None:
        fsck_keys(settings, ledger, report)
        fsck_master(settings, ledger, report)
    with suppress(MasterKeyError):
        root_secret = RootSecret.load(settings)
        artifacts = ArtifactStore(settings.data_dir / "artifacts", root_secret)
        fsck_vault(ledger.engine, artifacts, root_secret, report, held)
        journal = ErasureJournal(settings.keys_dir / JOURNAL, root_secret)
        fsck_journal(ledger.engine, root_secret, journal, report)
    return report
