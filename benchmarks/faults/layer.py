"""What a process calls of the system and the database, counted, and made to fail once.

A call is identified by its kind, the line of the product that led to it, and how often that
line has led there. Calls that no line of the product led to are let through: those of the
campaign itself, and of libraries at start.
"""

import errno
import io
import os
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from types import FrameType
from typing import IO, Any

ROOT = Path(__file__).parents[2]
ROOMS = tuple(f"{ROOT}/{room}/" for room in ("app", "lethe", "models", "workers"))
# Lines that pass a call on for others: the site is the one above them.
PASSING = tuple(
    f"{ROOT}/{place}"
    for place in ("models/database/", "lethe/files.py", "app/backup/folder.py")
)

FULL_FOR = 12  # calls that find the disk full where it is full for a while
SPACE = ("write", "open", "fsync", "rename", "link", "statement", "commit")  # need some

FAILED = ("failed", "full")  # an error of the disk, and a full one; nothing was done
PERSISTED = "persisted"  # an error, although it was done
PARTLY = ("short", "torn")  # half of it was written: the call says so, or the process dies
KILLED = ("killed", "killed-after")
WAITING = ("frozen", "frozen-long")
CLOCK = ("ahead", "behind")
FULL = "full-for-a-while"
MODES: dict[str, tuple[str, ...]] = {
    "write": (*FAILED, PERSISTED, *PARTLY, *KILLED, *WAITING, *CLOCK, FULL),
    "fsync": (*FAILED, PERSISTED, *KILLED, *WAITING, *CLOCK, FULL),
    "open": (*FAILED, *KILLED, *WAITING, FULL),
    "rename": (*FAILED, PERSISTED, *KILLED, *WAITING, *CLOCK, FULL),
    "link": (*FAILED, PERSISTED, *KILLED, *WAITING, FULL),
    "unlink": ("failed", PERSISTED, *KILLED, *WAITING),
    "truncate": ("failed", PERSISTED, *KILLED),
    "begin": ("failed", "killed", *WAITING, *CLOCK),
    "statement": (*FAILED, *KILLED, *WAITING, FULL),
    "commit": (*FAILED, PERSISTED, *KILLED, *WAITING, *CLOCK, FULL),
}
HOURS = 3  # that a clock jumps by: more than any grace that is reckoned in it


@dataclass(frozen=True, slots=True)
class Fault:
    """The `nth` call at a site, and what becomes of it.

    site: `KIND FILE:LINE`, or a kind alone for all calls of it.
    """

    site: str
    nth: int
    mode: str


@dataclass
class Layer:
    """Calls below `folder` and those of databases; `tell` is called when the fault strikes."""

    folder: Path
    fault: Fault | None
    tell: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    lines: set[tuple[str, int]] = field(default_factory=set)  # of the product, of any call
    left: int = 0  # calls that still find the disk full
    saw: Callable[[str], None] = lambda _: None  # is told each site when it is called first
    _kinds: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(
        self,
        kind: str,
        act: Callable[[], Any],
        error: Callable[[str], BaseException],
        half: Callable[[], Any] | None = None,
    ) -> Any:
        """Do `act` and return its result, or what the fault makes of it.

        error: returns what the caller sees if it fails ("failed") or finds no room ("full").
        half: does half of it.
        """
        with self._lock:
            site = self._site(kind)
            if site is None:
                return act()
            self.counts[site] += 1
            if self.counts[site] == 1:
                self.saw(site)
            self._kinds[kind] += 1
            struck = self._is_struck(site, kind)
            no_room = self.left > 0 and kind in SPACE
            self.left -= no_room
        if struck:
            assert self.fault is not None
            return self._strike(self.fault.mode, act, error, half)
        if no_room:
            raise error("full")
        return act()

    def _is_struck(self, site: str, kind: str) -> bool:
        if self.fault is None:
            return False
        count = {site: self.counts[site], kind: self._kinds[kind]}.get(self.fault.site)
        return count == self.fault.nth

    def _strike(
        self,
        mode: str,
        act: Callable[[], Any],
        error: Callable[[str], BaseException],
        half: Callable[[], Any] | None,
    ) -> Any:
        self.tell("struck")
        if mode in FAILED:
            raise error(mode)
        if mode == FULL:
            self.left = FULL_FOR
            raise error("full")
        if mode == PERSISTED:
            act()
            raise error("failed")
        if mode == "killed":
            die()
        if mode == "killed-after":
            act()
            die()
        if mode in PARTLY:
            assert half is not None
            written = half()
            if mode == "torn":
                die()
            return written
        if mode in WAITING:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.05)  # the stop may reach this thread after the next statement
        if mode in CLOCK:
            jump(HOURS if mode == "ahead" else -HOURS)
        return act()

    def _site(self, kind: str) -> str | None:
        """Return where the product makes this call; notes all lines of it that lead here."""
        frame: FrameType | None = sys._getframe(2)
        first: tuple[str, int] | None = None
        passing: tuple[str, int] | None = None
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(ROOMS):
                place = name[len(str(ROOT)) + 1 :], frame.f_lineno
                self.lines.add(place)
                passing = passing or place
                if first is None and not name.startswith(PASSING):
                    first = place
            frame = frame.f_back
        found = first or passing
        return None if found is None else f"{kind} {found[0]}:{found[1]}"

    def install(self) -> None:
        """Put the layer below everything that this process does from now on."""
        _over_files(self)
        _over_sqlite(self)
        if "psycopg" in sys.modules:
            _over_postgresql(self)


