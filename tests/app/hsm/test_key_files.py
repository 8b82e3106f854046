"""Key files that name keys elsewhere: what is made where, and what is refused; without an HSM."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.hsm.errors import KeyAwayError
from app.hsm.uri import KeyUri, parse_uri
from app.ledger import key_files
from app.ledger.entry_macs import KeyMissingError
from app.ledger.key_files import (
    KeyPlaceError,
    SigningKey,
    ensure_key,
    is_ed25519,
    is_p256,
    kept_elsewhere,
    make_next,
    named_by,
)
from app.ledger.log_files import LOG_KEY, NEXT_KEY, load_signer
from app.settings import Settings
from lethe.log.log_keys import spki_of_log
from lethe.log.note import NoteVerifier
from lethe.signing.keys import Algorithm, generate_key, private_pem

LOG = "pkcs11:token=lethe;object=log"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(data_dir=tmp_path, origin="ledger.test/lethe")
    made.keys_dir.mkdir()
    return made


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> dict[str, SigningKey]:
    """Keys by their labels, as if one token had them."""
    keys: dict[str, SigningKey] = {}

    def generate(
        _: Settings, uri: KeyUri, algorithm: Algorithm, *, unknown: bool = False
    ) -> None:
        keys.setdefault(uri.object, generate_key(algorithm))

    made = SimpleNamespace(generate=generate, open_key=lambda _, uri: keys[uri.object])
    monkeypatch.setitem(sys.modules, "app.hsm.token_keys", made)
    return keys


def spki(key: SigningKey) -> bytes:
    assert is_ed25519(key)
    return spki_of_log(NoteVerifier.of("log", key.public_key()))


def following(settings: Settings, known: list[SigningKey], to: str | None = None) -> SigningKey:
    folder = settings.keys_dir
    return make_next(
        settings,
        folder / LOG_KEY,
        folder / NEXT_KEY,
        "ed25519",
        to=to,
        known=[spki(one) for one in known],
    )


def test_the_next_key_is_made_where_the_one_before_is(
    settings: Settings, token: dict[str, SigningKey]
) -> None:
    path = settings.keys_dir / LOG_KEY
    first = ensure_key(settings, path, "ed25519", parse_uri(LOG))
    assert (path.read_text(), first) == (f"{LOG}\n", token["log"])
    assert ensure_key(settings, path, "ed25519", None) is first
    second = following(settings, [first])
    assert second is token["log-2"]
    assert named_by(settings.keys_dir / NEXT_KEY) == KeyUri("lethe", "log-2")
    assert following(settings, [first]) is second  # it was interrupted
    assert kept_elsewhere(settings.keys_dir) == [LOG_KEY, NEXT_KEY]
    # A key in the file could be anybody's, so it does not follow that of the token.
    (settings.keys_dir / NEXT_KEY).write_text(private_pem(generate_key("ed25519")))
    assert following(settings, [first]) is second
    assert named_by(settings.keys_dir / NEXT_KEY) == KeyUri("lethe", "log-2")
    made = following(settings, [first], "file")
    assert spki(following(settings, [first], "file")) != spki(made)


def test_a_pair_without_a_file_is_found_again(
    settings: Settings, token: dict[str, SigningKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ensure_key(settings, settings.keys_dir / LOG_KEY, "ed25519", parse_uri(LOG))
    with monkeypatch.context() as patch:
        patch.setattr(key_files, "write_durably", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            following(settings, [first])
    left = token["log-2"]
    assert not (settings.keys_dir / NEXT_KEY).exists()
    assert following(settings, [first]) is left


def test_no_key_follows_itself(settings: Settings, token: dict[str, SigningKey]) -> None:
    first = ensure_key(settings, settings.keys_dir / LOG_KEY, "ed25519", parse_uri(LOG))
    with pytest.raises(KeyPlaceError, match="give another --to"):
        following(settings, [first], LOG)
    assert not (settings.keys_dir / NEXT_KEY).exists()
    second = following(settings, [first])
    with pytest.raises(KeyPlaceError, match="finish that rotation first"):
        following(settings, [first, second])


def test_from_a_file_into_a_token_and_back(
    settings: Settings, token: dict[str, SigningKey]
) -> None:
    path, next_path = settings.keys_dir / LOG_KEY, settings.keys_dir / NEXT_KEY
    known = [ensure_key(settings, path, "ed25519", None)]
    assert kept_elsewhere(settings.keys_dir) == []
    known.append(following(settings, known, LOG))
    assert known[1] is token["log"]
    next_path.replace(path)
    known.append(following(settings, known, "file"))
    assert b"PRIVATE KEY" in next_path.read_bytes()
    next_path.replace(path)
    following(settings, known)
    assert b"PRIVATE KEY" in next_path.read_bytes()
    with pytest.raises(KeyPlaceError, match="another key already"):
        ensure_key(settings, path, "ed25519", parse_uri(LOG))


def test_a_key_of_another_kind_is_not_named(
    settings: Settings, token: dict[str, SigningKey]
) -> None:
    token["log"] = generate_key("ecdsa-p256-sha256")
    assert is_p256(token["log"])
    with pytest.raises(KeyAwayError, match="none of the kind ed25519"):
        ensure_key(settings, settings.keys_dir / LOG_KEY, "ed25519", parse_uri(LOG))
    assert list(settings.keys_dir.iterdir()) == []


def test_what_a_key_file_needs_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.keys_dir / LOG_KEY).write_text(LOG)
    with pytest.raises(KeyMissingError, match="set LETHE_PKCS11_MODULE"):
        load_signer(settings)
    monkeypatch.delitem(sys.modules, "app.hsm.token_keys")
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    with pytest.raises(KeyMissingError, match=r"\[pkcs11\]"):
        load_signer(settings)
    (settings.keys_dir / LOG_KEY).write_text("pkcs11:token=lethe")
    with pytest.raises(KeyMissingError, match="lacks a token or an object"):
        load_signer(settings)
