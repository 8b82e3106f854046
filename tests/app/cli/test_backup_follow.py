"""`lethe backup follow`: restores after any crash, and erased records that stay erased."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app import metrics, steps
from app.backup.archive import has_digest, write_backup
from app.backup.beats import FOLDER, Beat, read_beats, write_beat
from app.backup.errors import BackupError
from app.backup.folder import Folder
from app.backup.follower import DatabaseFollower, follow, following
from app.backup.keys import KeysCopy
from app.backup.pieces import PIECE, PIECES, as_backup, read_followed
from app.backup.restore import restore as restore_backup
from app.backup.round import BaseFollower, Round
from app.backup.scratch import scratch_place
from app.cli.backup import backup, restore
from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger import storage
from app.ledger.guard import RolledBackError, SigningGuard, format_state
from app.ledger.startup import GUARD, SchemaError
from app.settings import Settings
from lethe.cli.log import log
from lethe.files import PARTIAL
from lethe.log.checkpoint import Checkpoint
from migrations.runner import upgrade
from models import Artifact, ErasureRequest, Record
from models.database.session import opened_engine
from tests.app.cli.test_backup import (
    erase,
    mirror,
    point_at,
    rows,
    run,
    stored,
    without_file,
)
from tests.installation import Installation, install

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@dataclass
class Following:
    """A follower into `directory` that runs rounds on demand."""

    installed: Installation
    directory: Path
    follower: BaseFollower

    def round(self) -> Round:
        done = self.follower.run()
        assert done is not None
        return done

    def pieces(self) -> set[str]:
        return {path.name for path in (self.directory / PIECES).iterdir()}

    def named(self) -> set[str]:
        state = read_followed(self.directory)
        assert state is not None
        return set(state.pieces)


@pytest.fixture
def followed(running: Installation, tmp_path: Path) -> Iterator[Following]:
    """A follower that has done its first round."""
    with following(running.settings, running.services.engine, tmp_path / "f") as follower:
        assert isinstance(follower, DatabaseFollower)
        made = Following(running, tmp_path / "f", follower)
        made.round()
        yield made


def ask(installed: Installation, record: str) -> str:
    """Submit a request until it is acknowledged; return its id."""
    answer = installed.caller.erase_records(record)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


@contextmanager
def at(step: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something else each time a step is reached."""

    def reached(one: str) -> None:
        if one == step:
            act()

    steps.install(reached)
    try:
        yield
    finally:
        steps.install(None)


def lost(settings: Settings, place: Path) -> Settings:
    """Return the settings of an installation that has only the keys."""
    new = settings.model_copy(
        update={"database_url": f"sqlite:///{place / 'new.db'}", "data_dir": place / "data"}
    )
    shutil.copytree(settings.keys_dir, new.keys_dir)
    return new


def comes_back(settings: Settings, directory: Path, place: Path) -> set[str]:
    """Restore the followed state into a new place; return its requests."""
    new = lost(settings, place)
    with opened_engine(new.resolved_database_url) as engine:
        restore_backup(new, engine, directory)
        with Session(engine) as session:
            return set(session.exec(select(ErasureRequest.id)).all())


