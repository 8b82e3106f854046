"""`lethe client`: commands for a data holder that keeps its rows.

Features and statistics are computed here; only a signed message of sums is sent.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.catalogue import data_of
from lethe.cli.options import FILE, count, each_as_json, plain, print_json, service_url
from workers.cli.data_options import DATA, read_rows, reads_table, table_options

if TYPE_CHECKING:
    from lethe.client import Client
    from workers.secure_sum.local import LocalRows
    from workers.secure_sum.wire import Form

FORMS = ("gram", "factor", "sketch")


def _connection(command: Any) -> Any:
    for option in (
        click.option("--keyid", help="Its keyid. Default: the key's fingerprint."),
        click.option(
            "--key", "key_file", type=FILE, required=True, help="Your private key (PEM)."
        ),
        service_url,
    ):
        command = option(command)
    return command


def _message_form(command: Any) -> Any:
    for option in (
        click.option("--kind", default="eigen", show_default=True, help="Kind of sketch."),
        click.option("--rank", type=click.IntRange(min=1), help="Rows of a sketch."),
        click.option(
            "--form",
            type=click.Choice(FORMS),
            default="gram",
            show_default=True,
            help="gram: the whole triangle; factor: smaller for few rows; sketch: approximate.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def client() -> None:
    """Contribute to models and answer releases, as a client that keeps its rows."""


@client.command()
@_connection
@click.option("--model", "ref", required=True, help="The model's reference.")
@click.option(
    "--data",
    required=True,
    type=DATA,
    help="An .npz with features, labels, clients, records; optionally subjects, is_test; or a "
    "table, with --label, --client and --record-id.",
)
@table_options(sql=False)
@click.option(
    "--sample-weight",
    metavar="COLUMN",
    help="Row weights, for a model registered with them.",
)
@_message_form
@click.option(
    "--add-back", is_flag=True, help="Also contribute records that were erased before."
)
@click.option(
    "--statistics-only",
    is_flag=True,
    help="Never send rows: fail if the service says that the model takes them.",
)
def contribute(
    url: str,
    key_file: Path,
    keyid: str | None,
    ref: str,
    data: Path,
    form: "Form",
    rank: int | None,
    kind: str,
    add_back: bool,
    statistics_only: bool,
    **columns: Any,
) -> None:
    """Send rows, or one message of statistics for each client and subject in DATA.

    The service says which of both the model takes. With --statistics-only it cannot get rows.
    """
    from workers.cli.errors import shown
    from workers.data.identities import contributed_npz, rows_held_out
    from workers.data.opening import named_extractor
    from workers.secure_sum.local import (
        check_extractor,
        message_of,
        pack_rows,
        with_features,
    )

    with shown(), _client(url, key_file, keyid) as service:
        manifest = service.manifest(ref)
        if data_of(manifest).in_rounds:
            raise click.ClickException(
                "this model is masked, so its statistics are sent in rounds: use "
                "`lethe round join`"
            )
        if data_of(manifest).rows_here:
            if statistics_only:
                raise click.ClickException(
                    "the service says that this model takes rows: nothing was sent; if it was "
                    "registered for statistics, ask who changed that"
                )
            if not reads_table(data, columns):
                check_extractor(manifest, named_extractor(data))
                body = contributed_npz(data, manifest["classes"])
                if held_out := rows_held_out(data):
                    left_out = count(held_out, "row")
                    click.echo(f"held out: {left_out} (by is_test)", err=True)
            elif manifest["family"] == "ridge":
                own = with_features(read_rows(data, columns, people=True), manifest, None)
                _say_clipped(own, manifest)
                body = pack_rows(own, manifest["classes"])
            else:
                body = _table_body(data, columns, manifest)
            sent = service.contribute(ref, body, add_back=add_back)
            click.echo(plain(f"{sent['id']}  {count(sent['rows'], 'row')}"))
            return
        inputs = read_rows(data, columns, people=True)
        rows = with_features(inputs, manifest, named_extractor(data))
        _say_clipped(rows, manifest)
        for owner in rows.owners():
            message = message_of(
                rows, rows.owned(*owner), manifest, form=form, rank=rank, kind=kind
            )
            sent = service.contribute(ref, message, add_back=add_back)
            taken = count(sent["rows"], "row")
            click.echo(plain(f"{sent['id']}  {taken} in {len(message):,} bytes"))
            for warning in sent["warnings"]:
                click.echo(plain(f"warning: {warning}"), err=True)


def _say_clipped(rows: "LocalRows", manifest: Mapping[str, Any]) -> None:
    from workers.secure_sum.local import clipped

    if found := clipped(rows, manifest):
        numbers = count(found, "number")
        click.echo(f"clipped: {numbers} beyond the range of the model's steps", err=True)


def _table_body(data: Path, columns: Mapping[str, Any], manifest: Mapping[str, Any]) -> bytes:
    """Return the rows of a table in the format of a model's family. Raises RefusedError."""
    from workers.cli.models import fitting
    from workers.errors import RefusedError
    from workers.registration import recipe, sums

    if manifest["columns"] is None or manifest["family"] == "vectors":
        raise RefusedError(
            f"rows of the family {manifest['family']} are an .npz: name no columns"
        )
    missing = [
        option
        for option, name in (("--record-id", "record_id"), ("--client", "client"))
        if columns.get(name) is None
    ]
    if missing:
        raise RefusedError(f"name the columns of whose the rows are: {' and '.join(missing)}")
    chosen = {
        **columns,
        "features": columns["features"] or tuple(map(_literal, manifest["features"])),
        "holdout": columns["holdout"] or "none",
    }
    numbers, categories = not manifest["classes"], manifest["categories"]
    rows = fitting.read_rows(data, chosen, numbers=numbers, categories=categories, added=True)
    if wanted := manifest["features"]:
        if sorted(rows.names) != sorted(wanted):
            raise RefusedError(
                "DATA or --features names other features than the model has, which "
                "`lethe model show --json` lists"
            )
        order = [rows.names.index(name) for name in wanted]
        rows = replace(rows, features=rows.features[:, order])
    if manifest["family"] == "sums" and rows.weights is not None:
        rows = replace(rows, weights=sums.rounded(columns["sample_weight"], rows.weights))
    # Held-out rows are not contributed: only their identities are sent.
    return recipe.contributed(rows, manifest)


