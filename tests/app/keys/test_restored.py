"""A backup from before rotations is restored with the newer keys, and the log continues."""

import shutil
from pathlib import Path

import pytest

from app.cli.backup import backup, restore
from app.keys.log import logged_keys
from app.keys.rotate import rotate_issuer
from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger.startup import create_ml_dsa
from app.settings import Settings
from lethe.certificates.trust_root import parse_trust_root
from lethe.cli.log import log
from lethe.log.follow import mirror_log
from lethe.log.key_changes import LOG, ML_DSA
from lethe.signing.keys import PrivateKey
from tests.app.cli.test_backup import elsewhere, point_at, run
from tests.app.keys.test_issuer import certified, verdict
from tests.app.keys.test_log_key import ids, served, signers, trust
from tests.app.ledger.samples import append, entry
from tests.installation import install

__all__ = ["elsewhere"]


def test_keys_of_after_a_backup_go_on_with_it(
    settings: Settings,
    fitted: PrivateKey,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new = settings.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "new"})
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    create_ml_dsa(settings)
    with install(settings) as made:
        made.caller.key = fitted
        ledger = made.services.ledger
        old = ledger.verifier
        before = certified(made, "r1")
        assert run(backup, "new", str(tmp_path / "b")).exit_code == 0
        rotate_issuer(settings, ledger)
        for role in (LOG, ML_DSA):
            rotate_log(settings, ledger, role=role)
            revoke_log(settings, ledger, "superseded", role=role)
        after = certified(made, "r2")
        mirror_log(served(made), logged_keys(ledger), tmp_path / "mirror")
    shutil.copytree(settings.keys_dir, new.keys_dir)
    point_at(new, monkeypatch)
    restored = run(restore, str(tmp_path / "b"))
    assert restored.exit_code == 0, (restored.output, restored.exception)
    recovered = run(log, "recover", str(tmp_path / "mirror"))
    assert recovered.exit_code == 0, (recovered.output, recovered.exception)
    with install(new) as again:
        again.caller.key = fitted
        said = parse_trust_root(trust(again), old)
        assert [one.keyid for one in said.issuers.keys] == ["issuer-1", "issuer-2"]
        for data in (before, after):
            assert verdict(data, said).result == "PASS"
        for role in (LOG, ML_DSA):
            rotate_log(new, again.services.ledger, role=role)
            revoke_log(new, again.services.ledger, "superseded", role=role)
        chains = [logged_keys(again.services.ledger, role=role).keys for role in (LOG, ML_DSA)]
        assert [len(chain) for chain in chains] == [3, 3]
        assert parse_trust_root(trust(again), old).log.keys == chains[0]
        append(again.services.ledger, entry(0))
        assert signers(again.services.ledger) == ids(*(c[-1].verifier for c in chains))
        assert again.caller.http.get("/readyz").status_code == 200
