"""`lethe backup rehearse`: complete restores, losses, and tampered backups."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from app.cli.backup import backup
from app.ledger.guard import SigningGuard
from app.ledger.startup import GUARD
from app.service.desk import people
from lethe.identity import Identity, digests
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from models.database.session import make_engine
from tests.app.cli.test_backup import detail, erase, mirror, run
from tests.app.cli.test_backup import elsewhere as elsewhere
from tests.app.ledger.samples import stored_leaves
from tests.installation import Installation
from tests.small import MODEL


@pytest.fixture
def kept(running: Installation, tmp_path: Path) -> Path:
    """A backup, with a certificate in it, and a copy of the keys beside it."""
    erase(running, "r1")
    made = run(backup, "new", str(tmp_path / "b"), "--keys", str(tmp_path / "k"))
    assert made.exit_code == 0, made.output
    return tmp_path / "b"


def rehearse(kept: Path, *arguments: str) -> Result:
    return run(backup, "rehearse", str(kept), *arguments)


def passed(result: Result) -> list[str]:
    """Return the losses that a passing rehearsal lists."""
    assert result.exit_code == 0, (result.output, result.exception)
    assert "PASS  the backup of" in result.output
    return [line for line in result.output.splitlines() if " lost: " in line]


def test_a_fresh_backup_comes_back_whole(
    running: Installation, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ledger.log_files.sign_checkpoint", None)  # nothing is signed
    held = SigningGuard(running.settings.keys_dir / GUARD).read()
    assert passed(rehearse(kept)) == []
    assert SigningGuard(running.settings.keys_dir / GUARD).read() == held
    assert not list(running.settings.data_dir.glob("rehearsal-*"))
    running.check()


def test_what_came_after_the_backup_is_lost_and_said(
    running: Installation, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase(running, "r2")
    assert "were signed after this backup" in detail(rehearse(kept))
    mirror(running, tmp_path / "m")
    held = SigningGuard(running.settings.keys_dir / GUARD).read()
    signed: list[Checkpoint] = []

    def sign(checkpoint: Checkpoint, *signers: Any, **more: Any) -> str:
        signed.append(checkpoint)
        return sign_checkpoint(checkpoint, *signers, **more)

    monkeypatch.setattr("app.ledger.log_files.sign_checkpoint", sign)
    told = rehearse(kept, "--mirror", str(tmp_path / "m"))
    assert passed(told)
    assert "damaged" not in told.output
    assert {*signed} <= {held}  # a second history under the log's key would be a fork
    assert SigningGuard(running.settings.keys_dir / GUARD).read() == held
    running.check()


def test_identities_that_are_erased_again_are_no_loss(
    running: Installation, tmp_path: Path
) -> None:
    ann = Identity("email", digests("email", "ann@example.org"))
    assert people.import_identities(running.services, MODEL, [("r2", ann)], "desk") == 1
    assert run(backup, "new", str(tmp_path / "b")).exit_code == 0
    erase(running, "r2")
    mirror(running, tmp_path / "m")
    told = rehearse(tmp_path / "b", "--mirror", str(tmp_path / "m"))
    assert passed(told)
    assert "restore" not in "".join(passed(told))


def test_copies_of_the_keys_need_a_mirror(
    running: Installation, kept: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "k"
    assert "give --mirror" in detail(rehearse(kept, "--keys", str(keys)))
    mirror(running, tmp_path / "m")
    assert passed(rehearse(kept, "--keys", str(keys), "--mirror", str(tmp_path / "m"))) == []
    (keys / "entries.key").write_bytes(bytes(range(32)))
    other = rehearse(kept, "--keys", str(keys), "--mirror", str(tmp_path / "m"))
    assert other.exit_code != 0
    shutil.rmtree(keys)
    keys.mkdir()
    assert "not a directory of keys" in detail(rehearse(kept, "--keys", str(keys)))


def test_with_a_journal_from_before_an_erasure_it_says_what_that_costs(
    running: Installation, kept: Path, tmp_path: Path
) -> None:
    """The keys were copied with the backup, and a record was erased since."""
    erase(running, "r2")
    mirror(running, tmp_path / "m")
    held = SigningGuard(running.settings.keys_dir / GUARD).read()
    arguments = "--keys", str(tmp_path / "k"), "--mirror", str(tmp_path / "m")
    refused = detail(rehearse(kept, *arguments))
    assert "lacks 1 requests that the log has as executed" in refused
    assert "--journal-incomplete quarantines every model" in refused
    told = rehearse(kept, *arguments, "--journal-incomplete")
    assert passed(told)
    assert f"quarantined: model {MODEL}, until `lethe model mend {MODEL}`" in told.output
    newest = rehearse(kept, *arguments[2:])  # with the journal in use
    assert passed(newest)
    assert "quarantined: model" in newest.output  # its head is of records that were erased
    assert SigningGuard(running.settings.keys_dir / GUARD).read() == held
    running.check()


def test_a_rehearsal_takes_nothing_out_of_service_where_nothing_was_erased(
    running: Installation, kept: Path
) -> None:
    assert "quarantined" not in rehearse(kept).output


def test_a_database_that_cannot_be_one_is_refused_without_its_password(kept: Path) -> None:
    for url in ("nonsense-M9dKxPUQ", "mysql://u:M9dKxPUQ@db/d", "postgresql://u@db:M9dKxPUQ/d"):
        told = rehearse(kept, "--database-url", url)
        assert told.exit_code == 2
        assert "--database-url" in told.output
        assert "M9dKxPUQ" not in told.output


def test_a_rehearsal_in_a_database_of_its_own_leaves_it(
    running: Installation, kept: Path, elsewhere: str
) -> None:
    told = rehearse(kept, "--database-url", elsewhere)
    assert passed(told) == []
    assert "the database still has everything: drop it" in told.output
    engine = make_engine(elsewhere)
    assert stored_leaves(engine) == stored_leaves(running.services.engine)
    engine.dispose()
    assert not list(running.settings.data_dir.glob("rehearsal-*"))
    assert "the database is not empty" in detail(rehearse(kept, "--database-url", elsewhere))
    running.check()


def _record_left_out(directory: Path) -> None:
    lines = (directory / "database.jsonl").read_bytes().splitlines(keepends=True)
    head = next(i for i, line in enumerate(lines) if line.startswith(b'{"table":"records"'))
    del lines[head + 1]
    (directory / "database.jsonl").write_bytes(b"".join(lines))


def _bit_of_a_file(directory: Path) -> None:
    path = max((directory / "artifacts").iterdir(), key=lambda one: one.stat().st_size)
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))


def _rewritten(directory: Path) -> None:
    """Update the manifest to the current files, as an attacker with the backup can."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for name in manifest["files"]:
        content = (directory / name).read_bytes()
        manifest["files"][name] = hashlib.sha256(content).hexdigest()
    lines = (directory / "database.jsonl").read_bytes().splitlines()
    manifest["rows"] = sum(not line.startswith(b"{") for line in lines)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("plant", [_record_left_out, _bit_of_a_file])
@pytest.mark.parametrize("rewritten", [False, True])
def test_a_changed_backup_is_damaged(
    running: Installation, kept: Path, plant: Callable[[Path], None], rewritten: bool
) -> None:
    plant(kept)
    if rewritten:
        _rewritten(kept)
    told = rehearse(kept)
    assert told.exit_code == 1
    if rewritten:
        assert "FAIL  the backup of" in told.output
        assert "      damaged: " in told.output
    else:
        assert "not the file that was backed up" in detail(told)
    running.check()
