"""A rotation never announces a key that somebody planted beside the log's key."""

from collections.abc import Callable
from typing import Any

import pytest

from app.hsm.errors import KeyAwayError
from app.keys.issuer import NEXT_KEY as ISSUER_NEXT
from app.keys.issuer import signing_issuer
from app.keys.rotate import rotate_issuer
from app.keys.rotate_log import rotate_log
from app.keys.rotate_master import revoke_master, rotate_master
from app.ledger.key_files import KeyPlaceError
from app.ledger.log_files import (
    NEXT_KEY,
    RoleFiles,
    load_signer,
    make_ml_dsa,
)
from app.ledger.startup import ISSUER_KEY, create_ml_dsa, load_ledger
from app.vault.master import NEXT_FILE, create_key, read_key
from app.vault.root import open_root, read_roots
from lethe.log.key_changes import ML_DSA
from lethe.signing.keys import generate_key, private_pem
from tests.app.keys.test_log_key import ids, signers
from tests.app.keys.test_master_key import findings
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


def rotate_second(settings: Any, ledger: Any) -> object:
    create_ml_dsa(settings)
    started = load_ledger(settings, ledger.engine)
    append(started, entry(0))
    return rotate_log(settings, started, role=ML_DSA)


ROTATIONS = [
    (NEXT_KEY, rotate_log),
    (RoleFiles(ML_DSA).next_key, rotate_second),
    (ISSUER_NEXT, rotate_issuer),
    (NEXT_FILE, rotate_master),
]


@pytest.mark.parametrize(
    "content", [b"", b"x\n", b"pkcs11:token=lethe;object=x\n", b"pkcs11:?\n"]
)
@pytest.mark.parametrize(("name", "rotate"), ROTATIONS)
def test_what_is_no_key_holds_up_no_rotation(
    ready: Installation, name: str, rotate: Callable[..., object], content: bytes
) -> None:
    (ready.settings.keys_dir / name).write_bytes(content)
    rotate(ready.settings, ready.services.ledger)
    assert not findings(ready)


@pytest.mark.parametrize(("name", "rotate"), ROTATIONS)
def test_a_directory_in_the_place_of_the_next_key_is_named(
    ready: Installation, name: str, rotate: Callable[..., object]
) -> None:
    (ready.settings.keys_dir / name).mkdir()
    with pytest.raises(KeyPlaceError, match=f"{name} is a directory: remove it"):
        rotate(ready.settings, ready.services.ledger)
    (ready.settings.keys_dir / name).rmdir()
    rotate(ready.settings, ready.services.ledger)
    assert not findings(ready)


def test_a_lost_issuers_key_is_replaced_whatever_lies_there(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    (settings.keys_dir / ISSUER_KEY).unlink()
    (settings.keys_dir / ISSUER_NEXT).write_text("pkcs11:token=lethe;object=x\n")
    with pytest.raises(KeyAwayError, match="If no rotation wrote this file, remove it"):
        rotate_issuer(settings, ledger)
    (settings.keys_dir / ISSUER_NEXT).write_text("x")
    rotate_issuer(settings, ledger)
    assert not findings(ready)
