"""A silo's key is created once, registered once, and never replaced silently."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.settings import Settings
from lethe.signing.keys import generate_key, private_pem, public_pem
from workers.silos import keys


@pytest.fixture
def installed(tmp_path: Path) -> Settings:
    """Settings of an installation with keys, and of a silo whose own lie elsewhere."""
    (tmp_path / "data" / "keys").mkdir(parents=True)
    return Settings(
        data_dir=tmp_path / "data", silos=2, silo_key_dir=str(tmp_path / "silo" / "own")
    )


def test_the_private_half_lies_where_the_setting_says_for_its_owner_alone(
    installed: Settings,
) -> None:
    keys.register(installed, 0)
    path = Path(installed.silo_key_dir) / "silo-0.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in installed.keys_dir.iterdir()] == ["silo-0.pem"]
    assert b"PRIVATE" not in (installed.keys_dir / "silo-0.pem").read_bytes()
    before = path.read_bytes()
    keys.register(installed, 0)
    assert path.read_bytes() == before
    assert keys.private_path(Settings(data_dir=installed.data_dir), 1) == (
        installed.keys_dir / "silo-1.key"
    )


def test_a_registered_key_is_not_replaced(installed: Settings) -> None:
    keys.register(installed, 0)
    registered = keys.public_path(installed, 0).read_bytes()
    keys.private_path(installed, 0).unlink()
    with pytest.raises(keys.SiloKeyError, match="another key"):
        keys.register(installed, 0)
    assert keys.public_path(installed, 0).read_bytes() == registered


@pytest.mark.parametrize("text", ["", "no key", private_pem(generate_key("ecdsa-p256-sha256"))])
def test_only_an_ed25519_key_signs(installed: Settings, text: str) -> None:
    keys.register(installed, 0)
    keys.private_path(installed, 0).write_text(text)
    with pytest.raises(keys.SiloKeyError, match="no Ed25519 key"):
        keys.register(installed, 0)


@pytest.mark.parametrize("text", ["", "no key", public_pem(generate_key("ecdsa-p256-sha256"))])
def test_what_is_no_ed25519_key_is_not_registered(installed: Settings, text: str) -> None:
    assert keys.public_key(installed, 0) is None
    keys.public_path(installed, 0).write_text(text)
    assert keys.public_key(installed, 0) is None


def test_what_was_signed_for_another_purpose_is_no_answer() -> None:
    key = Ed25519PrivateKey.generate()
    assert keys.opened(key.public_key(), keys.sign(key, b"scores")) == b"scores"
    for forged in (key.sign(b"scores") + b"scores", b"scores", b"", bytes(64) + b"scores"):
        with pytest.raises(keys.NotSignedError):
            keys.opened(key.public_key(), forged)
    other = Ed25519PrivateKey.generate()
    with pytest.raises(keys.NotSignedError):
        keys.opened(other.public_key(), keys.sign(key, b"scores"))
