"""`lethe log`: verify and mirror any log. The server extra adds commands for its own log."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lethe.canonical import format_base64
from lethe.certificates.keys import read_ml_dsa_key, read_witness_key
from lethe.cli.commands import Commands
from lethe.cli.options import (
    FILE,
    OUT_FILE,
    OUT_FOLDER,
    plain,
    print_failed,
    print_table,
    service_url,
)
from lethe.log.checkpoint import CheckpointError
from lethe.log.fetch import TRUST_ROOT, Fetch, LogError, LogUnreachableError, fetch_from
from lethe.log.follow import LogReport, mirror_log, succeeded, verify_log, witnessed
from lethe.log.log_keys import LogKeys, log_keys
from lethe.log.note import ML_DSA_44, NoteError, NoteVerifier, not_verified, parse_log_vkey
from lethe.log.policy import parse_policy
from lethe.log.proofs import ProofError
from lethe.log.watch import Look, watch

if TYPE_CHECKING:
    from lethe.client import LogEntries, LoggedEntry

_vkey_option = click.option(
    "--vkey", metavar="FILE|STRING", help="The log's verifier key, or a file that holds it."
)
_trust_root_option = click.option(
    "--trust-root",
    type=FILE,
    help="Names the log's keys after a rotation; --vkey is then the key that you know.",
)
_ml_dsa_option = click.option(
    "--log-mldsa-key", type=FILE, help="The log's ML-DSA-44 key; its signature is required too."
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
@_ml_dsa_option
@click.option(
    "--state",
    type=OUT_FILE,
    help="Keep the verified checkpoint in this file; the next call reads only what is new.",
)
@click.option(
    "--policy",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A witness policy: its quorum must have signed the checkpoint.",
)
@_full_option
@_json_option
def verify(
    url_or_dir: str,
    vkey: str | None,
    trust_root: Path | None,
    log_mldsa_key: Path | None,
    state: Path | None,
    policy: Path | None,
    full: bool,
    as_json: bool,
) -> None:
    """Verify every entry and tile of a log.

    All are checked against the signed checkpoint URL_OR_DIR/checkpoint. With a state file, only
    a log that extends the checkpoint of the last call is accepted, and only what was added
    since is read. Exits with 0 if the log verifies, 1 if it does not, and 2 if it cannot be
    read.
    """
    verifier = _read_keys(vkey, trust_root, log_mldsa_key)
    required = None if policy is None else parse_policy(policy.read_bytes())

    def check() -> LogReport:
        found = verify_log(fetch_from(url_or_dir), verifier, state, full=full)
        return found if required is None else witnessed(found, verifier, required)

    _report(as_json, check)


@log.command()
@click.argument("url")
@click.argument("directory", type=OUT_FOLDER)
@_vkey_option
@_trust_root_option
@_ml_dsa_option
@_full_option
@_json_option
def mirror(
    url: str,
    directory: Path,
    vkey: str | None,
    trust_root: Path | None,
    log_mldsa_key: Path | None,
    full: bool,
    as_json: bool,
) -> None:
    """Verify a log and copy it to DIRECTORY.

    Any static web server can serve the copy. A mirror that already holds an earlier
    checkpoint only accepts a log that extends it, and reads only what was added since. Exits as
    `verify` does.
    """
    verifier = _read_keys(vkey, trust_root, log_mldsa_key)
    _report(as_json, lambda: mirror_log(fetch_from(url), verifier, directory, full=full))


@log.command("watch")
@click.argument("url")
@click.argument("directory", type=OUT_FOLDER)
@_vkey_option
@_trust_root_option
@_ml_dsa_option
@click.option(
    "--every", type=click.FloatRange(min=0), default=300, show_default=True, metavar="SECONDS"
)
@click.option(
    "--full-every",
    type=click.FloatRange(min=0),
    default=86_400,
    show_default=True,
    metavar="SECONDS",
    help="Time between full reads, which include what was verified before.",
)
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="How long the log may be unreachable.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def watch_log(
    url: str,
    directory: Path,
    vkey: str | None,
    trust_root: Path | None,
    log_mldsa_key: Path | None,
    every: float,
    full_every: float,
    patience: float,
    as_json: bool,
) -> None:
    """Follow a log as an independent monitor, with a mirror in DIRECTORY.

    Runs until something is wrong. Exits with 1 if the log forked or was rewound, or if an entry
    or tile changed or is missing; what the log's key signed is kept as evidence. Exits with 2
    if the log cannot be read for longer than --patience. After a rotation of a key of the log
    it reads the new trust root from URL/trust-root, and continues if the key that you gave
    leads to the new one.
    """
    verifier, size = _read_keys(vkey, trust_root, log_mldsa_key), -1
    unread_since: float | None = None
    fetch = fetch_from(url)
    for found, seconds in watch(
        fetch,
        verifier,
        directory,
        every=every,
        full_every=full_every,
        rotated=partial(_rotated, fetch),
    ):
        for newest in found.rotated:
            _tell_rotated(as_json, newest)
        if found.report is not None:
            unread_since = None
            if found.report.size != size:
                size = found.report.size
                _tell(as_json, found)
        else:
            _tell(as_json, found)
            if found.alarm != "unreachable":
                sys.exit(1)
            unread_since = time.monotonic() if unread_since is None else unread_since
            if time.monotonic() - unread_since >= patience:
                sys.exit(2)
        time.sleep(seconds)


@log.command("list")
@service_url
@_vkey_option
@_trust_root_option
@_ml_dsa_option
@click.option(
    "--from", "first", type=click.IntRange(min=0), default=0, help="First entry. Default: 0."
)
@click.option(
    "--to", "last", type=click.IntRange(min=0), help="Last entry, included. Default: the end."
)
@click.option("--ref", help="Only entries of this request or model.")
@click.option("--event", help="Only entries of this event.")
@click.option("--kind", help="Only entries of this kind.")
@click.option(
    "--prove",
    is_flag=True,
    help="With a filter: read the whole range and filter it here, so that none is left out.",
)
@_json_option
def list_entries(
    url: str,
    vkey: str | None,
    trust_root: Path | None,
    log_mldsa_key: Path | None,
    first: int,
    last: int | None,
    prove: bool,
    as_json: bool,
    **wanted: str | None,
) -> None:
    """List entries of a service's log once their proof verifies.

    The proof shows that no entry of the range is left out. With a filter the service chooses
    the entries, and nothing shows that it left none out: give --prove. Exits with 0 if the
    proof verifies, 1 if it does not, and 2 if the service cannot be reached.
    """
    from lethe.client import Client
    from lethe.client.entries import EntryFilter

    if last is not None and last < first:
        raise click.UsageError("--to is before --from")
    keys, narrow = _read_keys(vkey, trust_root, log_mldsa_key), EntryFilter(**wanted)
    try:
        with Client(url) as service:
            found = service.log_entries(keys, first, last, wanted=narrow, prove=prove)
    except (ProofError, NoteError, CheckpointError) as error:
        print_failed(error.detail, as_json)
    words, rows = _proven(found, bool(narrow.given)), [_row(one) for one in found.entries]
    if as_json:
        head = found.checkpoint
        document = {
            "result": "PASS",
            "detail": words,
            "complete": found.complete,
            "start": found.start,
            "end": found.end,
            "size": head.size,
            "root": format_base64(head.root),
            "checkpoint": found.note,
            "entries": rows,
        }
        click.echo(json.dumps(document))
        return
    click.echo(f"PASS  {words}")
    print_table(
        ("entry", "day", "event", "ref"),
        (
            (
                str(row["log_index"]),
                str(row["day"] or "-"),
                str(row["event"] or row["kind"] or "?"),
                str(row["ref"] or "-"),
            )
            for row in rows
        ),
    )


def _proven(found: "LogEntries", filtered: bool) -> str:
    """Return in words what is proven about entries."""
    head, number = found.checkpoint, len(found.entries)
    against = f"against the checkpoint of size {head.size}, root {format_base64(head.root)}"
    if found.start == found.end:
        return f"the log has {head.size} entries, none in this range: proven {against}"
    span = f"entries {found.start} to {found.end - 1} of a log of {head.size}"
    if not filtered:
        return f"{span}: complete, proven {against}"
    matches = "1 match" if number == 1 else f"{number} matches"
    if found.complete:
        return f"{matches} among {span}: complete, read whole and proven {against}"
    return (
        f"{matches} among {span}, each proven to be in the log {against}; that the filter "
        "left none out cannot be proven: give --prove to read it whole and filter it here"
    )


def _row(entry: "LoggedEntry") -> dict[str, str | int | None]:
    said = entry.said
    return {
        "log_index": entry.index,
        "kind": None if said is None else said.kind,
        "event": None if said is None else said.event,
        "ref": None if said is None else said.ref,
        "day": None if said is None or said.day is None else said.day.isoformat(),
        "leaf": format_base64(entry.leaf),
    }


def _rotated(fetch: Fetch, known: LogKeys) -> LogKeys | None:
    """Return the keys of the service's trust root, if the newest known keys lead to them.

    An older one may be revoked: whoever stole it could make a trust root that leaves that out.
    """
    from lethe.certificates.trust_root import TrustRootError, parse_trust_root

    try:
        root = parse_trust_root(fetch(TRUST_ROOT), *known.newest)
    except (LogError, TrustRootError):  # a mirror serves none
        return None
    also = known.also
    # A trust root names no ML-DSA-44 key before that key's first rotation. Ed25519 alone signs
    # it: whoever forges that could leave out that a key before the known one was revoked.
    if also is not None and root.ml_dsa is not None:
        begin = root.ml_dsa.verifiers.index(also.verifiers[-1])
        also = replace(root.ml_dsa, keys=root.ml_dsa.keys[begin:])
    found = replace(root.log, also=also)
    return found if found.newest != known.newest else None


def _tell_rotated(as_json: bool, newest: NoteVerifier) -> None:
    """Print on one line that a key of the log was rotated."""
    at = _now()
    words = {"at": at, "rotated": newest.vkey}
    what = "ML-DSA-44 key" if newest.kind == ML_DSA_44 else "key"
    text = f"the log's {what} was rotated, as the known key proves: {newest.vkey}"
    click.echo(json.dumps(words) if as_json else plain(f"{at}  {text}"))


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _tell(as_json: bool, found: Look) -> None:
    """Print a look on one line."""
    at = _now()
    if found.report is not None:
        root = format_base64(found.report.root)
        words = {"at": at, "size": found.report.size, "root": root}
        text = f"size {found.report.size}, root {root}"
    else:
        kept = None if found.evidence is None else str(found.evidence)
        words = {"at": at, "alarm": found.alarm, "detail": found.detail, "evidence": kept}
        text = f"{str(found.alarm).upper()}: {found.detail}"
        text += "" if kept is None else f"; the signed checkpoint is kept in {kept}"
    click.echo(json.dumps(words) if as_json else plain(f"{at}  {text}"))


def _read_keys(
    vkey: str | None, trust_root: Path | None, ml_dsa: Path | None = None
) -> LogKeys:
    """Return the log's keys; with `ml_dsa`, a file, they require that signature too.

    Beside a trust root, `vkey` and `ml_dsa` are the keys that are known.
    """
    known = None if vkey is None else _read_vkey(vkey)
    second = None if ml_dsa is None else read_witness_key(ml_dsa)
    if trust_root is not None:
        from lethe.certificates.trust_root import parse_trust_root

        root = parse_trust_root(trust_root.read_bytes(), known, second)
        keys, seconds = root.log, root.ml_dsa
    elif known is None:
        raise click.UsageError("give --vkey, --trust-root or both")
    else:
        keys, seconds = log_keys(known), None
    if ml_dsa is None:
        return keys
    named = log_keys(read_ml_dsa_key(ml_dsa, keys.name), ML_DSA_44)
    return replace(keys, also=seconds or named)


def _read_vkey(file_or_text: str) -> NoteVerifier:
    """Read a verifier key from its text or a file. Raises NoteError if it is neither."""
    try:
        text = Path(file_or_text).read_text(encoding="utf-8").removesuffix("\n")
    except FileNotFoundError:
        if "+" not in file_or_text:  # a key has two
            raise NoteError(
                f"--vkey: there is no file {plain(file_or_text)}: give the path of log.vkey, "
                "or the line in it"
            ) from None
        text = file_or_text
    except (OSError, ValueError):  # too long for a file name, or not text
        text = file_or_text
    try:
        return parse_log_vkey(text)
    except NoteError as error:
        raise NoteError(
            f"--vkey is neither a key nor a file with one: {error.detail}"
        ) from None


def _report(as_json: bool, check: Callable[[], LogReport]) -> None:
    """Print the verdict; exit with 1 if the log does not verify."""
    try:
        report = check()
    except LogUnreachableError:
        raise  # no verdict: nothing could be read
    except LogError as error:
        if as_json:
            verdict = {"result": "FAIL", "detail": error.detail, **error.members}
            click.echo(json.dumps(verdict))
        else:
            click.echo(plain(f"FAIL  {error.detail}"))
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
        if report.quorum is not None:
            passed["witnesses"] = report.quorum
        click.echo(json.dumps(passed))
    else:
        click.echo(plain(f"PASS  {report.origin}"))
        click.echo(f"      size {report.size}, root {root}")
        checked = f"{report.entries} entries and {report.tiles} tiles checked"
        if report.before:
            checked += f", the first {report.before} entries by an earlier call"
        click.echo(plain(f"      {checked}{not_verified(report.unverified)}"))
        if report.quorum is not None:
            click.echo(f"      {report.quorum}")
        if (old := succeeded(report)) is not None:
            click.echo(plain(f"      succeeds the log {old.origin} at size {old.size}"))
