"""The log's entries must name the signing keys, whatever other key files say."""

from contextlib import suppress

import pytest

from app.keys.fsck import fsck_keys
from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger.entry_macs import KeyMissingError
from app.ledger.log_files import (
    LOG_KEY,
    NEXT_KEY,
    NEXT_VKEY,
    RoleFiles,
    load_cosigner,
    load_signer,
    make_ml_dsa,
)
from app.ledger.startup import create_ml_dsa, load_ledger
from app.problems import ConflictError
from app.reconcile.findings import FsckReport
from lethe.log.key_changes import LOG, ML_DSA
from lethe.signing.keys import generate_key, private_pem
from tests.app.keys.test_log_key import ids, signers
from tests.app.ledger.samples import append, entry
from tests.installation import Installation


@pytest.mark.parametrize("place", ["beside", "instead"])
def test_nothing_is_signed_by_a_key_that_no_entry_names_though_other_files_vouch_for_it(
    ready: Installation, place: str
) -> None:
    settings, ledger, keys = ready.settings, ready.services.ledger, ready.settings.keys_dir
    old = ledger.verifier
    name = NEXT_KEY if place == "beside" else LOG_KEY
    (keys / name).write_text(private_pem(generate_key("ed25519")))
    planted = load_signer(settings, name).verifier
    vouching = (NEXT_VKEY, planted) if place == "beside" else (RoleFiles(LOG).previous, old)
    (keys / vouching[0]).write_text(f"{vouching[1].vkey}\n")
    with suppress(KeyMissingError):
        append(ledger, entry(0))
    assert ids(planted)[0] not in signers(ledger)
    with pytest.raises(KeyMissingError, match="no entry of the log names"):
        load_ledger(settings, ready.services.engine)
    assert ready.caller.http.get("/readyz").status_code == 503
    report = FsckReport()
    fsck_keys(settings, ledger, report)
    assert [one.check for one in report.findings] == ["log-key"]
    assert planted.key_id.hex() not in signers(ledger)


def test_a_log_key_that_was_revoked_does_not_sign_on_alone(ready: Installation) -> None:
    settings, ledger, keys = ready.settings, ready.services.ledger, ready.settings.keys_dir
    pem = (keys / LOG_KEY).read_text()
    rotate_log(settings, ledger)
    revoke_log(settings, ledger, "key-compromise")
    (keys / LOG_KEY).write_text(pem)  # the checkpoint over the revocation has its signature too
    with pytest.raises(KeyMissingError, match="revoked"):
        load_ledger(settings, ready.services.engine)


def test_the_end_of_an_overlap_puts_no_other_key_in_its_place(ready: Installation) -> None:
    settings, keys, files = ready.settings, ready.settings.keys_dir, RoleFiles(ML_DSA)
    create_ml_dsa(settings)
    ledger = load_ledger(settings, ready.services.engine)
    append(ledger, entry(0))
    with pytest.raises(ConflictError, match="only one key of the log signs"):
        revoke_log(settings, ledger, "superseded", role=ML_DSA)
    rotate_log(settings, ledger, role=ML_DSA)
    revoke_log(settings, ledger, "superseded", role=ML_DSA)
    restored = make_ml_dsa(settings, files.key).verifier
    for put in (False, True):
        if put:
            make_ml_dsa(settings, files.next_key)
        with pytest.raises(KeyMissingError, match="that the log has"):
            revoke_log(settings, ledger, "superseded", role=ML_DSA)
        assert load_cosigner(settings, files.key).verifier == restored
    assert (keys / files.next_key).exists()