def die() -> None:
    """SIGKILL this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def jump(hours: float) -> None:
    """Have the product's modules, and `time.time`, believe that it is so many hours later."""

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Jumped(datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(hours=hours)

    for name, loaded in list(sys.modules.items()):
        own = name.split(".")[0] in ("app", "lethe", "models", "workers")
        if own and getattr(loaded, "datetime", None) is datetime:
            setattr(loaded, "datetime", Jumped)  # noqa: B010
    true = time.time
    time.time = lambda: true() + 3600 * hours


def of_disk(which: str) -> OSError:
    """Return what a failing, or a full, disk raises."""
    number = errno.ENOSPC if which == "full" else errno.EIO
    return OSError(number, os.strerror(number))


def _over_files(layer: Layer) -> None:
    true = {name: getattr(os, name) for name in _OF_OS}

    def below(target: Any, folder: int | None = None) -> bool:
        try:
            if isinstance(target, int):
                target = os.readlink(f"/proc/self/fd/{target}")
            if folder is not None:
                target = Path(os.readlink(f"/proc/self/fd/{folder}"), target)
            return Path(os.fsdecode(target)).is_relative_to(layer.folder)
        except (OSError, TypeError, ValueError):
            return False

    def over(name: str, kind: str) -> None:
        def called(*arguments: Any, **options: Any) -> Any:
            def act() -> Any:
                return true[name](*arguments, **options)

            if name == "open" and not arguments[1] & (os.O_CREAT | os.O_TRUNC):
                return act()
            folder = options.get("dir_fd", options.get("src_dir_fd"))
            return layer.call(kind, act, of_disk) if below(arguments[0], folder) else act()

        setattr(os, name, called)

    def over_write(name: str) -> None:
        def called(descriptor: int, data: Any, *place: int) -> Any:
            def act() -> Any:
                return true[name](descriptor, data, *place)

            def half() -> Any:
                return true[name](descriptor, bytes(data)[: len(data) // 2], *place)

            return layer.call("write", act, of_disk, half) if below(descriptor) else act()

        setattr(os, name, called)

    for name, kind in _OF_OS.items():
        if kind == "write":
            over_write(name)
        else:
            over(name, kind)
    whole = io.open

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            def act() -> Any:
                return io.FileIO.write(self, data)

            def half() -> Any:
                return io.FileIO.write(self, bytes(data)[: max(1, len(data) // 2)])

            written: int = layer.call("write", act, of_disk, half)
            return written

    def opened(
        file: Any, mode: str = "r", buffering: int = -1, *more: Any, **options: Any
    ) -> Any:
        if not (set(mode) & set("wax")) or "+" in mode or not below(file):
            return whole(file, mode, buffering, *more, **options)

        def act() -> IO[Any]:
            bare = mode.replace("b", "").replace("t", "")
            raw = Raw(file, bare, options.pop("closefd", True))
            if "b" not in mode:
                return io.TextIOWrapper(io.BufferedWriter(raw), *more, **options)
            return raw if buffering == 0 else io.BufferedWriter(raw)

        return act() if isinstance(file, int) else layer.call("open", act, of_disk)

    io.open = opened


_OF_OS = {
    "open": "open",
    "write": "write",
    "pwrite": "write",
    "fsync": "fsync",
    "fdatasync": "fsync",
    "rename": "rename",
    "replace": "rename",
    "link": "link",
    "unlink": "unlink",
    "ftruncate": "truncate",
}
_CHANGING = ("INSERT", "UPDATE", "DELETE", "REPLACE", "WITH")


def kind_of(statement: Any) -> str | None:
    """Return what kind of call a statement is, None for one that changes nothing."""
    word = str(statement).lstrip()[:16].upper()
    if word.startswith("BEGIN IMMEDIATE"):
        return "begin"
    return "statement" if word.startswith(_CHANGING) else None


def _over_sqlite(layer: Layer) -> None:
    import models.database.session as session

    def of_sqlite(which: str) -> sqlite3.Error:
        full = which == "full"
        text = "database or disk is full" if full else "disk I/O error"
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
        return error

    def run(statement: Any, act: Callable[[], Any]) -> Any:
        kind = kind_of(statement)
        return act() if kind is None else layer.call(kind, act, of_sqlite)

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *values: Any) -> Any:
            return run(sql, lambda: sqlite3.Cursor.execute(self, sql, *values))

        def executemany(self, sql: str, *values: Any) -> Any:
            return run(sql, lambda: sqlite3.Cursor.executemany(self, sql, *values))

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, sql: str, *values: Any) -> Any:
            return self.cursor().execute(sql, *values)

        def executemany(self, sql: str, *values: Any) -> Any:
            return self.cursor().executemany(sql, *values)

        def commit(self) -> None:
            def act() -> None:
                sqlite3.Connection.commit(self)

            if self.in_transaction and not self._reads():
                layer.call("commit", act, of_sqlite)
            else:
                act()

        def _reads(self) -> bool:
            ((only,),) = sqlite3.Cursor(self).execute("PRAGMA query_only").fetchall()
            return bool(only)

    make = vars(session)["create_engine"]

    def create(url: Any, **options: Any) -> Any:
        if str(url).startswith("sqlite"):
            given = options.get("connect_args", {})
            options["connect_args"] = {**given, "factory": Connection}
        return make(url, **options)

    setattr(session, "create_engine", create)  # noqa: B010 - a name that it only imports


def _over_postgresql(layer: Layer) -> None:
    import psycopg

    from models.database import pipeline

    def gone(connection: Any) -> Callable[[str], BaseException]:
        def error(which: str) -> BaseException:
            if which == "full":
                return psycopg.errors.DiskFull("could not extend file: No space left on device")
            connection.close()  # the server takes back what was not committed
            return psycopg.OperationalError("the connection is lost")

        return error

    execute, commit, message = (
        psycopg.Cursor.execute,
        psycopg.Connection.commit,
        pipeline.run,
    )

    def executed(self: Any, query: Any, *values: Any, **options: Any) -> Any:
        def act() -> Any:
            return execute(self, query, *values, **options)

        kind = kind_of(query)
        return act() if kind is None else layer.call(kind, act, gone(self.connection))

    def committed(self: Any) -> None:
        if self.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
            layer.call("commit", lambda: commit(self), gone(self))
        else:
            commit(self)

    def sent(driver: Any, statements: Any, *, commit: bool = False) -> Any:
        def act() -> Any:
            return message(driver, statements, commit=commit)

        kinds = {kind_of(text) for text, _ in statements} - {None}
        kind = "commit" if commit else "statement"
        return layer.call(kind, act, gone(driver)) if commit or kinds else act()

    psycopg.Cursor.execute = executed  # type: ignore[method-assign]
    psycopg.Connection.commit = committed  # type: ignore[method-assign]
    pipeline.run = sent
