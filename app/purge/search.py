"""The search of everything Lethe writes: rows, sealed data, files, database pages, broker.

Deleted or overwritten rows may still be readable in files and pages. Searched pieces overlap by
the longest search term, so that no match between two pieces is missed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from app.ledger.startup import require_schema
from app.purge.needles import Findings, Needles
from app.purge.tables import search_people, search_sealed, search_tables, search_tombstones
from app.settings import Settings
from app.vault.artifacts import ArtifactStore
from app.vault.features import FeatureVault
from app.vault.master import RootSecret
from models.database.session import opened_engine, reading
from models.database.types import seal_columns

PIECE = 8 * 2**20  # bytes read at once
BESIDE = ("", "-wal", "-journal", "-shm")  # the files of a SQLite database
MESSAGE = "a message in the broker"
SUPERUSER = (
    "the role may not read the server's files: run the check once with a URL of a superuser, "
    "or `VACUUM FULL` the tables at a quiet hour"
)


def search(settings: Settings, identifiers: Iterable[str]) -> Findings:
    """Search everything that this installation writes for identifiers; change nothing.

    Raises LetheError: an identifier is too short, a key is missing, or the database does not
    answer; nothing was checked.
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
        _search_server(engine, needles, found)
    database = _database_files(settings.resolved_database_url)
    _search_files(settings.data_dir.absolute(), database, needles, found)
    if settings.broker_url.startswith(("redis://", "rediss://")):
        _search_redis(settings.broker_url, needles, found)
    return found


def _search_files(root: Path, others: list[Path], needles: Needles, found: Findings) -> None:
    """Search every file under `root`, and `others`, which may be missing."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    for path in dict.fromkeys([*files, *others]):
        name = str(path.relative_to(root)) if path.is_relative_to(root) else path.name
        try:
            pieces = _pieces(path, needles.longest)
            _search(name, pieces, needles, found)
        except FileNotFoundError:
            continue  # a database without a journal, or a file shredded meanwhile
        except OSError as error:
            found.not_inspected[name] = error.strerror or type(error).__name__


def _database_files(url: str) -> list[Path]:
    """Return the files of a SQLite database; none for other databases."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database is None:
        return []
    return [Path(f"{parsed.database}{end}").absolute() for end in BESIDE]


def _search_server(engine: Engine, needles: Needles, found: Findings) -> None:
    """Search the files of a PostgreSQL database: tables, indexes, TOAST and write-ahead log."""
    if engine.dialect.name != "postgresql":
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        try:
            connection.execute(text("CHECKPOINT"))  # write pages in memory to the files
            files = _relations(connection)
            for name, path, size in files:
                _search(name, _served(connection, path, size, needles.longest), needles, found)
        except DBAPIError:
            found.not_inspected["pages of PostgreSQL, its dead tuples and WAL"] = SUPERUSER


def _search_redis(url: str, needles: Needles, found: Findings) -> None:
    """Search every key and value of a Redis broker's database."""
    from redis import Redis
    from redis.exceptions import RedisError

    place = "broker"
    try:
        with Redis.from_url(url) as broker:
            for key in broker.scan_iter(count=500):
                data = broker.dump(key)
                values: list[bytes] = [key, data or b""]
                match broker.type(key):
                    case b"string":
                        values.append(broker.get(key) or b"")
                    case b"list":
                        values += broker.lrange(key, 0, -1)
                    case b"hash":
                        values += [b for pair in broker.hgetall(key).items() for b in pair]
                    case b"set":
                        values += list(broker.smembers(key))
                    case b"zset":
                        values += broker.zrange(key, 0, -1)
                if any(needles.clear(value) for value in values):
                    found.leftovers[f"{place}: {MESSAGE}"] += 1
            found.inspected[place] = 1
    except RedisError as error:
        found.not_inspected[place] = type(error).__name__
    found.not_inspected["RDB and AOF files of Redis"] = "they lie with the Redis server"


def _relations(connection: Connection) -> list[tuple[str, str, int]]:
    query = text(
        "SELECT c.relname, pg_relation_filepath(c.oid) AS path, pg_relation_size(c.oid) AS size"
        " FROM pg_class c WHERE c.relkind IN ('r', 'i', 't') AND c.relfilenode <> 0"
        " AND c.relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN"
        " (current_schema(), 'pg_toast')) ORDER BY c.relname"
    )
    rows = connection.execute(query)
    files = [(f"{row.relname} (pages)", row.path, row.size) for row in rows]
    for row in connection.execute(text("SELECT name, size FROM pg_ls_waldir()")):
        files.append(("write-ahead log", f"pg_wal/{row.name}", row.size))
    return files


def _served(connection: Connection, path: str, size: int, overlap: int) -> Iterator[bytes]:
    query = text("SELECT pg_read_binary_file(:path, :start, :length, true)")
    for start in range(0, size, PIECE):
        values = {"path": path, "start": start, "length": PIECE + overlap}
        yield bytes(connection.execute(query, values).scalar() or b"")


def _pieces(path: Path, overlap: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        tail = b""
        while data := file.read(PIECE):
            yield tail + data
            tail = data[-overlap:]


def _search(place: str, pieces: Iterator[bytes], needles: Needles, found: Findings) -> None:
    clear, sealed = set[int](), set[int]()
    for piece in pieces:
        clear |= needles.clear(piece)
        sealed |= needles.sealed(piece)
    found.inspected["files and pages"] += 1
    if clear:
        found.leftovers[f"{place}: in clear"] += len(clear)
    if sealed:
        found.remnants[place] += len(sealed)
