"""Bytes as they lie in files, in a broker and in the pages of a database.

A row that was deleted, or overwritten, may still be read there. Pieces overlap by the longest
needle, so that nothing is missed between two of them.
"""

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError

from app.purge.needles import Findings, Needles

PIECE = 8 * 2**20  # bytes read at once
BESIDE = ("", "-wal", "-journal", "-shm")  # the files of a SQLite database
MESSAGE = "a message in the broker"
SUPERUSER = (
    "the role may not read the server's files: run the check once with a URL of a superuser, "
    "or `VACUUM FULL` the tables at a quiet hour"
)


def search_files(root: Path, others: list[Path], needles: Needles, found: Findings) -> None:
    """Look into every file under `root`, and into `others`, which may be missing."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    for path in dict.fromkeys([*files, *others]):
        name = str(path.relative_to(root)) if path.is_relative_to(root) else path.name
        try:
            pieces = _pieces(path, needles.longest)
            _search(name, pieces, needles, found)
        except FileNotFoundError:
            continue  # a database without a journal, or a file that was shredded meanwhile
        except OSError as error:
            found.not_inspected[name] = error.strerror or type(error).__name__


def database_files(url: str) -> list[Path]:
    """Return the files of a SQLite database; none of another."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database is None:
        return []
    return [Path(f"{parsed.database}{end}").absolute() for end in BESIDE]


def search_server(engine: Engine, needles: Needles, found: Findings) -> None:
    """Read the files of a PostgreSQL database: tables, indexes, TOAST and write-ahead log."""
    if engine.dialect.name != "postgresql":
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        try:
            connection.execute(text("CHECKPOINT"))  # or pages in memory would be missed
            files = _relations(connection)
            for name, path, size in files:
                _search(name, _served(connection, path, size, needles.longest), needles, found)
        except DBAPIError:
            found.not_inspected["pages of PostgreSQL, its dead tuples and WAL"] = SUPERUSER


def search_redis(url: str, needles: Needles, found: Findings) -> None:
    """Read every key and value of a Redis broker's database."""
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
