import base64
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.settings import Settings
from app.vault.errors import MasterKeyError, SealError
from app.vault.master import RootSecret, create_key, read_key
from app.vault.root import open_root, read_roots, seal_root, write_roots
from app.vault.seal import context, new_key, open_sealed, seal

KEY, AAD = bytes(range(32)), b"place"


@given(st.binary(max_size=300), st.binary(max_size=40))
@settings(deadline=None)
def test_opens_what_it_sealed_and_shows_nothing_of_it(plaintext: bytes, aad: bytes) -> None:
    blob = seal(KEY, plaintext, aad)
    assert open_sealed(KEY, blob, aad) == plaintext
    assert len(blob) == 12 + len(plaintext) + 16
    assert len(plaintext) < 8 or plaintext not in blob


def test_sealing_twice_gives_two_blobs() -> None:
    assert len({seal(KEY, b"same", AAD) for _ in range(100)}) == 100


def test_any_flipped_bit_is_refused() -> None:
    blob = seal(KEY, b"some features", AAD)
    for position in range(len(blob) * 8):
        flipped = bytearray(blob)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(SealError):
            open_sealed(KEY, bytes(flipped), AAD)


@pytest.mark.parametrize(
    ("key", "cut", "aad"),
    [
        (bytes(32), slice(None), AAD),
        (KEY, slice(None), b"another place"),
        (KEY, slice(None), b""),
        (KEY, slice(0, -1), AAD),
        (KEY, slice(1, None), AAD),
        (KEY, slice(0, 27), AAD),
        (KEY, slice(0, 0), AAD),
    ],
)
def test_another_key_or_place_or_a_part_is_refused(key: bytes, cut: slice, aad: bytes) -> None:
    blob = seal(KEY, b"x", AAD)
    with pytest.raises(SealError, match="restore"):
        open_sealed(key, blob[cut], aad)


def test_a_short_key_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        seal(bytes(16), b"", b"")  # AES-128 would accept it
    assert len(new_key()) == 32
    assert new_key() != new_key()


def test_contexts_of_different_places_differ() -> None:
    places = [
        context("a", "b", "c"),
        context("a", "bc"),
        context("ab", "c"),
        context("a", '","b'),
        context("a", 1, 23),
        context("a", 12, 3),
        context("a", "1", 23),
    ]
    assert len(set(places)) == len(places)


def test_a_master_key_is_created_once_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    key = create_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(base64.b64decode(path.read_text())) == 32
    assert read_key(path) == key
    with pytest.raises(FileExistsError):
        create_key(path)


def test_a_master_key_comes_from_the_environment_or_the_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    created = create_key(keys / "master.key")
    write_roots(keys, [seal_root(created, KEY), seal_root(bytes(32), KEY)])
    text = base64.b64encode(bytes(32)).decode()
    for settings_ in (
        Settings(data_dir=tmp_path),
        Settings(data_dir=tmp_path, master_key=text),
    ):
        assert RootSecret.load(settings_).open(seal(KEY, b"x", AAD), AAD) == b"x"
    other = base64.b64encode(b"\1" * 32).decode()
    with pytest.raises(MasterKeyError, match="LETHE_MASTER_KEY is not a master key"):
        RootSecret.load(Settings(data_dir=tmp_path, master_key=other))


CRASH = """
import os, resource
from pathlib import Path
from app.settings import Settings
from app.vault.master import RootSecret

_, most = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
secret = RootSecret.load(Settings(data_dir=Path.cwd()))
os.abort()
"""


def test_a_crash_leaves_no_dump_with_the_secret(tmp_path: Path) -> None:
    """Containers allow dumps of any size, into the working directory, which has the data."""
    keys = tmp_path / "keys"
    keys.mkdir()
    write_roots(keys, [seal_root(create_key(keys / "master.key"), KEY)])
    path = {"PYTHONPATH": str(Path(__file__).parents[3])}
    crashed = subprocess.run([sys.executable, "-c", CRASH], cwd=tmp_path, env=path)
    assert crashed.returncode == -signal.SIGABRT
    assert [one.name for one in tmp_path.iterdir()] == ["keys"]


def test_an_altered_root_opens_nothing() -> None:
    """Write access to the file, without the master key, gets nothing opened or tagged."""
    root = seal_root(KEY, bytes(32))
    assert open_root(KEY, [root]) == (root.keyid, bytes(32))
    other = seal_root(bytes(32), bytes(32))
    assert open_root(KEY, [replace(root, keyid=other.keyid)]) is None
    assert open_root(KEY, [replace(root, sealed=other.sealed)]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"apiVersion":"1","keys":[]}',
        '{"apiVersion":"1","keys":[{"keyid":"../../etc/passwd","sealed":"AAAA"}]}',
        '{"apiVersion":"1","keys":[{"keyid":7,"sealed":"AAAA"}]}',
        '{"apiVersion":"2","keys":[{"keyid":"0123456789abcdef","sealed":"AAAA"}]}',
    ],
)
def test_a_damaged_root_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "root.sealed").write_text(text)
    with pytest.raises(MasterKeyError, match="damaged: restore it"):
        read_roots(tmp_path)


BAD_KEYS = {
    "short": base64.b64encode(bytes(31)).decode(),
    "long": base64.b64encode(bytes(33)).decode(),
    "not-base64": "x" * 43 + "!",
    "url-safe": base64.urlsafe_b64encode(b"\xff" * 32).decode(),
    "hex": "00" * 32,
    "with-spaces": " " + base64.b64encode(bytes(32)).decode(),
    "padding-bits": base64.b64encode(bytes(32)).decode().replace("AA=", "AB="),
    "other-script": "é" * 44,
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_a_malformed_master_key_is_refused_without_being_shown(
    tmp_path: Path, case: str
) -> None:
    text = BAD_KEYS[case]
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "master.key").write_text(text + "\n")
    write_roots(tmp_path / "keys", [seal_root(KEY, KEY)])
    for settings_ in (
        Settings(data_dir=tmp_path),
        Settings(data_dir=tmp_path, master_key=text),
    ):
        with pytest.raises(MasterKeyError, match="openssl rand") as refused:
            RootSecret.load(settings_)
        assert text.strip() not in refused.value.detail


def test_a_missing_master_key_names_its_remedies(tmp_path: Path) -> None:
    with pytest.raises(MasterKeyError, match="LETHE_MASTER_KEY"):
        RootSecret.load(Settings(data_dir=tmp_path))


def test_a_raw_master_key_has_32_bytes() -> None:
    with pytest.raises(MasterKeyError):
        RootSecret(bytes(16))
