"""A key that somebody put beside the log's before a rotation is not the one it announces."""

from app.keys.issuer import NEXT_KEY as ISSUER_NEXT
from app.keys.issuer import signing_issuer
from app.keys.rotate import rotate_issuer
from app.keys.rotate_log import rotate_log
from app.keys.rotate_master import revoke_master, rotate_master
from app.ledger.log_files import (
    NEXT_KEY,
    RoleFiles,
    load_signer,
    make_ml_dsa,
)
from app.ledger.startup import create_ml_dsa, load_ledger
from app.vault.master import NEXT_FILE, create_key, read_key
from app.vault.root import open_root, read_roots
from lethe.log.key_changes import ML_DSA
from lethe.signing.keys import generate_key, private_pem
from tests.app.keys.test_log_key import ids, signers
from tests.app.ledger.samples import append, entry
from tests.installation import Installation


def test_the_log_announces_no_key_that_was_put_there(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    (settings.keys_dir / NEXT_KEY).write_text(private_pem(generate_key("ed25519")))
    planted = load_signer(settings, NEXT_KEY).verifier
    new = rotate_log(settings, ledger).key.verifier
    assert new != planted
    assert load_signer(settings, NEXT_KEY).verifier == new
    append(ledger, entry(0))
    assert signers(ledger) == ids(ledger.verifier, new)


def test_nor_a_second_key(ready: Installation) -> None:
    settings = ready.settings
    create_ml_dsa(settings)
    ledger = load_ledger(settings, ready.services.engine)
    append(ledger, entry(0))
    planted = make_ml_dsa(settings, RoleFiles(ML_DSA).next_key).verifier
    new = rotate_log(settings, ledger, role=ML_DSA).key.verifier
    assert new != planted
    assert new in ledger.signing(ML_DSA)


def test_nor_an_issuers(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    planted = generate_key("ecdsa-p256-sha256")
    (settings.keys_dir / ISSUER_NEXT).write_text(private_pem(planted))
    rotate_issuer(settings, ledger)
    assert signing_issuer(settings, ledger)[0].public_key() != planted.public_key()


def test_nor_does_the_root_secret_get_sealed_under_a_master_key_put_there(
    ready: Installation,
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    create_key(settings.keys_dir / NEXT_FILE)
    planted = read_key(settings.keys_dir / NEXT_FILE)
    rotate_master(settings, ledger)
    revoke_master(settings, ledger, "key-compromise")
    assert open_root(planted, read_roots(settings.keys_dir)) is None
    ready.check()
