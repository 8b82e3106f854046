"""Restores the log's missing entries in a database restored from a backup."""

from collections.abc import Collection, Sequence

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
from app.witnesses.held import ask_witnesses
from lethe.log.entries import Leaf
from lethe.log.fetch import fetch_from


def recover_entries(
    settings: Settings,
    engine: Engine,
    sources: Sequence[str],
    *,
    incomplete: bool = False,
    ask: bool = True,
    without: Collection[str] = (),
) -> tuple[Ledger, Recovered[Reapplied]]:
    """Write back the log entries that the database lacks, from mirrors at `sources`.

    Signs only a checkpoint that this log's key has signed before. Asks the witnesses of the
    policy first: all entries that they cosigned must be restored.

    Args:
        settings: The location of the keys.
        engine: The database of the restored backup.
        sources: URLs or directories.
        incomplete: The erasure journal lacks executed erasures: quarantine every model.
        ask: Ask witnesses. False where the guard in use tells what was signed.
        without: Labels of witnesses that may show nothing, or "all".

    Raises:
        As `app.ledger.recover.recover`, `app.backup.reapply.reapply_all` and
        `app.witnesses.held.ask_witnesses`.
    """
    require_schema(engine)
    ledger = open_ledger(settings, engine)
    root_secret = RootSecret.load(settings)
    journal = ErasureJournal(settings.keys_dir / JOURNAL, root_secret)

    def again(session: Session, leaves: list[Leaf]) -> Reapplied:
        return reapply_all(session, root_secret, journal, leaves, incomplete=incomplete)

    shown = ask_witnesses(settings, ledger, without) if ask else []
    fetches = [fetch_from(source) for source in sources]
    return ledger, recover(ledger, fetches, again, shown, without)
