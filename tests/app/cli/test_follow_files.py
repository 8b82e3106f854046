"""`lethe backup follow` beside PostgreSQL: its files fit the archive at the named moment."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlmodel import Session

from app.backup.archive import copy_artifact
from app.backup.check import fsck_installation
from app.backup.errors import BackupError
from app.backup.files_follower import FilesFollower
from app.backup.folder import Folder
from app.backup.follower import following
from app.backup.pieces import Followed, read_followed
from app.backup.restore import restore_files
from app.backup.round import BaseFollower
from app.cli.backup import backup, restore
from app.cli.migrate import migrate
from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.cli.log import log
from lethe.signing.keys import PrivateKey
from models.database.session import opened_engine
from models.database.types import clock
from tests.app.cli.test_backup import detail, mirror, point_at, run
from tests.app.cli.test_point_in_time import archive_all, erase, stored
from tests.installation import Installation, install, state
from tests.servers import ArchivedPostgres, archived_postgres

ARTIFACTS = "artifacts"


def files(place: Path) -> set[str]:
    return {path.name for path in (place / ARTIFACTS).iterdir()}


def followed(directory: Path) -> Followed:
    found = read_followed(directory)
    assert found is not None
    assert found.archived
    return found


def killed(directory: Path, keys: Path, step: str) -> None:
    """Run a round that is killed at a step, in a process of its own."""
    code = "from app.cli.backup import backup; backup()"
    command = [sys.executable, "-c", code, "follow", str(directory), "--keys", str(keys)]
    done = subprocess.run(
        [*command, "--once"], env={**os.environ, "LETHE_FAULT": f"{step}=kill"}, check=False
    )
    assert done.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def server() -> Iterator[ArchivedPostgres]:
    with archived_postgres() as started:
        yield started


def test_files_and_archive_come_back_together(
    server: ArchivedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but the archive, the followed files, the copied keys and a mirror is lost."""
    settings = Settings(
        database_url=server.url,
        data_dir=tmp_path / "data",
        origin="localhost/followed",
        decide="at-once",
    )
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    assert run(migrate).exit_code == 0
    assert run(log, "init").exit_code == 0
    directory, keys, mirrored = tmp_path / "f", tmp_path / "k", tmp_path / "m"
    follow = (str(directory), "--keys", str(keys), "--once")
    with install(settings) as installed:
        installed.ready()
        token, key = installed.caller.token, installed.caller.key
        server.back_up()
        first = erase(installed, "c1")
        told = run(backup, "follow", *follow)
        assert told.exit_code == 0, (told.output, told.exception)
        assert f"complete up to {followed(directory).at}" in told.output
        assert "not included: the rows, which PostgreSQL archives" in told.output
        second = erase(installed, "c2")
        before = followed(directory)
        killed(directory, keys, "follow.written")
        assert followed(directory) == before, "the last state stays whole"
        killed(directory, keys, "follow.committed")
        state_at = followed(directory)
        assert state_at.at > before.at
        assert set(state_at.files) <= {f"{ARTIFACTS}/{one}" for one in files(directory)}
        held = stored(installed)
        # After the last round, so that its files are lost.
        assert installed.caller.register_model(ref="later").status_code == 201
        installed.drain()
        mirror(installed, mirrored)
    archive_all(server)
    shutil.rmtree(settings.data_dir)
    assert state_at.at in detail(run(restore, str(directory)))
    rehearsal = ("rehearse", str(directory), "--keys", str(keys), "--mirror", str(mirrored))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("LETHE_DATA_DIR", str(scratch))
    assert state_at.at in detail(run(backup, *rehearsal))
    with server.recovered(at=state_at.at) as url:
        told = run(backup, *rehearsal, "--database-url", url)
        assert told.exit_code == 0, (told.output, told.exception)
        assert "PASS  the backup of" in told.output
    with server.recovered() as url:  # later than the files: some of them are missing
        told = run(backup, *rehearsal, "--database-url", url)
        assert told.exit_code == 1, told.output
        assert re.search(r"damaged: file: .*missing", told.output), told.output
    with server.recovered(at=state_at.at) as url:
        new = settings.model_copy(update={"database_url": url, "data_dir": tmp_path / "new"})
        point_at(new, monkeypatch)
        told = run(restore, str(directory), "--files", "--keys", str(keys))
        assert told.exit_code == 0, (told.output, told.exception)
        assert f"recovery_target_time = '{state_at.at}'" in told.output
        told = run(log, "recover", str(mirrored))
        assert told.exit_code == 0, (told.output, told.exception)
        with install(new) as installed:
            installed.caller.token, installed.caller.key = token, key
            assert (state(installed, first), state(installed, second)) == ("certified",) * 2
            assert installed.caller.operator("GET", "/v1/models/later").status_code == 404
            report = fsck_installation(new, installed.services.ledger)
            assert "file" not in {one.check for one in report.findings}, report.findings
            assert report.files
            assert stored(installed) == held
            assert state(installed, erase(installed, "c3")) == "certified"


