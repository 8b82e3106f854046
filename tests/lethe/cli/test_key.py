"""`lethe key`: files that only their owner reads, and the calls of an operator."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lethe.cli.key import KeyFileError, key
from lethe.client import ProblemError
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import (
    algorithm_of,
    fingerprint,
    load_private_key,
    load_public_key,
    public_pem,
)
from tests.lethe.client.service import TOKEN, FakeService, serve


@pytest.fixture
def service() -> Iterator[FakeService]:
    service = FakeService()
    with serve(service):
        yield service


def run(*arguments: str, token: str | None = None) -> Result:
    environment = {"LETHE_URL": None, "LETHE_TOKEN": token}
    return CliRunner().invoke(key, arguments, env=environment)


def make(directory: Path, *arguments: str) -> str:
    result = run("new", "--out", str(directory), *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


@pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa-p256-sha256"])
def test_a_pair_is_made(algorithm: str, tmp_path: Path) -> None:
    keyid = make(tmp_path, "--algorithm", algorithm)
    private = load_private_key((tmp_path / f"{keyid}.pem").read_bytes())
    public = load_public_key((tmp_path / f"{keyid}.pub.pem").read_bytes())
    assert algorithm_of(private) == algorithm
    assert public_pem(private) == public_pem(public)
    assert keyid == fingerprint(public)


def test_only_the_owner_reads_the_private_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make(tmp_path / "me")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "me.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "me.pub.pem").stat().st_mode) == 0o644


def test_out_is_a_prefix_or_a_directory(tmp_path: Path) -> None:
    assert make(tmp_path / "prefix", "--keyid", "dpo@example:1") == "dpo@example:1"
    make(tmp_path, "--keyid", "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine.pem",
        "mine.pub.pem",
        "prefix.pem",
        "prefix.pub.pem",
    ]


@pytest.mark.parametrize("existing", ["me.pem", "me.pub.pem"])
def test_no_file_is_replaced_and_no_half_pair_is_left(existing: str, tmp_path: Path) -> None:
    (tmp_path / existing).write_text("precious")
    result = run("new", "--out", str(tmp_path / "me"))
    assert isinstance(result.exception, KeyFileError)
    assert "exists" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "precious"


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = run("new", "--out", f"{tmp_path}/absent/me")
    assert isinstance(result.exception, KeyFileError)
    assert "cannot be written" in str(result.exception)


def test_a_directory_is_made_where_out_ends_in_a_slash(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for keyid in ("alice", "bob"):  # the second time it is there
            make_in = run("new", "--out", f"{tmp_path}/keys/", "--keyid", keyid)
            assert make_in.exit_code == 0, make_in.output
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    assert {path.name for path in (tmp_path / "keys").glob("*.pub.pem")} == {
        "alice.pub.pem",
        "bob.pub.pem",
    }
    result = run("new", "--out", f"{tmp_path}/keys/bob.pem/")
    assert isinstance(result.exception, KeyFileError)
    assert "bob.pem cannot be made" in str(result.exception)


@pytest.mark.parametrize("keyid", ["", "two words", "../up", "é", "k" * 129])
def test_a_keyid_that_no_service_takes_is_refused(keyid: str, tmp_path: Path) -> None:
    result = run("new", "--out", str(tmp_path), "--keyid", keyid)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_registered_and_revoked(service: FakeService, tmp_path: Path) -> None:
    keyid = make(tmp_path)
    public = str(tmp_path / f"{keyid}.pub.pem")
    at = ("--url", service.base)
    result = run("register", *at, "--public-key", public, "--role", "client", token=TOKEN)
    assert (result.exit_code, result.output) == (0, f"{keyid}\n")
    assert service.registered[0]["role"] == "client"
    assert service.registered[0]["public_key"] == Path(public).read_text()
    result = run("revoke", keyid, *at, token=TOKEN)
    assert (result.exit_code, result.output) == (0, f"revoked {keyid}\n")
    assert service.keys == {}
    again = run("register", *at, "--public-key", public, "--json", token=TOKEN)
    assert json.loads(again.output) == {"keyid": keyid}
    gone = run("revoke", keyid, *at, "--json", token=TOKEN)
    assert json.loads(gone.output) == {"keyid": keyid, "revoked": True}
    result = run("revoke", keyid, *at, "--token", TOKEN)
    assert isinstance(result.exception, ProblemError)


def test_rights_can_be_narrowed(service: FakeService, tmp_path: Path) -> None:
    make(tmp_path / "me")
    arguments = ("--public-key", str(tmp_path / "me.pub.pem"), "--keyid", "k1")
    narrow = ("--client", "c7")
    result = run("register", "--url", service.base, *arguments, *narrow, token=TOKEN)
    assert result.output == "k1\n"
    assert service.registered[0]["client"] == "c7"
    assert service.registered[0]["role"] == "requester"


def test_a_private_key_is_never_sent(service: FakeService, tmp_path: Path) -> None:
    make(tmp_path / "me")
    arguments = ("--public-key", str(tmp_path / "me.pem"))
    result = run("register", "--url", service.base, *arguments, token=TOKEN)
    assert isinstance(result.exception, KeyFormatError)
    assert str(result.exception).startswith("me.pem: the text holds a private key")
    assert service.seen == []


def test_without_a_token_nothing_is_sent(service: FakeService) -> None:
    result = run("revoke", "k1", "--url", service.base)
    assert result.exit_code == 2
    assert "set LETHE_TOKEN, or run `lethe login`" in result.output
    assert service.seen == []
