"""`lethe service-key`: rotate and revoke this installation's keys; publish its trust root."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from app.hsm.uri import KeyUri
from app.keys import rotate as keys_of
from app.keys.alone import Rotated
from app.keys.issuer import issuer_keys
from app.keys.log import NoSecondKeyError, logged_keys
from app.keys.master import master_keys
from app.keys.rotate_log import revoke_log, rotate_log
from app.keys.rotate_master import revoke_master, rotate_master
from app.keys.trust_root import trust_root as make_trust_root
from app.ledger.key_files import KeyPlace, named_by
from app.ledger.log_files import LOG_KEY
from app.ledger.sequencer import Ledger
from app.ledger.startup import ISSUER_KEY, load_ledger
from app.service.access import rotate_silo as silo_rotation
from app.service.access import silo_keys
from app.settings import Settings
from app.vault.root import read_roots
from lethe.cli.options import OUT_FILE, each_as_json, print_json, print_table
from lethe.files import keep_private
from lethe.log.key_changes import LOG, ML_DSA, REASONS
from lethe.log.log_keys import LogKey
from models.database.session import opened_engine

PUBLISH = "publish the trust root: lethe service-key trust-root"
_superseded = click.option(
    "--reason", type=click.Choice(REASONS), default="superseded", show_default=True
)
_to = click.option(
    "--to",
    metavar="PLACE",
    help="Location of the new key: file, a PKCS#11 URI, or env:VARIABLE. Default: that of the "
    "old key.",
)


@click.group()
def service_key() -> None:
    """Rotate, revoke and list the service's own keys, and publish its trust root.

    Runs where the key directory is. The keys of requesters are those of `lethe key`.
    """


@service_key.group()
def rotate() -> None:
    """Replace a key with a new one; the log records from which entry on."""


@rotate.command("issuer")
@click.option("--keyid", help="Name of the new key. Default: the next number.")
@_to
def rotate_issuer(keyid: str | None, to: str | None) -> None:
    """Sign certificates with a new key from now on.

    Certificates of the old key stay valid. Running processes need no restart. If it was
    interrupted, run it again: it finishes that rotation and begins no other.
    """
    with _ledger() as (settings, ledger):
        old = named_by(settings.keys_dir / ISSUER_KEY)
        done = keys_of.rotate_issuer(settings, ledger, keyid, to=to)
    if done.finished:
        click.echo("finished the rotation that was interrupted")
    click.echo(f"{done.key.keyid} signs from log entry {done.key.start} on")
    _tell_left(settings, ISSUER_KEY, old)
    click.echo(PUBLISH, err=True)


@rotate.command("log")
@_to
def rotate_log_key(to: str | None) -> None:
    """Announce a new log key; both sign checkpoints until the old one is revoked.

    Running processes need no restart. Tell witnesses and followers the new key, then end the
    overlap with `lethe service-key revoke log`. If it was interrupted, run it again.
    """
    with _ledger() as (settings, ledger):
        done = rotate_log(settings, ledger, to=to)
    _tell_announced(done)


@rotate.command("log-mldsa")
def rotate_ml_dsa() -> None:
    """Announce a new ML-DSA-44 log key; both sign until the old one is revoked.

    Running processes need no restart. Give auditors the trust root, then end the overlap with
    `lethe service-key revoke log-mldsa`. If it was interrupted, run it again.
    """
    with _ledger() as (settings, ledger):
        done = rotate_log(settings, ledger, role=ML_DSA)
    _tell_announced(done)


@rotate.command("master")
def rotate_master_key() -> None:
    """Add a master key that opens everything sealed; the current one stays valid.

    The next key is LETHE_MASTER_KEY_NEXT, or a new master.next.key where master.key is in use.
    Give it to each process, then end the overlap with `lethe service-key revoke master`.
    """
    with _ledger() as (settings, ledger):
        key = rotate_master(settings, ledger)
    click.echo(f"{key.keyid} opens what is sealed, beside the old key: log entry {key.start}")
    click.echo("end the overlap: lethe service-key revoke master", err=True)


@rotate.command("silo")
@click.argument("silo", type=click.IntRange(min=0))
def rotate_silo_key(silo: int) -> None:
    """Give the silo SILO a new key; the old one stays valid until it is revoked.

    Runs where LETHE_SILO_KEY_DIR has the silo's private key. Copy silo-SILO.next.key to its
    other machines, then end the overlap with `lethe service-key revoke silo`. If it was
    interrupted, run it again.
    """
    with _ledger() as (settings, ledger):
        digest = silo_rotation.rotate_silo(settings, ledger, silo)
    click.echo(f"silo {silo} signs with {digest}, beside the old key")
    click.echo(f"end the overlap: lethe service-key revoke silo {silo}", err=True)


@service_key.group()
def revoke() -> None:
    """Revoke a key: verifiers refuse what it signs from now on."""


@revoke.command("issuer")
@click.argument("keyid")
@click.option("--reason", required=True, type=click.Choice(REASONS))
def revoke_issuer(keyid: str, reason: str) -> None:
    """Make verifiers refuse certificates of the key KEYID that are logged from now on.

    Earlier ones stay valid. If KEYID is the key in use, nothing is signed until you run
    `lethe service-key rotate issuer`.
    """
    with _ledger() as (settings, ledger):
        index = keys_of.revoke_issuer(settings, ledger, keyid, reason)
    click.echo(f"{keyid} is revoked from log entry {index} on")
    click.echo(PUBLISH, err=True)


@revoke.command("log")
@_superseded
def revoke_log_key(reason: str) -> None:
    """End the overlap of the log's keys: the new one signs alone.

    The old key's signature no longer counts on a checkpoint that covers this entry. Running
    processes need no restart. If it was interrupted, run it again.
    """
    with _ledger() as (settings, ledger):
        place = named_by(settings.keys_dir / LOG_KEY)
        done = revoke_log(settings, ledger, reason)
    _tell_revoked(done)
    _tell_left(settings, LOG_KEY, place)
    click.echo(PUBLISH, err=True)


@revoke.command("log-mldsa")
@_superseded
def revoke_ml_dsa(reason: str) -> None:
    """End the overlap of the log's ML-DSA-44 keys: the new one signs alone.

    The old key's signature no longer counts on a checkpoint that covers this entry. Running
    processes need no restart. If it was interrupted, run it again.
    """
    with _ledger() as (settings, ledger):
        done = revoke_log(settings, ledger, reason, role=ML_DSA)
    _tell_revoked(done)
    click.echo(PUBLISH, err=True)


@revoke.command("master")
@_superseded
def revoke_master_key(reason: str) -> None:
    """End the overlap of the master keys: the old one no longer opens anything.

    Earlier copies of the keys directory still open with the old one. If it was interrupted, run
    it again.
    """
    with _ledger() as (settings, ledger):
        done = revoke_master(settings, ledger, reason)
    if done.finished:
        click.echo("finished the revocation that was interrupted")
    click.echo(f"{done.key.keyid} no longer opens anything: log entry {done.key.revoked}")


@revoke.command("silo")
@click.argument("silo", type=click.IntRange(min=0))
def revoke_silo_key(silo: int) -> None:
    """Refuse what the silo SILO signed with its older key, from now on.

    If it was interrupted, run it again.
    """
    with _ledger() as (settings, ledger):
        digest = silo_rotation.revoke_silo(settings, ledger, silo)
    click.echo(f"signatures of silo {silo} with {digest} are refused")


@service_key.command("list")
@each_as_json
def list_keys(as_json: bool) -> None:
    """List the log, issuer, silo and master keys as the log records them."""
    with _ledger() as (settings, ledger):
        found = issuer_keys(settings, ledger)
        logs = [(LOG, one) for one in logged_keys(ledger).keys]
        with suppress(NoSecondKeyError):
            logs += [(ML_DSA, one) for one in logged_keys(ledger, role=ML_DSA).keys]
        masters = master_keys(ledger).of(read_roots(settings.keys_dir))
        silos = silo_keys.spans(ledger)
    heads = ("role", "keyid", "from entry", "replaced at", "revoked at", "reason")
    rows = [
        *(
            (role, one.verifier.key_id.hex(), one.start, None, one.revoked, one.reason)
            for role, one in logs
        ),
        *(
            (role, one.keyid, one.start, one.end, one.revoked, one.reason)
            for role, keys in (("issuer", found.keys), ("master", masters))
            for one in keys
        ),
        *(
            (f"silo {one.silo}", one.digest, one.start, one.end, one.revoked, None)
            for one in silos
        ),
    ]
    if as_json:
        for row in rows:
            names = (head.replace(" ", "_") for head in heads)
            print_json(dict(zip(names, row, strict=True)))
        return
    print_table(heads, [["" if cell is None else str(cell) for cell in row] for row in rows])


@service_key.command("trust-root")
@click.option("--out", type=OUT_FILE, help="Output file. Default: standard output.")
def trust_root(out: Path | None) -> None:
    """Print the keys that certificates are verified with, signed by the log's key.

    `GET /v1/log/trust-root` answers the same.
    """
    with _ledger() as (settings, ledger):
        made = make_trust_root(settings, ledger)
    if out is None:
        click.echo(made)
        return
    try:
        out.write_bytes(made + b"\n")
    except OSError as error:
        raise click.UsageError(f"cannot write {out}: {error.strerror}") from None


def _tell_announced(done: Rotated[LogKey]) -> None:
    if done.finished:
        click.echo("finished the rotation that was interrupted")
    click.echo(f"announced by log entry {done.key.start}; it signs beside the old key")
    click.echo(done.key.verifier.vkey)


def _tell_revoked(done: Rotated[LogKey]) -> None:
    old = done.key.verifier.key_id.hex()
    click.echo(f"{old} is revoked from log entry {done.key.revoked} on")


def _tell_left(settings: Settings, name: str, before: KeyPlace | None) -> None:
    """Print where the old key can now be destroyed, unless it is in use or was in its file."""
    if before is not None and named_by(settings.keys_dir / name) != before:
        where = "in its token" if isinstance(before, KeyUri) else "in the environment"
        click.echo(f"the old key is still {where}: destroy {before} there", err=True)


@contextmanager
def _ledger() -> Iterator[tuple[Settings, Ledger]]:
    keep_private()
    settings = Settings()
    with opened_engine(settings.resolved_database_url, settings.stall_seconds) as engine:
        yield settings, load_ledger(settings, engine)
