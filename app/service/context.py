"""The services that every call and task needs, opened once for each process."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.dispatch import Dispatcher, make_celery
from app.ledger.group_commit import GroupCommitter
from app.ledger.sequencer import Ledger
from app.ledger.startup import UnreachableDatabaseError, load_ledger
from app.reconcile.journal import require_applied
from app.service.signatures import KeyRing, NonceBook
from app.settings import Settings
from app.vault.artifacts import ArtifactStore
from app.vault.features import FeatureVault
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import ErasureJournal
from app.vault.master import RootSecret
from app.witnesses.gather import begin
from app.witnesses.policy import load_policy
from lethe.files import keep_private, warn_if_shared
from lethe.log.policy import Policy
from models.database.session import make_engine, reading

log = logging.getLogger(__name__)

ASK_AGAIN_S = 2.0  # between tries while the database does not answer at the start


@dataclass(frozen=True, slots=True)
class Services:
    """The open ledger, vault and dispatcher of one process."""

    settings: Settings
    engine: Engine
    ledger: Ledger
    root_secret: RootSecret
    journal: ErasureJournal
    artifacts: ArtifactStore
    features: FeatureVault
    dispatcher: Dispatcher
    committer: GroupCommitter
    nonces: NonceBook
    keys: KeyRing
    # The witnesses that cosign checkpoints, None if there are none.
    policy: Policy | None = None
    # Results of /readyz and their times, by part (`app.service.health`), and the last trust
    # root (`app.service.issued.certificates`).
    seen: dict[str, tuple[float, object]] = field(default_factory=dict)

    def close(self) -> None:
        """Finish the submitted transactions, send their nudges, and close the database."""
        self.committer.close()
        self.dispatcher.close()
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for reads; its changes are rolled back."""
        with Session(reading(self.engine), expire_on_commit=False) as session:
            yield session


def open_services(settings: Settings) -> Services:
    """Open the database, the log and the vault; wait for PostgreSQL if it does not answer yet.

    Raises LetheError if the data directory is not writable, the log does not exist, is older
    than the last checkpoint it signed, a key is missing, or the erasure journal is not applied;
    the message names the remedy.
    """
    keep_private()
    settings.require_writable()
    engine = make_engine(settings.resolved_database_url, settings.stall_seconds)
    try:
        return _open(settings, engine)
    except BaseException:
        engine.dispose()
        raise


def _open(settings: Settings, engine: Engine) -> Services:
    ledger = _load(settings, engine)  # first: its error names the first thing to do
    warn_if_shared(settings.data_dir)
    root_secret = RootSecret.load(settings)
    journal = ErasureJournal(settings.keys_dir / JOURNAL, root_secret)
    require_applied(engine, journal)
    begin(ledger, policy := load_policy(settings, ledger.keys))
    return Services(
        settings=settings,
        engine=engine,
        ledger=ledger,
        root_secret=root_secret,
        journal=journal,
        artifacts=ArtifactStore(settings.data_dir / "artifacts", root_secret, journal),
        features=FeatureVault(root_secret, journal),
        dispatcher=Dispatcher(partial(make_celery, settings)),
        committer=GroupCommitter(ledger),
        nonces=NonceBook(ledger),
        keys=KeyRing(),
        policy=policy,
    )


def _load(settings: Settings, engine: Engine) -> Ledger:
    """Load the ledger once the database answers; there is no waiting for a SQLite file."""
    deadline = time.monotonic() + settings.start_seconds
    while True:
        try:
            return load_ledger(settings, engine)
        except UnreachableDatabaseError:
            left = deadline - time.monotonic()
            if engine.dialect.name == "sqlite" or left <= 0:
                raise
            log.warning("the database does not answer: waiting, for %.0f s more", left)
        time.sleep(min(ASK_AGAIN_S, max(0.0, left)))
