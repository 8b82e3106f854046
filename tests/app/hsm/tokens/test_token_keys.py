"""Keys in a token sign what the same keys in a file sign, and what is wrong is named."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pkcs11
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from pkcs11 import Attribute, KeyType, MechanismFlag, ObjectClass
from pydantic import SecretStr

from app.hsm import sessions
from app.hsm.errors import HsmError
from app.hsm.token_keys import HsmEd25519, HsmP256, generate, open_key
from app.hsm.uri import KeyUri
from app.ledger.entry_macs import KeyMissingError
from app.ledger.log_files import LOG_KEY, load_signer
from app.ledger.startup import ISSUER_KEY, load_issuer
from app.settings import Settings
from lethe.certificates.bundle import check_envelope, sign_envelope
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.note import NoteSigner
from lethe.log.tree import EMPTY_ROOT
from lethe.signing.keys import generate_key
from tests.app.hsm.tokens.softhsm import PIN, SoftHsm

LOG, ISSUER = KeyUri("lethe", "log"), KeyUri("lethe", "issuer")


def refused(settings: Settings, uri: KeyUri) -> str:
    """Return why a key cannot be had, which never repeats the PIN."""
    with pytest.raises(HsmError) as error:
        open_key(settings, uri)
    assert PIN not in error.value.detail
    assert error.value.status == 503
    return error.value.detail


@contextmanager
def writing(settings: Settings) -> Iterator[pkcs11.Session]:
    """A session that may write, as of another program that uses the token."""
    sessions.end(settings)
    token = pkcs11.lib(settings.pkcs11_module).get_token(token_label="lethe")
    with token.open(rw=True, user_pin=PIN) as session:
        yield session
    pkcs11.lib(settings.pkcs11_module).finalize()


def test_signatures_are_those_of_the_same_key_in_a_file(
    settings: Settings, hsm: SoftHsm
) -> None:
    key = Ed25519PrivateKey.generate()
    hsm.add_key(key, "log")
    found = open_key(settings, LOG)
    assert isinstance(found, HsmEd25519)
    head = Checkpoint("log.example", 0, EMPTY_ROOT)
    notes = {sign_checkpoint(head, NoteSigner("log.example", one)) for one in (key, found)}
    assert len(notes) == 1
    assert [found.sign(data) for data in (b"", b"a" * 5000)] == [
        key.sign(data) for data in (b"", b"a" * 5000)
    ]


def test_envelopes_of_a_key_in_a_token_verify(settings: Settings, hsm: SoftHsm) -> None:
    key = generate_private_key(SECP256R1())
    hsm.add_key(key, "issuer")
    found = open_key(settings, ISSUER)
    assert isinstance(found, HsmP256)
    for number in range(20):  # r and s are shorter now and then
        payload = str(number).encode()
        envelope = sign_envelope(payload, found, "issuer-1")
        assert check_envelope(envelope, key.public_key(), "issuer-1") == payload


def test_a_pair_is_made_in_the_token_and_never_leaves_it(settings: Settings) -> None:
    generate(settings, LOG, "ed25519")
    generate(settings, ISSUER, "ecdsa-p256-sha256")
    key = open_key(settings, LOG)
    generate(settings, LOG, "ed25519")  # there is one: no second one is made
    assert open_key(settings, LOG).public_key() == key.public_key()
    with writing(settings) as session:
        for private in session.get_objects({Attribute.CLASS: ObjectClass.PRIVATE_KEY}):
            assert not private[Attribute.EXTRACTABLE]
            with pytest.raises(pkcs11.AttributeSensitive):
                private[Attribute.VALUE]
    data = b"after the other program"
    assert isinstance(key, HsmEd25519)
    key.public_key().verify(key.sign(data), data)


class Counted:
    """A library or a token of it that notes which tokens are opened."""

    def __init__(self, real: Any, opened: list[str]) -> None:
        self.real, self.opened = real, opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def get_tokens(self, **named: object) -> list["Counted"]:
        return [Counted(token, self.opened) for token in self.real.get_tokens(**named)]

    def open(self, **given: object) -> Any:
        self.opened.append(self.real.label)
        return self.real.open(**given)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the labels of the tokens that this process opens from now on."""
    opened: list[str] = []
    library = pkcs11.lib
    monkeypatch.setattr(pkcs11, "lib", lambda module: Counted(library(module), opened))
    return opened


