"""The check as a whole: rows, what is sealed, files, pages, broker."""

from collections.abc import Iterable

from sqlmodel import Session

from app.ledger.startup import require_schema
from app.purge.needles import Findings, Needles
from app.purge.raw import database_files, search_files, search_redis, search_server
from app.purge.tables import search_people, search_sealed, search_tables, search_tombstones
from app.settings import Settings
from app.vault.artifacts import ArtifactStore
from app.vault.features import FeatureVault
from app.vault.master import RootSecret
from models.database.sealed import seal_columns
from models.database.session import opened_engine, reading


def search(settings: Settings, identifiers: Iterable[str]) -> Findings:
    """Look for identifiers in everything that this installation writes; change nothing.

    Raises:
        LetheError: An identifier is too short, a key is missing, or the database does not
            answer: nothing was checked.
    """
    root_secret = RootSecret.load(settings)
    needles = Needles(identifiers, root_secret)
    found = Findings()
    with opened_engine(settings.resolved_database_url) as engine:
        require_schema(engine)
        seal_columns(engine, root_secret)
        with Session(reading(engine)) as session:
            search_tables(session, needles, found)
            search_tombstones(session, root_secret, needles, found)
            search_people(session, root_secret, needles, found)
            artifacts = ArtifactStore(settings.data_dir / "artifacts", root_secret)
            search_sealed(session, artifacts, FeatureVault(root_secret), needles, found)
        search_server(engine, needles, found)
    database = database_files(settings.resolved_database_url)
    search_files(settings.data_dir.absolute(), database, needles, found)
    if settings.broker_url.startswith(("redis://", "rediss://")):
        search_redis(settings.broker_url, needles, found)
    return found