def test_all_that_was_acknowledged_before_the_last_round_comes_back(
    running: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = str(tmp_path / "f")
    assert run(backup, "follow", directory, "--once").exit_code == 0
    before = ask(running, "r1")
    told = run(backup, "follow", directory, "--once")
    assert told.exit_code == 0, (told.output, told.exception)
    assert "keys are not included" in told.output
    size = running.services.ledger.latest().size
    assert f"with {size} entries" in told.output
    checked = run(backup, "rehearse", directory)
    assert checked.exit_code == 0, (checked.output, checked.exception)
    assert "PASS" in checked.output
    assert " lost: " not in checked.output
    after = ask(running, "r2")
    mirror(running, tmp_path / "m")
    running.services.close()  # and the database is gone
    new = lost(running.settings, tmp_path / "new")
    point_at(new, monkeypatch)
    told = run(restore, directory)
    assert told.exit_code == 0, (told.output, told.exception)
    assert "1 log entries were signed after this backup" in told.output
    with rows(new) as session:
        assert session.exec(select(ErasureRequest.id)).all() == [before] != [after]
    assert run(log, "recover", str(tmp_path / "m")).exit_code == 0
    with install(new) as installed:
        installed.recover()  # as the worker's sweep does
        installed.drain()
        answer = installed.caller.http.get(f"/v1/requests/{before}").json()
        assert answer["state"] == "certified"
    assert "r1" not in stored(new)


def test_a_round_writes_what_changed_and_keeps_nothing_older(followed: Following) -> None:
    first = followed.pieces()
    assert first == followed.named()
    assert followed.follower.run() is None  # nothing was committed
    ask(followed.installed, "r1")
    done = followed.round()
    assert 0 < done.written < len(first) << 16
    assert followed.pieces() == followed.named()
    assert len(first & followed.pieces()) > 0
    assert first - followed.pieces()  # older pieces are gone
    assert followed.follower.run() is None


def test_what_is_erased_leaves_the_directory_with_the_next_round(followed: Following) -> None:
    with Session(followed.installed.services.engine) as session:
        model = select(Record.commitment)
        before = set(session.exec(model).all())
        keys = select(Artifact.wrapped_key).where(col(Artifact.wrapped_key).is_not(None))
        wrapped = set(session.exec(keys).all())
    erase(followed.installed, "r1")
    with Session(followed.installed.services.engine) as session:
        gone = before - set(session.exec(model).all())
        gone |= wrapped - set(session.exec(keys).all())  # type: ignore[arg-type]
    assert len(gone) >= 3  # the record, the head, the state
    held = b"".join(
        path.read_bytes() for path in sorted((followed.directory / PIECES).iterdir())
    )
    assert any(one in held for one in gone)
    files = {path.name for path in (followed.directory / "artifacts").iterdir()}
    followed.round()
    held = b"".join(
        (followed.directory / PIECES / one).read_bytes() for one in followed.named()
    )
    assert followed.pieces() == followed.named()
    assert not any(one in held for one in gone)
    left = {path.name for path in (followed.directory / "artifacts").iterdir()}
    assert files - left
    artifacts = followed.installed.settings.data_dir / "artifacts"
    assert left == {path.name for path in artifacts.iterdir()}


def test_a_state_from_before_an_erasure_brings_nobody_back(
    followed: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record's erasure was certified while the follower was stopped."""
    erase(followed.installed, "r1")
    new = lost(followed.installed.settings, tmp_path / "new")
    point_at(new, monkeypatch)
    told = run(restore, str(followed.directory))
    assert told.exit_code == 0, (told.output, told.exception)
    assert "erased again: 1 records" in told.output
    assert "r1" not in stored(new)
    assert "r2" in stored(new)


@pytest.mark.parametrize("step", ["follow.written", "follow.copied", "follow.committed"])
def test_whatever_is_killed_a_whole_state_is_left(
    followed: Following, step: str, tmp_path: Path
) -> None:
    settings, engine = followed.installed.settings, followed.installed.services.engine
    before = ask(followed.installed, "r1")
    followed.round()
    after = ask(followed.installed, "r2")
    steps.plant(f"{step}=raise")
    try:
        with pytest.raises(steps.PlantedFaultError):
            followed.follower.run()
    finally:
        steps.install(None)
    whole = {before, after} if step == "follow.committed" else {before}
    assert comes_back(settings, followed.directory, tmp_path / "1") == whole
    follower = DatabaseFollower(
        settings, followed.follower.connection, followed.follower.folder
    )
    assert follower.run() is not None  # as the next process does
    assert comes_back(settings, followed.directory, tmp_path / "2") == {before, after}
    assert followed.pieces() == followed.named()
    assert not list(settings.data_dir.glob("*.scratch"))
    engine.dispose()


@pytest.mark.full
@pytest.mark.parametrize("step", steps.FOLLOW_STEPS)
def test_a_process_that_is_killed_is_started_again(
    running: Installation, step: str, tmp_path: Path
) -> None:
    directory = tmp_path / "f"
    assert run(backup, "follow", str(directory), "--once").exit_code == 0
    before = ask(running, "r1")
    command = [sys.executable, "-m", "lethe.cli.main", "backup", "follow", str(directory)]
    done = subprocess.run([*command], env={**os.environ, "LETHE_FAULT": f"{step}=kill"})
    assert done.returncode == -signal.SIGKILL
    found = comes_back(running.settings, directory, tmp_path / "1")
    assert found == ({before} if step == "follow.committed" else set())
    again = run(backup, "follow", str(directory), "--once")
    assert again.exit_code == 0, (again.output, again.exception)
    assert comes_back(running.settings, directory, tmp_path / "2") == {before}
    assert not list(running.settings.data_dir.glob("*.scratch"))


def test_a_file_that_is_destroyed_while_a_round_copies_it_is_kept(
    followed: Following, tmp_path: Path
) -> None:
    """The snapshot names it: a worker learned the upload after it was taken."""
    installed = followed.installed
    assert installed.caller.register_model(ref="other").status_code == 201
    with at("follow.copied", installed.drain):
        followed.round()
    new = lost(installed.settings, tmp_path / "new")
    with opened_engine(new.resolved_database_url) as engine:
        restore_backup(new, engine, followed.directory)
        assert without_file(engine, new) == set()


def test_nothing_is_removed_while_somebody_restores(
    followed: Following, tmp_path: Path
) -> None:
    before = followed.pieces()
    with as_backup(followed.directory, tmp_path):
        ask(followed.installed, "r1")
        followed.round()
        assert before <= followed.pieces()
        assert followed.follower.run() is None
    assert followed.follower.run() is None
    assert followed.pieces() == followed.named()


def test_of_a_lost_machine_directory_keys_and_a_mirror_are_enough(
    running: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, keys = tmp_path / "f", tmp_path / "k"
    with following(running.settings, running.services.engine, directory, keys) as follower:
        assert follower.run() is not None
        before = ask(running, "r1")
        assert follower.run() is not None
        assert follower.run() is None
        # A key change without a commit is copied too, and a removed key is removed.
        new_key = running.settings.keys_dir / "log.next.key"
        new_key.write_text("made by a rotation")
        assert follower.run() is not None
        assert (keys / "log.next.key").read_text() == "made by a rotation"
        new_key.unlink()
        assert follower.run() is not None
        with pytest.raises(BackupError, match="another process follows into"):
            _refuse(running, tmp_path / "other", keys)
    source = {path.name: path.read_bytes() for path in running.settings.keys_dir.iterdir()}
    copied = {path.name: path.read_bytes() for path in keys.iterdir()}
    assert copied.pop("follower.lock") == b""
    assert copied == source
    mirror(running, tmp_path / "m")
    running.services.close()  # and everything is gone
    new = running.settings.model_copy(
        update={
            "database_url": f"sqlite:///{tmp_path / 'new.db'}",
            "data_dir": tmp_path / "new",
        }
    )
    point_at(new, monkeypatch)
    told = run(restore, str(directory), "--keys", str(keys))
    assert told.exit_code == 0, (told.output, told.exception)
    assert "run `lethe log recover` with every mirror" in told.output
    assert not (new.keys_dir / "follower.lock").exists()
    assert run(log, "recover", str(tmp_path / "m")).exit_code == 0
    with install(new) as installed:
        answer = installed.caller.http.get(f"/v1/requests/{before}").json()
        assert answer["state"] == "received"
        installed.check()


def test_the_guard_that_is_copied_is_never_ahead_of_the_database(
    followed: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is signed while the round copies the database, so the copy lacks it."""
    settings = followed.installed.settings
    copy = KeysCopy(settings.keys_dir, tmp_path / "k")
    follower = DatabaseFollower(
        settings, followed.follower.connection, followed.follower.folder, copy
    )
    with at("follow.copied", lambda: ask(followed.installed, "r1")):
        done = follower.run()
    assert done is not None
    held = SigningGuard(tmp_path / "k" / GUARD).read().size
    assert held <= done.state.size < SigningGuard(settings.keys_dir / GUARD).read().size


def test_what_is_no_file_among_the_artifacts_brings_no_key_along(
    running: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker with that directory plants a link to a key, a pipe, a socket and a folder."""
    settings = running.settings
    artifacts = settings.data_dir / "artifacts"
    honest = {path.name for path in artifacts.iterdir()}
    (artifacts / "key").symlink_to(settings.keys_dir / "master.key")
    os.mkfifo(artifacts / "pipe")
    (artifacts / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener, monkeypatch.context() as patch:
        patch.chdir(artifacts)  # a socket's path must be short
        listener.bind("socket")
    assert run(backup, "new", str(tmp_path / "b")).exit_code == 0
    assert run(backup, "follow", str(tmp_path / "f"), "--once").exit_code == 0
    for directory in (tmp_path / "b", tmp_path / "f"):
        assert {path.name for path in (directory / "artifacts").iterdir()} == honest
    running.services.artifacts.unlink_orphans(running.services.engine, timedelta(seconds=-60))


def test_keys_are_copied_over_no_others(running: Installation, tmp_path: Path) -> None:
    keys = running.settings.keys_dir
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    with pytest.raises(BackupError, match="the keys in use"):
        _refuse(running, tmp_path / "f", keys)
    shutil.copytree(keys, tmp_path / "another")
    with pytest.raises(BackupError, match="has other files"):
        _refuse(running, tmp_path / "f", tmp_path / "another")
    assert before == {path.name: path.read_bytes() for path in keys.iterdir()}
    inside = tmp_path / "f" / "keys"
    told = run(backup, "follow", str(tmp_path / "f"), "--once", "--keys", str(inside))
    assert told.exit_code == 2
    assert "keys stored beside the data" in told.output


def _all_keys(settings: Settings) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in settings.keys_dir.iterdir()}


@pytest.mark.parametrize("folder", [PIECES, "artifacts"])
def test_a_folder_that_is_a_link_is_refused(followed: Following, folder: str) -> None:
    """An attacker with the followed directory makes it a link to the keys."""
    settings = followed.installed.settings
    ask(followed.installed, "r1")
    before = _all_keys(settings)
    place = followed.directory / folder
    place.rename(followed.directory / "moved")
    place.symlink_to(settings.keys_dir)
    with pytest.raises(BackupError, match="is a link or a file, and no directory: remove it"):
        followed.follower.run()
    place.unlink()
    place.write_bytes(b"")
    with pytest.raises(BackupError, match="is a link or a file, and no directory: remove it"):
        followed.follower.run()
    assert _all_keys(settings) == before
    place.unlink()
    (followed.directory / "moved").rename(place)
    assert followed.follower.run() is not None


@pytest.mark.parametrize("folder", [PIECES, "artifacts"])
def test_a_folder_that_becomes_a_link_within_a_round_leads_nowhere(
    followed: Following, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = followed.installed.settings
    erase(followed.installed, "r1")  # makes pieces and files to write and to remove
    before = _all_keys(settings)

    def exchange() -> None:
        (followed.directory / folder).rename(followed.directory / "moved")
        (followed.directory / folder).symlink_to(settings.keys_dir)

    with at("follow.copied", exchange):
        followed.round()
    assert _all_keys(settings) == before


def test_what_others_left_in_the_directory_is_not_removed(followed: Following) -> None:
    others = [followed.directory / folder / "log.key" for folder in (PIECES, "artifacts")]
    for path in others:
        path.write_text("not the follower's")
    ask(followed.installed, "r1")
    followed.round()
    assert all(path.exists() for path in others)


def _links(path: Path, target: Path) -> None:
    path.symlink_to(target)


def _pipes(path: Path, _: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [_links, _pipes])
def test_a_lock_that_is_no_plain_file_is_refused(
    followed: Following, plant: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    """A link could create a file `restored` among the keys, which would stop the service."""
    settings = followed.installed.settings
    planted = settings.keys_dir / "restored"
    lock = followed.directory / "readers.lock"
    lock.unlink()
    plant(lock, planted)
    comes_back(settings, followed.directory, tmp_path / "new")  # and does not wait
    ask(followed.installed, "r1")
    with pytest.raises(BackupError, match=r"readers\.lock is a link, a pipe .* remove it"):
        followed.follower.run()
    for directory in (tmp_path / "g", tmp_path / "k"):
        directory.mkdir()
        plant(directory / "follower.lock", planted)
    for data, keys in (("g", "other"), ("h", "k")):
        with pytest.raises(BackupError, match=r"follower\.lock is a link, a pipe"):
            _refuse(followed.installed, tmp_path / data, tmp_path / keys)
    assert not planted.exists()


def test_a_copy_of_keys_whose_files_are_links_leads_nowhere(
    running: Installation, tmp_path: Path
) -> None:
    """An attacker with the copied keys makes them links to the keys in use, or elsewhere."""
    settings, engine, keys = running.settings, running.services.engine, tmp_path / "k"
    before = _all_keys(settings)
    with following(settings, engine, tmp_path / "f", keys) as follower:
        follower.run()
        (keys / "log.key").unlink()
        (keys / "log.key").symlink_to(settings.keys_dir / "issuer.key")
        (keys / "issuer.key").unlink()
        os.mkfifo(keys / "issuer.key")
        (keys / "extra").symlink_to(settings.keys_dir / "log.key")
        ask(running, "r1")
        follower.run()
        after = _all_keys(settings)
        assert {name: after[name] for name in before if name != GUARD} == {
            name: before[name] for name in before if name != GUARD
        }
        assert not any(path.is_symlink() for path in keys.iterdir())
        assert (keys / "log.key").read_bytes() == before["log.key"]
        keys.rename(tmp_path / "moved")
        keys.symlink_to(settings.keys_dir)
        ask(running, "r2")
        later = _all_keys(settings)
        with pytest.raises(BackupError, match="is gone: mount its disk"):
            follower.run()
        assert _all_keys(settings) == later


def _copied_by_backup(running: Installation, place: Path) -> None:
    write_backup(running.settings, running.services.engine, place / "b", place / "k")


def _copied_by_follower(running: Installation, place: Path) -> None:
    settings, engine = running.settings, running.services.engine
    with following(settings, engine, place / "f", place / "k") as follower:
        follower.run()


@pytest.mark.parametrize("copied", [_copied_by_backup, _copied_by_follower])
def test_the_logs_key_is_copied_while_a_rotation_of_it_ends(
    running: Installation,
    copied: Callable[[Installation, Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """log.next.key replaces log.key just after log.key was read."""
    settings, ledger, honest = running.settings, running.services.ledger, Path.open
    rotate_log(settings, ledger)
    ended: list[Path] = []

    def interrupted(path: Path, *arguments: Any, **options: Any) -> Any:
        opened = honest(path, *arguments, **options)
        if path == settings.keys_dir / "log.key" and arguments[:1] != ("w",) and not ended:
            ended.append(path)
            revoke_log(settings, ledger, "superseded")
        return opened

    monkeypatch.setattr(Path, "open", interrupted)
    copied(running, tmp_path)
    assert ended
    key = (settings.keys_dir / "log.key").read_bytes()
    assert key in {path.read_bytes() for path in (tmp_path / "k").glob("log*.key")}


@pytest.mark.parametrize("copied", [_copied_by_backup, _copied_by_follower])
def test_keys_that_a_crash_left_unfinished_are_not_copied(
    running: Installation, copied: Callable[[Installation, Path], None], tmp_path: Path
) -> None:
    """Such as a root.sealed that a revoked master key opens."""
    (running.settings.keys_dir / f"{PARTIAL}1").write_text("a crash left it")
    copied(running, tmp_path)
    assert not list((tmp_path / "k").glob(f"{PARTIAL}*"))


def test_an_artifact_that_was_exchanged_since_it_was_checked_is_not_restored(
    running: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker with the backup has a key restored, which the next backup would contain."""
    settings, engine = running.settings, running.services.engine
    write_backup(settings, engine, tmp_path / "b")
    running.services.close()
    victim = sorted((tmp_path / "b" / "artifacts").iterdir())[0]
    body = victim.read_bytes()
    new = lost(settings, tmp_path / "new")

    def exchanged(content: bytes | None) -> None:
        def upgraded(database: Engine) -> None:
            upgrade(database)
            victim.unlink()
            if content is None:
                victim.symlink_to(new.keys_dir / "log.key")
            else:
                victim.write_bytes(content)

        monkeypatch.setattr("app.backup.restore.upgrade", upgraded)

    for content in (None, body + b"x"):
        exchanged(content)
        with (
            opened_engine(new.resolved_database_url) as database,
            pytest.raises(BackupError, match="is missing or not the file that was backed up"),
        ):
            restore_backup(new, database, tmp_path / "b")
        assert not (new.data_dir / "artifacts" / victim.name).exists()
        shutil.rmtree(new.data_dir / "artifacts")
        victim.unlink()
        victim.write_bytes(body)


def test_the_manifest_vouches_for_what_was_copied_alone(
    followed: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker with the followed directory exchanges an artifact as soon as it is written."""
    settings = followed.installed.settings
    erase(followed.installed, "r1")  # new artifacts
    honest, exchanged = os.fsync, set[str]()
    before = set(os.listdir(followed.directory / "artifacts"))

    def racing(descriptor: int) -> None:
        honest(descriptor)
        for path in (followed.directory / "artifacts").iterdir():
            # Once each: pieces are synced by several threads, which would race each other here.
            if path.name not in before | exchanged and not path.name.startswith(PARTIAL):
                exchanged.add(path.name)
                path.unlink()
                path.symlink_to(settings.keys_dir / "log.key")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", racing)
        followed.round()
    key = sha256((settings.keys_dir / "log.key").read_bytes()).hexdigest()
    state = read_followed(followed.directory)
    assert exchanged
    assert state is not None
    assert key not in state.files.values()


def _backed_up(running: Installation, place: Path) -> None:
    write_backup(running.settings, running.services.engine, place / "b")


def _rehearsed(running: Installation, place: Path) -> None:
    _backed_up(running, place)
    assert run(backup, "rehearse", str(place / "b")).exit_code == 0


def _followed_elsewhere(running: Installation, place: Path) -> None:
    assert run(backup, "follow", str(place / "f"), "--once").exit_code == 0


def _restored(running: Installation, place: Path) -> None:
    _backed_up(running, place)
    told = run(restore, str(place / "b"))  # refused: nothing is overwritten
    assert told.exit_code == 1


@pytest.mark.parametrize("command", [_backed_up, _rehearsed, _followed_elsewhere, _restored])
def test_what_a_killed_command_left_is_removed_by_the_next(
    running: Installation, command: Callable[[Installation, Path], None], tmp_path: Path
) -> None:
    """It has wrapped keys that an erasure may destroy; directories in use are kept."""
    data = running.settings.data_dir
    if (child := os.fork()) == 0:
        held = ExitStack()
        for what in ("follow", "restore", "rehearsal"):
            place = held.enter_context(scratch_place(data, what))
            (place / "whole.db").write_text("the erased")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (data / "restore-by-hand").mkdir()
    (left,) = data.glob("rehearsal-*.scratch")
    with scratch_place(data, "restore") as used:
        assert not left.exists()
        (left := data / left.name).mkdir()
        command(running, tmp_path)
        assert list(data.glob("*.scratch")) == [used]
    assert not list(data.glob("*.scratch"))
    assert (data / "restore-by-hand").is_dir()


def _refuse(running: Installation, directory: Path, keys: Path) -> None:
    with following(running.settings, running.services.engine, directory, keys):
        pass


def test_a_piece_that_rotted_is_written_again(followed: Following, tmp_path: Path) -> None:
    name = sorted(followed.pieces())[0]
    _flip(followed.directory / PIECES / name)
    file = next((followed.directory / "artifacts").iterdir())
    _flip(file)
    settings = followed.installed.settings
    with pytest.raises(BackupError, match="not the file that was backed up"):
        comes_back(settings, followed.directory, tmp_path / "1")
    follower = DatabaseFollower(
        settings, followed.follower.connection, followed.follower.folder
    )
    assert follower.run() is not None
    assert comes_back(settings, followed.directory, tmp_path / "2") == set()


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("gone", [PIECES, "artifacts", "manifest.json"])
def test_what_went_away_while_it_follows_is_written_again(
    followed: Following, gone: str, idle: bool, tmp_path: Path
) -> None:
    path = followed.directory / gone
    if gone == PIECES:
        path = path / sorted(followed.named())[0]
    elif path.is_dir():
        path = sorted(path.iterdir())[0]
    path.unlink()
    asked = set() if idle else {ask(followed.installed, "r1")}
    followed.round()
    assert comes_back(followed.installed.settings, followed.directory, tmp_path / "1") == asked
    assert followed.follower.run() is None


def _flip(path: Path) -> None:
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))


def _piece_changed(directory: Path, state: dict[str, Any]) -> None:
    _flip(directory / PIECES / state["pieces"][-1])


def _piece_missing(directory: Path, state: dict[str, Any]) -> None:
    (directory / PIECES / state["pieces"][0]).unlink()


def _file_changed(directory: Path, state: dict[str, Any]) -> None:
    _flip(directory / sorted(state["files"])[0])


def _cut(directory: Path, state: dict[str, Any]) -> None:
    state["pieces"] = state["pieces"][:1]


def _not_a_database(directory: Path, state: dict[str, Any]) -> None:
    body = bytes(range(256))
    name = sha256(body).hexdigest()
    (directory / PIECES / name).write_bytes(body)
    state["pieces"] = [name]


def _elsewhere(directory: Path, state: dict[str, Any]) -> None:
    state["pieces"] = ["../manifest.json"]


def _file_elsewhere(directory: Path, state: dict[str, Any]) -> None:
    state["files"]["artifacts/../../x"] = "00" * 32


def _wrong_types(directory: Path, state: dict[str, Any]) -> None:
    state["files"] = ["artifacts/x"]


def _no_time(directory: Path, state: dict[str, Any]) -> None:
    state["at"] = 1e99


def _another_log(directory: Path, state: dict[str, Any]) -> None:
    state["size"] += 1


def _with_schema(directory: Path, state: dict[str, Any], *statements: str) -> None:
    """Change the database in the pieces."""
    whole = directory / "whole.db"
    whole.write_bytes(
        b"".join((directory / PIECES / one).read_bytes() for one in state["pieces"])
    )
    with closing(sqlite3.connect(whole)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
        database.execute("PRAGMA journal_mode=DELETE")
    body = whole.read_bytes()
    pieces = [body[start : start + PIECE] for start in range(0, len(body), PIECE)]
    state["pieces"] = [sha256(piece).hexdigest() for piece in pieces]
    for name, piece in zip(state["pieces"], pieces, strict=True):
        (directory / PIECES / name).write_bytes(piece)


NONCES = "SELECT 'x' || n AS keyid, 'x' || n AS nonce, '2999-01-01 00:00:00' AS expires_at"


def _view(directory: Path, state: dict[str, Any]) -> None:
    rows = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 9)"
    view = f"CREATE VIEW used_nonces AS {rows} {NONCES} FROM c"
    _with_schema(directory, state, "DROP TABLE used_nonces", view)


def _computed_column(directory: Path, state: dict[str, Any]) -> None:
    table = (
        "CREATE TABLE used_nonces (keyid VARCHAR, expires_at DATETIME, "
        "nonce VARCHAR AS (replace(hex(zeroblob(9)), '00', keyid)))"
    )
    _with_schema(directory, state, "DROP TABLE used_nonces", table)


def _long_piece(directory: Path, state: dict[str, Any]) -> None:
    body = b"".join((directory / PIECES / one).read_bytes() for one in state["pieces"])
    state["pieces"] = [sha256(body).hexdigest()]
    (directory / PIECES / state["pieces"][0]).write_bytes(body)


def _another_schema(directory: Path, state: dict[str, Any]) -> None:
    state["schema"] = "9999"


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_piece_changed, "is missing or not the file that was backed up"),
        (_piece_missing, "is missing or not the file that was backed up"),
        (_file_changed, "is missing or not the file that was backed up"),
        (_cut, "no database of this version"),
        (_not_a_database, "no database of this version"),
        (_elsewhere, "is damaged"),
        (_file_elsewhere, "is damaged"),
        (_wrong_types, "is damaged"),
        (_no_time, "is damaged"),
        (_another_log, "other rows than its manifest says"),
        (_view, "no database of this version"),
        (_computed_column, "no database of this version"),
        (_long_piece, "is missing or not the file that was backed up"),
        (_another_schema, "restore it with the version that wrote it"),
    ],
)
def test_what_was_changed_is_refused(
    followed: Following,
    plant: Callable[[Path, dict[str, Any]], None],
    words: str,
    tmp_path: Path,
) -> None:
    path = followed.directory / "manifest.json"
    state = json.loads(path.read_bytes())
    plant(followed.directory, state)
    path.write_text(json.dumps(state))
    with pytest.raises(BackupError, match=words):
        comes_back(followed.installed.settings, followed.directory, tmp_path / "new")
    new = Settings(data_dir=tmp_path / "new" / "data")
    assert not (new.data_dir / "artifacts").exists()
    assert not list(new.data_dir.glob("*.scratch"))


def test_a_manifest_that_needs_more_than_the_disk_has_is_refused(
    followed: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker with the directory names one piece very often."""
    path = followed.directory / "manifest.json"
    state = json.loads(path.read_bytes())
    state["pieces"] += state["pieces"][-1:] * 99
    path.write_text(json.dumps(state))
    free = 2 * PIECE * len(state["pieces"]) - 1
    honest = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: honest._replace(free=free))
    with pytest.raises(BackupError, match=r"MiB beside .* free space there"):
        comes_back(followed.installed.settings, followed.directory, tmp_path / "new")


def test_a_sparse_manifest_is_not_read_whole(followed: Following, tmp_path: Path) -> None:
    os.truncate(followed.directory / "manifest.json", 1 << 40)  # of nothing
    with pytest.raises(BackupError, match="is damaged"):
        comes_back(followed.installed.settings, followed.directory, tmp_path / "new")


def test_a_sparse_artifact_is_copied_again_and_not_hashed(
    followed: Following, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = next((followed.directory / "artifacts").iterdir())
    os.truncate(file, 1 << 43)
    hashed: list[str] = []

    def watched(directory: Folder, name: str, digest: str) -> bool:
        hashed.append(name)
        return has_digest(directory, name, digest)

    monkeypatch.setattr("app.backup.round.has_digest", watched)
    settings, old = followed.installed.settings, followed.follower
    assert DatabaseFollower(settings, old.connection, old.folder).run() is not None
    assert file.name not in hashed
    assert comes_back(settings, followed.directory, tmp_path / "1") == set()


def test_rows_that_take_more_than_the_database_are_refused(
    followed: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, pages that form a cycle give endless rows."""
    monkeypatch.setattr("app.backup.pieces.EXPANSION", 0)
    with pytest.raises(BackupError, match="no database of this version"):
        comes_back(followed.installed.settings, followed.directory, tmp_path / "new")


def test_a_directory_is_of_one_follower_and_one_log(
    followed: Following, tmp_path: Path
) -> None:
    settings, engine = followed.installed.settings, followed.installed.services.engine

    def refused(directory: Path, words: str, settings: Settings = settings) -> None:
        with (
            pytest.raises(BackupError, match=words),
            following(settings, engine, directory),
        ):
            pass

    refused(followed.directory, "another process follows into")
    write_backup(settings, engine, tmp_path / "b")
    refused(tmp_path / "b", "cannot be followed into")
    refused(settings.data_dir, "has other files")
    other = settings.model_copy(update={"origin": "another.test/log"})
    refused(followed.directory, f"has followed the log {settings.origin}", other)
    assert {path.name for path in tmp_path.glob("b/*")} == {
        "artifacts", "database.jsonl", "manifest.json",
    }  # fmt: skip


def test_a_database_or_a_directory_that_went_away_is_no_idle_round(
    followed: Following, tmp_path: Path
) -> None:
    followed.directory.rename(tmp_path / "unmounted")
    with pytest.raises(BackupError, match="is gone: mount its disk"):
        followed.follower.run()
    (tmp_path / "unmounted").rename(followed.directory)
    assert followed.follower.run() is None
    ask(followed.installed, "r1")
    (followed.directory / PIECES).rename(tmp_path / "pieces")
    with pytest.raises(
        BackupError, match="No such file or directory: the previous state was kept"
    ):
        followed.follower.run()
    (tmp_path / "pieces").rename(followed.directory / PIECES)
    assert followed.follower.run() is not None
    database = Path(str(followed.installed.services.engine.url.database))
    database.rename(tmp_path / "old.db")
    shutil.copyfile(tmp_path / "old.db", database)
    with pytest.raises(BackupError, match="was exchanged"):
        followed.follower.run()


def test_a_log_that_was_set_back_replaces_nothing(followed: Following) -> None:
    """The database was replaced by an older one, so the followed state is kept."""
    before = (followed.directory / "manifest.json").read_bytes()
    ask(followed.installed, "r1")
    guard = SigningGuard(followed.installed.settings.keys_dir / GUARD)
    held = guard.read()
    with guard.path.open("ab") as file:
        later = Checkpoint(held.origin, held.size + 7, bytes(32))
        file.write(format_state(later))
    with pytest.raises(RolledBackError):
        followed.follower.run()
    assert (followed.directory / "manifest.json").read_bytes() == before


def test_a_database_of_a_newer_lethe_is_not_followed(followed: Following) -> None:
    with followed.installed.services.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    before = (followed.directory / "manifest.json").read_bytes()
    with pytest.raises(SchemaError, match="was migrated"):
        followed.follower.run()
    assert (followed.directory / "manifest.json").read_bytes() == before


def test_what_is_signed_while_a_backup_begins_is_no_fork(
    running: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = storage.read_size

    def busy(session: Session) -> int:
        size = honest(session)
        monkeypatch.setattr(storage, "read_size", honest)
        ask(running, "r1")
        return size

    monkeypatch.setattr(storage, "read_size", busy)
    made = write_backup(running.settings, running.services.engine, tmp_path / "b")
    assert made.size < running.services.ledger.latest().size


class EndedError(Exception):
    """Ends an endless loop."""


def test_rounds_follow_each_other_and_say_when(
    running: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Round] = []
    idle = iter(range(1000))  # rounds without new commits

    def noted(settings: Settings, beat: Beat) -> None:
        assert next(idle, None) is not None, "what was committed is not seen"
        write_beat(settings, beat)

    monkeypatch.setattr("app.backup.follower.write_beat", noted)

    def told(one: Round) -> None:
        done.append(one)
        if len(done) == 2:
            raise EndedError
        ask(running, "r1")

    with pytest.raises(EndedError):
        follow(running.settings, running.services.engine, tmp_path / "f", 0.01, told)
    first, second = done
    assert second.state.size == first.state.size + 1
    (beat,) = read_beats(running.settings)
    assert beat.directory == str(tmp_path / "f")
    begun = datetime.fromisoformat(first.state.at)
    assert begun - timedelta(minutes=1) < datetime.fromisoformat(beat.at) <= begun


def test_late_followers_are_counted(
    running: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "FRESH_S", 0.0)

    def measured() -> dict[str, Any]:
        found = {one.name: one.samples for one in metrics.read(running.services)}
        return {name: dict(found[name]) for name in found if "follower" in name}

    assert measured() == {"lethe_follower_lag_seconds": {}, "lethe_followers_late": {(): 0}}
    write_beat(running.settings, Beat("/a", "2100-01-01T00:00:00+00:00", 10))
    assert measured()["lethe_followers_late"] == {(): 0}
    write_beat(running.settings, Beat("/b", "2020-01-01T00:00:00+00:00", 10))
    assert measured()["lethe_followers_late"] == {(): 1}
    assert measured()["lethe_follower_lag_seconds"][()] > 1e8
    for path in (running.settings.data_dir / FOLDER).glob("*.json"):
        path.write_text("[")
    assert measured()["lethe_followers_late"] == {(): 2}