def _literal(name: str) -> str:
    """Return a glob that matches exactly one column name."""
    return "".join(f"[{one}]" if one in "*?[" else one for one in name)


@client.command()
@_connection
@each_as_json
def asked(url: str, key_file: Path, keyid: str | None, as_json: bool) -> None:
    """List your open releases: model, records and deadline."""
    with _client(url, key_file, keyid) as service:
        for item in service.asked():
            if as_json:
                print_json(item)
                continue
            records = count(len(item["records"]), "record")
            text = f"{item['id']}  {item['model']}  {records} of {item['subject']}"
            click.echo(plain(f"{text}, before {item['escalates_at']}"))
            for warning in item["warnings"]:
                click.echo(plain(f"warning: {warning}"), err=True)


@client.command()
@_connection
@click.option(
    "--data", required=True, type=DATA, help="The requested rows: an .npz, or a table."
)
@table_options(sql=False)
@_message_form
def release(
    url: str,
    key_file: Path,
    keyid: str | None,
    data: Path,
    form: "Form",
    rank: int | None,
    kind: str,
    **columns: Any,
) -> None:
    """Answer all your open releases with statistics of their records in DATA."""
    from lethe.client.errors import ProblemError
    from workers.cli.errors import shown
    from workers.data.opening import named_extractor
    from workers.errors import ModelError
    from workers.secure_sum.local import message_of, with_features

    with shown(), _client(url, key_file, keyid) as service:
        inputs, named = read_rows(data, columns), named_extractor(data)
        failed = 0
        for item in service.asked():
            try:
                manifest = service.manifest(item["model"])
                rows = with_features(inputs, manifest, named)
                message = message_of(
                    rows, item["records"], manifest, form=form, rank=rank, kind=kind
                )
                service.answer_release(item["id"], message)
            except (ModelError, ProblemError) as error:
                # One that cannot be answered must not hold up the others.
                failed += 1
                click.echo(plain(f"{item['id']}  not answered: {error}"), err=True)
            else:
                released = count(len(item["records"]), "record")
                click.echo(plain(f"{item['id']}  released {released}"))
    if failed:
        raise click.ClickException(
            f"{failed} releases could not be answered: the lines above say why; run this again"
        )


@contextmanager
def _client(url: str, key_file: Path, keyid: str | None) -> "Iterator[Client]":
    from lethe.client import Client
    from lethe.client.keyids import derived_keyid
    from lethe.signing.keys import load_private_key

    key = load_private_key(key_file.read_bytes())
    with derived_keyid(keyid, key) as name, Client(url, name, key) as service:
        yield service