@pytest.fixture
def beside(
    settings: Settings, ledger: Ledger, fitted: PrivateKey, engine: Engine, tmp_path: Path
) -> Iterator[tuple[Installation, BaseFollower, Path]]:
    """An installation on PostgreSQL and its follower, after the first round."""
    with install(settings) as installed:
        installed.caller.key = fitted
        directory = tmp_path / "f"
        with following(settings, engine, directory) as follower:
            assert isinstance(follower, FilesFollower)
            assert follower.run() is not None
            yield installed, follower, directory


postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@postgresql
def test_a_round_takes_what_is_new_and_drops_what_was_destroyed(
    beside: tuple[Installation, BaseFollower, Path],
) -> None:
    installed, follower, directory = beside
    data = installed.settings.data_dir
    before = followed(directory)
    assert files(directory) == files(data)
    assert follower.run() is None, "nothing was committed"
    installed.caller.erase_records("r1")
    installed.drain()
    assert follower.run() is not None
    assert followed(directory).at > before.at
    assert files(directory) == files(data)
    gone = {Path(one).name for one in before.files} - files(data)
    assert gone, "the erasure destroyed files"
    assert not gone & files(directory)
    left = sorted(files(directory))[0]
    (directory / ARTIFACTS / left).unlink()
    assert follower.run() is not None
    assert left in files(directory), "what is missing is written again"


@postgresql
def test_a_commit_without_files_moves_the_moment(
    beside: tuple[Installation, BaseFollower, Path],
) -> None:
    installed, follower, directory = beside
    before = followed(directory)
    installed.caller.erase_records("r1")  # acknowledged, and not executed
    assert follower.run() is not None
    after = followed(directory)
    assert after.files == before.files
    assert after.at > before.at
    assert after.size > before.size


@postgresql
def test_a_file_that_is_removed_meanwhile_is_kept_or_the_moment_is_taken_again(
    beside: tuple[Installation, BaseFollower, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, follower, directory = beside
    source = installed.settings.data_dir / ARTIFACTS
    known, new = sorted(files(directory))[0], "00000000-0000-4000-8000-000000000000"
    (source / new).write_bytes(b"a draft")
    copied: list[str] = []

    def vanishing(path: Path, folder: Folder) -> str | None:
        copied.append(path.name)
        path.unlink()  # before it is copied, as at a job's end
        (source / known).unlink(missing_ok=True)  # copied by an earlier round
        return copy_artifact(path, folder)

    monkeypatch.setattr("app.backup.round.copy_artifact", vanishing)
    stamps: list[datetime] = []

    def noted(session: Session) -> datetime:
        stamps.append(clock(session))
        return stamps[-1]

    monkeypatch.setattr("app.backup.files_follower.clock", noted)
    done = follower.run()
    assert done is not None
    assert copied == [new]
    assert len(stamps) == 2, "a moment whose rows could name the lost file is not used"
    assert done.state.at == stamps[-1].isoformat()
    assert f"{ARTIFACTS}/{new}" not in done.state.files


@postgresql
def test_a_file_of_the_moment_is_kept_one_round_longer(
    beside: tuple[Installation, BaseFollower, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, follower, directory = beside
    installed.caller.erase_records("r1")
    source = installed.settings.data_dir / ARTIFACTS
    gone = sorted(files(directory))[0]

    def unlinking(session: Session) -> datetime:
        now = clock(session)
        (source / gone).unlink()  # right after the moment, whose rows name it
        return now

    with monkeypatch.context() as patch:
        patch.setattr("app.backup.files_follower.clock", unlinking)
        assert follower.run() is not None
    assert f"{ARTIFACTS}/{gone}" in followed(directory).files
    assert gone in files(directory)
    assert follower.run() is not None
    assert gone not in files(directory)


@postgresql
@pytest.mark.parametrize("damage", ["file", "origin", "manifest", "target"])
def test_damaged_files_are_not_restored(
    beside: tuple[Installation, BaseFollower, Path], tmp_path: Path, damage: str
) -> None:
    installed, _, directory = beside
    new = installed.settings.model_copy(update={"data_dir": tmp_path / "new"})
    shutil.copytree(installed.settings.keys_dir, new.keys_dir)
    if damage == "file":
        (directory / ARTIFACTS / sorted(files(directory))[0]).write_bytes(b"other")
    elif damage == "target":
        shutil.copytree(directory / ARTIFACTS, new.data_dir / ARTIFACTS)
    else:
        manifest = directory / "manifest.json"
        known = json.loads(manifest.read_bytes())
        known |= {"origin": "elsewhere"} if damage == "origin" else {"archived": False}
        manifest.write_text(json.dumps(known))
    with pytest.raises(BackupError):
        restore_files(new, directory)
    assert damage == "target" or not (new.data_dir / ARTIFACTS).exists()


@postgresql
def test_a_directory_of_another_kind_of_database_is_refused(
    beside: tuple[Installation, BaseFollower, Path], tmp_path: Path
) -> None:
    installed, _, directory = beside
    with opened_engine(installed.settings.resolved_database_url) as engine:
        shutil.copytree(directory, tmp_path / "other")
        manifest = tmp_path / "other" / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_bytes()) | {"archived": False}))
        with (
            pytest.raises(BackupError, match="a database of the other kind"),
            following(installed.settings, engine, tmp_path / "other"),
        ):
            pass
