"""Which authorities servers are checked against, and that nobody reads them for each call."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from app.console.sign_in import provider
from app.notices import guard, post
from app.problems import SignInError
from lethe import Client
from lethe.log.fetch import fetch_from
from lethe.tls import trusted
from lethe.witness.ask import Asker
from tests.app.notices.test_mail import authority  # noqa: F401 - a fixture
from tests.lethe.signing.signer import ED25519

NOWHERE = "https://127.0.0.1:1"  # a port that nobody listens on


def test_the_authorities_are_those_of_the_environment_where_a_client_is_made(
    authority: tuple[Path, ssl.SSLContext],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one process: who first failed without SSL_CERT_FILE sets it, and later takes it away."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    system = trusted()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority[0]))
    (own,) = trusted().get_ca_certs()
    assert own["subject"] == ((("commonName", "localhost"),),)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert trusted() is system


def test_authorities_that_were_replaced_count_without_a_restart(
    authority: tuple[Path, ssl.SSLContext],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A worker runs for months, and the authority of an internal receiver changes meanwhile."""
    file = tmp_path / "authorities.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    file.write_bytes(authority[0].read_bytes())
    before = trusted()
    assert trusted() is before
    os.utime(file, ns=(0, 1))  # as if it had been written at another time
    assert trusted() is not before
    assert len(trusted().get_ca_certs()) == 1


def test_authorities_are_read_once_for_all_that_call_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading them takes longer than a call, and a worker sends notices all day."""
    trusted()

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("authorities are read again")

    for name in ("load_verify_locations", "load_default_certs", "set_default_verify_paths"):
        monkeypatch.setattr(ssl.SSLContext, name, refused)
    with pytest.raises(AssertionError):
        ssl.create_default_context()
    Client(NOWHERE, "key", ED25519).close()
    Asker(NOWHERE, []).close()
    fetch_from(NOWHERE)
    with pytest.raises(SignInError):
        provider.fetch(NOWHERE)
    target = guard.Target("127.0.0.1", 1, usual=False, allowed=True)
    with pytest.raises(post.UnreachableError, match="connection"):
        asyncio.run(post.to_address("127.0.0.1", target, NOWHERE, {}, b""))


def test_a_notice_is_not_delivered_without_authorities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    target = guard.Target("127.0.0.1", 1, usual=False, allowed=True)
    with pytest.raises(post.UnreachableError, match="tls"):
        asyncio.run(post.to_address("127.0.0.1", target, NOWHERE, {}, b""))
