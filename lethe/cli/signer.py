"""The key that signs a command's request: from `--key`, or from `lethe login`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from lethe.cli import saved
from lethe.client import Client
from lethe.client.keyids import derived_keyid
from lethe.log.note import NoteVerifier
from lethe.signing.keys import load_private_key


class Signer(NamedTuple):
    """The signing key, and the log key that verifies receipts; None if unknown."""

    key: Path
    keyid: str | None
    log_key: Path | None


def find_signer(url: str, key_file: Path | None, keyid: str | None) -> Signer | None:
    """Return the given key, or that of `lethe login` for this service, if any.

    The log's key of the login verifies the receipts of a given key as well.
    """
    login = saved.of(url)
    log_key = None if login is None or login.log_key is None else Path(login.log_key)
    if key_file is not None:
        return Signer(key_file, keyid, log_key)
    if login is None or login.key is None:
        return None
    return Signer(Path(login.key), keyid or login.keyid, log_key)


@contextmanager
def signing_client(url: str, signer: Signer, log: NoteVerifier | None) -> Iterator[Client]:
    """Open a client that signs with this key.

    Raises click.ClickException: the key's file cannot be read.
    """
    try:
        pem = signer.key.read_bytes()
    except OSError as error:
        raise click.ClickException(
            f"{signer.key} cannot be read: {error.strerror}; give --key, or `lethe login` again"
        ) from None
    key = load_private_key(pem)
    with derived_keyid(signer.keyid, key) as name, Client(url, name, key, log=log) as service:
        yield service
