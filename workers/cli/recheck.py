"""`lethe certificate recheck`: recompute a certified verdict from files alone."""

import json
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from lethe.cli.options import FILE, plain
from lethe.cli.text.waiting import working
from workers.judge.recheck.files import PINNED
from workers.judge.recheck.lines import MEANING, Recheck


@click.command()
@click.argument("file", type=FILE)
@click.option("--evidence", type=FILE, required=True, help="The certificate's evidence file.")
@click.option(
    "--scores", type=FILE, multiple=True, help="A scores file that it names; repeatable."
)
@click.option("--model", type=FILE, help="The model file it is about.")
@click.option(
    "--policy",
    type=FILE,
    help="The registered policy, or the response of GET /v1/models/REF.",
)
@click.option(
    "--registration",
    type=FILE,
    help="The model's registration: the response of GET /v1/models/REF.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the lines as JSON.")
def recheck(
    file: Path,
    evidence: Path,
    scores: tuple[Path, ...],
    model: Path | None,
    policy: Path | None,
    registration: Path | None,
    as_json: bool,
) -> None:
    """Compute the verdict of a certificate FILE again, and compare it line by line.

    Signatures are not looked at: verify the certificate first. Exits with 0 if nothing
    differs, 1 if something does, 2 if the files cannot be used. It needs the extra recheck: in
    a clone of Lethe, pip install -c constraints.txt '.[recheck]'.
    """
    from lethe.cli.certificate_file import read_certificate
    from workers.judge.recheck.files import RecheckFiles, named_scores
    from workers.judge.recheck.run import recheck as compute

    said = read_certificate(file)[1].predicate
    given = RecheckFiles(
        evidence.read_bytes(),
        [_scores(path, named_scores(said)) for path in scores],
        None if model is None else model.read_bytes(),
        None if policy is None else _digest(policy),
        None if registration is None else _registration(registration),
    )
    with working("computing the verdict again"):
        found = compute(said, given)
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        _print(file.name, found)
    if found.result == "DIFFERS":
        sys.exit(1)


def _scores(path: Path, named: Sequence[tuple[str, str]]) -> bytes:
    """Read a scores file. Another certificate's would look like a wrong verdict."""
    data = path.read_bytes()
    if sha256(data).hexdigest() not in {digest for _, digest in named}:
        listed = ", ".join(f"{name} {digest}" for name, digest in named) or "no scores file"
        raise click.UsageError(
            f"{path.name}: this file is not named by the certificate; it names {listed}"
        )
    return data


def _registration(file: Path) -> dict[str, Any]:
    """Return a service's answer about a model. Raises click.UsageError for another file."""
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not {*PINNED} <= found.keys():
        raise click.UsageError(
            f"{file.name}: no registration: save what GET /v1/models/REF answers an operator"
        )
    return found


def _digest(policy: Path) -> str:
    from workers.cli.errors import shown
    from workers.cli.policy_file import load
    from workers.judge.policy.document import digest

    with shown():
        return digest(load(policy, or_model=True))


def _print(name: str, found: Recheck) -> None:
    click.echo(f"{found.result}  {plain(name)}")
    width = max(len(plain(line.name)) for line in found.lines)
    for line in found.lines:
        mark = {"same": "same", "DIFFERS": "DIFFERS", "not recomputed": "-"}[line.status]
        head = f"  {mark:7}  {plain(line.name):{width}}"
        click.echo(f"{head}  {plain(line.certified)}")
        if line.status == "DIFFERS":
            click.echo(f"{'':{width + 11}}  recomputed: {plain(line.recomputed)}")
        if line.status == "DIFFERS" and line.reason:
            click.echo(f"{'':{width + 11}}  {plain(line.reason)}")
        elif line.reason:
            click.echo(f"{'':{width + 11}}  not recomputed: {plain(line.reason)}")
    click.echo(f"\n{MEANING[found.result]}")
    click.echo("Signatures were not checked: run `lethe certificate verify`.")
