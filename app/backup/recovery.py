"""Restores the log's missing entries in a database restored from a backup."""

from collections.abc import Sequence

from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.backup.reapply import Reapplied, reapply_all
from app.ledger.recover import Recovered, recover
from app.ledger.sequencer import Ledger
from app.ledger.startup import open_ledger, require_schema
from app.settings import Settings
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import ErasureJournal
from app.vault.master import RootSecret
from lethe.log.entries import Leaf
from lethe.log.fetch import fetch_from


def recover_entries(
    settings: Settings, engine: Engine, sources: Sequence[str], *, incomplete: bool = False
) -> tuple[Ledger, Recovered[Reapplied]]:
    """Write back the log entries that the database lacks, from mirrors at `sources`.

    Signs only a checkpoint that this log's key has signed before.

    Args:
        settings: The location of the keys.
        engine: The database of the restored backup.
        sources: URLs or directories.
        incomplete: The erasure journal lacks executed erasures: quarantine every model.

    Raises:
        As `app.ledger.recover.recover` and `app.backup.reapply.reapply_all`.
    """
    require_schema(engine)
    ledger = open_ledger(settings, engine)
    root_secret = RootSecret.load(settings)
    journal = ErasureJournal(settings.keys_dir / JOURNAL, root_secret)

    def again(session: Session, leaves: list[Leaf]) -> Reapplied:
        return reapply_all(session, root_secret, journal, leaves, incomplete=incomplete)

    return ledger, recover(ledger, [fetch_from(source) for source in sources], again)
