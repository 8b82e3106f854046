"""`lethe log`: verify and mirror any log. The server extra adds what works on its own log."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import click

from lethe.cli.certificate_text import plain
from lethe.cli.commands import Commands
from lethe.log.follow import (
    LogError,
    LogReport,
    LogUnreachableError,
    fetch_from,
    mirror_log,
    succeeded,
    verify_log,
)
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteError, NoteVerifier, not_verified, parse_log_vkey
from lethe.log.spelling import format_base64

_vkey_option = click.option(
    "--vkey",
    metavar="FILE|STRING",
    help="The log's verifier key, or a file that holds it.",
)
_trust_root_option = click.option(
    "--trust-root",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Names the log's keys after a rotation; --vkey is then the key that you know.",
)
_full_option = click.option(
    "--full", is_flag=True, help="Read everything, also what was verified before."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=Commands, entry_points="lethe.log.commands")
def log() -> None:
    """Verify, mirror, create and check transparency logs."""


@log.command()
@click.argument("url_or_dir")
@_vkey_option
@_trust_root_option
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the verified checkpoint in this file; the next call reads only what is new.",
)
@_full_option
@_json_option
def verify(
    url_or_dir: str,
    vkey: str | None,
    trust_root: Path | None,
    state: Path | None,
    full: bool,
    as_json: bool,
) -> None:
    """Verify every entry and tile of a log.

    All are checked against the signed checkpoint URL_OR_DIR/checkpoint. With a state file, only
    a log that extends the checkpoint of the last call is accepted, and only what was added
    since is read. Exits with 0 if the log verifies, 1 if it does not, and 2 if it cannot be
    read.
    """
    verifier = _read_keys(vkey, trust_root)
    _report(as_json, lambda: verify_log(fetch_from(url_or_dir), verifier, state, full=full))


@log.command()
@click.argument("url")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@_vkey_option
@_trust_root_option
@_full_option
@_json_option
def mirror(
    url: str,
    directory: Path,
    vkey: str | None,
    trust_root: Path | None,
    full: bool,
    as_json: bool,
) -> None:
    """Verify a log and copy it to DIRECTORY.

    Any static web server can serve the copy. A mirror that already holds an earlier
    checkpoint only accepts a log that extends it, and reads only what was added since. Exits as
    `verify` does.
    """
    verifier = _read_keys(vkey, trust_root)
    _report(as_json, lambda: mirror_log(fetch_from(url), verifier, directory, full=full))


def _read_keys(vkey: str | None, trust_root: Path | None) -> NoteVerifier | LogKeys:
    known = None if vkey is None else _read_vkey(vkey)
    if trust_root is not None:
        from lethe.certificates.trust_root import parse_trust_root

        return parse_trust_root(trust_root.read_bytes(), known).log
    if known is None:
        raise click.UsageError("give --vkey, --trust-root or both")
    return known


def _read_vkey(file_or_text: str) -> NoteVerifier:
    """Read a verifier key, given itself or as a file.

    Raises:
        NoteError: It is neither.
    """
    try:
        text = Path(file_or_text).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, ValueError):  # no such file, too long for a file name, or not text
        text = file_or_text
    try:
        return parse_log_vkey(text)
    except NoteError as error:
        raise NoteError(
            f"--vkey is neither a key nor a file with one: {error.detail}"
        ) from None


def _report(as_json: bool, check: Callable[[], LogReport]) -> None:
    """Print the verdict; a log that does not verify exits with 1."""
    try:
        report = check()
    except LogUnreachableError:
        raise  # no verdict: nothing was seen that could be judged
    except LogError as error:
        if as_json:
            verdict = {"result": "FAIL", "detail": error.detail, **error.members}
            click.echo(json.dumps(verdict))
        else:
            click.echo(f"FAIL  {error.detail}")
        sys.exit(1)
    root = format_base64(report.root)
    if as_json:
        passed: dict[str, object] = {
            "result": "PASS",
            "origin": report.origin,
            "size": report.size,
            "root": root,
            "entries": report.entries,
            "tiles": report.tiles,
            "entries_before": report.before,
            "unverified": [f"{line.name}+{line.key_id.hex()}" for line in report.unverified],
        }
        click.echo(json.dumps(passed))
    else:
        click.echo(f"PASS  {report.origin}")
        click.echo(f"      size {report.size}, root {root}")
        checked = f"{report.entries} entries and {report.tiles} tiles checked"
        if report.before:
            checked += f", the first {report.before} entries by an earlier call"
        click.echo(plain(f"      {checked}{not_verified(report.unverified)}"))
        if (old := succeeded(report)) is not None:
            click.echo(plain(f"      succeeds the log {old.origin} at size {old.size}"))
