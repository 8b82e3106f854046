"""`lethe key`: make a key pair; register, list and revoke public keys."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import click

from lethe.cli.options import (
    FILE,
    as_json,
    deciding_token,
    each_as_json,
    operator_token,
    print_answer,
    print_json,
    print_table,
    service_url,
)
from lethe.errors import LetheError
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import (
    Algorithm,
    PublicKey,
    fingerprint,
    generate_key,
    load_public_key,
    private_pem,
    public_pem,
)

KEYID = re.compile(r"[A-Za-z0-9._:@-]{1,128}")  # as accepted by the service


class KeyFileError(LetheError):
    """A key file that cannot be written, or would replace another."""

    slug, title, status = "key-file", "The key file cannot be written", 409


def _check_keyid(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is not None and not KEYID.fullmatch(value):
        raise click.BadParameter("use 1 to 128 letters, digits and . _ : @ -")
    return value


_public_key = click.option(
    "--public-key", type=FILE, required=True, help="The public key (PEM)."
)


@click.group()
def key() -> None:
    """Create, register, confirm, list and revoke the keys that sign erasure requests."""


@key.command()
@click.option(
    "--algorithm",
    type=click.Choice(get_args(Algorithm)),
    default="ed25519",
    show_default=True,
    help="Signature algorithm.",
)
@click.option(
    "--out",
    default=".",
    metavar="DIR_OR_PREFIX",
    help="A directory for KEYID.pem and KEYID.pub.pem, created if it ends in /, or a path to "
    "which .pem and .pub.pem are appended.",
)
@click.option("--keyid", callback=_check_keyid, help="Default: the key's fingerprint.")
def new(algorithm: Algorithm, out: str, keyid: str | None) -> None:
    """Create a key pair. Prints the keyid, and the paths of the files on standard error.

    The private key is written for its owner only, unencrypted. It never leaves this machine;
    no existing file is replaced.
    """
    made = generate_key(algorithm)
    chosen = fingerprint(made) if keyid is None else keyid
    if out.endswith("/"):
        _make_directory(Path(out))
    prefix = f"{out}/{chosen}" if Path(out).is_dir() else out
    private, public = Path(f"{prefix}.pem"), Path(f"{prefix}.pub.pem")
    _write_new(public, public_pem(made), 0o644)
    try:
        _write_new(private, private_pem(made), 0o600)
    except KeyFileError:
        with suppress(OSError):
            public.unlink()  # half of a pair is useless
        raise
    click.echo(chosen)
    click.echo(f"private key  {private}", err=True)
    click.echo(f"public key   {public}", err=True)


@key.command()
@service_url
@operator_token
@_public_key
@click.option("--keyid", callback=_check_keyid, help="Default: the key's fingerprint.")
@click.option(
    "--role",
    type=click.Choice(["requester", "client", "agent"]),
    default="requester",
    show_default=True,
    help="A requester asks for erasure; a client also contributes rows; an agent uses /drp.",
)
@click.option("--client", help="The only client whose data the key may erase.")
@click.option("--subject", help="The only subject whose data the key may erase.")
@as_json
def register(
    url: str,
    token: str,
    public_key: Path,
    keyid: str | None,
    role: str,
    client: str | None,
    subject: str | None,
    as_json: bool,
) -> None:
    """Register a public key with a service. Prints the keyid.

    The log names your token: you approve nothing that this key signs. Requests of a key with
    --client or --subject need an approval until another person has run `lethe key confirm`.
    """
    from lethe.client import Client  # `key new` needs no HTTP client

    loaded = _load(public_key)
    with Client(url, token=token) as service:
        made = service.register_key(loaded, role, keyid=keyid, client=client, subject=subject)
    print_answer({"keyid": made}, as_json, made)


@key.command()
@click.argument("keyid")
@service_url
@deciding_token
@_public_key
@as_json
def confirm(keyid: str, url: str, token: str, public_key: Path, as_json: bool) -> None:
    """Confirm that KEYID belongs to the client or subject that it is bound to.

    From then on its requests need no approval. Get the public key from its holder yourself: it
    is compared with the registered one. Whoever registered the key cannot confirm it.
    """
    from lethe.client import Client

    with Client(url, token=token) as service:
        shown = service.confirm_key(keyid, _load(public_key))
    by = shown["registered_by"]
    text = f"confirmed {keyid} of {_bound(shown)}, which {by} registered"
    print_answer(shown, as_json, text)


@key.command()
@click.argument("keyid")
@service_url
@operator_token
@as_json
def revoke(keyid: str, url: str, token: str, as_json: bool) -> None:
    """Revoke the key KEYID. Requests that it signed before stay valid."""
    from lethe.client import Client

    with Client(url, token=token) as service:
        service.revoke_key(keyid)
    print_answer({"keyid": keyid, "revoked": True}, as_json, f"revoked {keyid}")


@key.command("list")
@service_url
@deciding_token
@each_as_json
def list_keys(url: str, token: str, as_json: bool) -> None:
    """List the registered keys: their holders, and when they were revoked."""
    from lethe.client import Client

    with Client(url, token=token) as service:
        found = service.keys()
        if as_json:
            for one in found:
                print_json(one)
            return
        print_table(
            ("KEYID", "ROLE", "BOUND TO", "REGISTERED", "BY", "CONFIRMED BY", "REVOKED"),
            (
                (
                    one["keyid"],
                    one["role"],
                    _bound(one),
                    one["created_at"][:10],
                    one["registered_by"] or "",
                    one["confirmed_by"] or "",
                    (one["revoked_at"] or "")[:10],
                )
                for one in found
            ),
        )


def _bound(one: Mapping[str, Any]) -> str:
    """Return the only client or subject whose data a key may erase."""
    names = [f"{name} {one[name]}" for name in ("client", "subject") if one[name] is not None]
    return ", ".join(names)


def _load(path: Path) -> PublicKey:
    try:
        return load_public_key(path.read_bytes())
    except KeyFormatError as error:
        raise KeyFormatError(f"{path.name}: {error.detail}") from None


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be made: {error.strerror}") from None


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        # O_EXCL also refuses a symbolic link; the mode is set before any byte is written.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    except FileExistsError:
        raise KeyFileError(f"{path} exists: choose another --out, or move it") from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
