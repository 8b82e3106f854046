"""A backup from before a model was deleted does not bring it back."""

import shutil
from pathlib import Path

import pytest
from sqlmodel import col, select

from app.cli.backup import backup, restore
from app.ledger.guard import RolledBackError
from app.ledger.sequencer import Ledger
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.journal import fsck_journal
from app.service.context import open_services
from app.service.models import deletion
from app.settings import Settings
from app.vault.journal import FILE as JOURNAL
from lethe.cli.log import log
from lethe.signing.keys import PrivateKey
from models import Artifact, Model
from tests.app.cli.test_backup import elsewhere, mirror, point_at, rows, run, stored
from tests.installation import install
from tests.small import MODEL, ROWS

__all__ = ["elsewhere"]  # a fixture


@pytest.mark.parametrize("journal", ["of now", "of the backup"])
def test_it_is_deleted_again(
    settings: Settings,
    ledger: Ledger,
    fitted: PrivateKey,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    journal: str,
) -> None:
    new = settings.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "new"})
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    before = (settings.keys_dir / JOURNAL).read_bytes()
    with install(settings) as installed:
        assert run(backup, "new", str(tmp_path / "b")).exit_code == 0
        deletion.delete(installed.services, MODEL)
        mirror(installed, tmp_path / "m")
        installed.check()
    shutil.copytree(settings.keys_dir, new.keys_dir)
    if journal == "of the backup":
        (new.keys_dir / JOURNAL).write_bytes(before)
    point_at(new, monkeypatch)
    assert run(restore, str(tmp_path / "b")).exit_code == 0
    assert len(stored(new)) == ROWS  # the planted violation: until the log is back
    with pytest.raises(RolledBackError):
        open_services(new)
    done = run(log, "recover", str(tmp_path / "m"))
    assert done.exit_code == 0, (done.output, done.exception)
    assert f"model {MODEL} was deleted after the backup" in done.output
    assert stored(new) == set()
    with rows(new) as session:
        assert session.exec(select(Model.state)).one() == "deleted"
        sealed = select(Artifact.kind).where(col(Artifact.wrapped_key).is_not(None))
        assert session.exec(sealed).all() == []
    with install(new) as installed:
        answer = installed.caller.operator("GET", f"/v1/models/{MODEL}/versions/1/artifact")
        assert answer.status_code == 410
        assert installed.caller.register_model().status_code == 410
        report = FsckReport()
        fsck_journal(
            installed.services.engine,
            installed.services.root_secret,
            installed.services.journal,
            report,
        )
        lacks = [one.detail for one in report.findings]
        if journal == "of now":
            installed.check()
            assert lacks == []
        else:
            assert len(lacks) == 1
            assert f"lacks the deletion of model {MODEL}" in lacks[0]