def test_a_wrong_pin_is_tried_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(settings, LOG, "ed25519")
    sessions.end(settings)
    pin = tmp_path / "pin"
    pin.write_text("000000\n")
    uri = KeyUri("lethe", "log", pin_source=pin)
    assert "refuses the PIN" in refused(settings, uri)

    tries = counted(monkeypatch)
    assert "refuses the PIN" in refused(settings, uri)
    assert tries == []  # a token locks itself after some
    pin.write_text(f"{PIN}\n")
    assert isinstance(open_key(settings, uri), HsmEd25519)
    assert tries == ["lethe"]


def test_what_is_missing_is_named(settings: Settings, hsm: SoftHsm, tmp_path: Path) -> None:
    assert "lacks the private or the public half of the key log" in refused(settings, LOG)
    assert "there is no token other" in refused(settings, KeyUri("other", "log"))
    generate(settings, LOG, "ed25519")
    absent = KeyUri("lethe", "log", pin_source=tmp_path / "pin")
    sessions.end(settings)
    assert "cannot be read" in refused(settings, absent)
    for change, why in (
        ({"pkcs11_pin": SecretStr("")}, "set LETHE_PKCS11_PIN"),
        ({"pkcs11_module": ""}, "set LETHE_PKCS11_MODULE"),
        ({"pkcs11_module": "/nonexistent.so"}, "not the path of a library"),
        ({"pkcs11_module": str(Path(__file__))}, "does not start"),
    ):
        sessions.end(settings)
        assert why in refused(settings.model_copy(update=change), LOG)
    assert isinstance(open_key(settings, LOG), HsmEd25519)


def test_a_key_is_named_without_a_doubt(settings: Settings, hsm: SoftHsm) -> None:
    first, second = generate_key("ed25519"), generate_key("ed25519")
    hsm.add_key(first, "log", id="01")
    hsm.add_key(second, "log", id="02")
    assert "add ;id=" in refused(settings, LOG)
    assert open_key(settings, KeyUri("lethe", "log", id=b"\x02")).public_key() == (
        second.public_key()
    )
    hsm.add_token("lethe")
    sessions.end(settings)
    assert "add ;serial=" in refused(settings, KeyUri("lethe", "log", id=b"\x02"))


def test_keys_of_another_kind_are_refused(settings: Settings, hsm: SoftHsm) -> None:
    with writing(settings) as session:
        session.generate_keypair(
            KeyType.RSA,
            1024,
            label="rsa",
            store=True,
            capabilities=MechanismFlag.SIGN | MechanismFlag.VERIFY,
        )
    assert "no Ed25519 or ECDSA P-256" in refused(settings, KeyUri("lethe", "rsa"))
    generate(settings, ISSUER, "ecdsa-p256-sha256")
    generate(settings, LOG, "ed25519")
    settings.keys_dir.mkdir()
    (settings.keys_dir / LOG_KEY).write_text(str(ISSUER))
    (settings.keys_dir / ISSUER_KEY).write_text(str(LOG))
    with pytest.raises(KeyMissingError, match="not an Ed25519 key"):
        load_signer(settings)
    with pytest.raises(KeyMissingError, match="not an ECDSA P-256 key"):
        load_issuer(settings)


def test_another_key_under_the_same_label_signs_nothing(settings: Settings) -> None:
    generate(settings, LOG, "ed25519")
    generate(settings, ISSUER, "ecdsa-p256-sha256")
    log, issuer = open_key(settings, LOG), open_key(settings, ISSUER)
    with writing(settings) as session:
        for one in list(session.get_objects()):
            one.destroy()
    generate(settings, LOG, "ed25519")
    generate(settings, ISSUER, "ecdsa-p256-sha256")
    assert isinstance(log, HsmEd25519)
    assert isinstance(issuer, HsmP256)
    with pytest.raises(HsmError, match="another key"):
        log.sign(b"data")
    with pytest.raises(HsmError, match="another key"):
        issuer.sign(b"data", ECDSA(SHA256()))


def test_a_child_process_signs_in_a_session_of_its_own(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(settings, LOG, "ed25519")
    key = open_key(settings, LOG)
    assert isinstance(key, HsmEd25519)
    key.sign(b"by the parent")
    opened = counted(monkeypatch)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        status = 1
        try:
            signature = key.sign(b"by the child")
            if opened == ["lethe"]:  # the parent's session is of no use here
                os.write(writing, signature)
                status = 0
        finally:
            os._exit(status)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    with os.fdopen(reading, "rb") as pipe:
        key.public_key().verify(pipe.read(), b"by the child")
    key.public_key().verify(key.sign(b"by the parent again"), b"by the parent again")
