"""`lethe request`: submit an erasure request, follow it, withdraw it."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import click

from lethe.cli import saved
from lethe.cli.options import (
    FILE,
    STATES,
    as_json,
    each_as_json,
    operator_token,
    plain,
    print_json,
    print_rows,
    print_table,
    reading_token,
    service_url,
)
from lethe.cli.signer import find_signer, signing_client
from lethe.cli.text.case import NOTHING_FOUND, SETTLED, print_case, say_kind, wait_for_case
from lethe.cli.text.request import print_preview, print_receipt, print_status, watch_request
from lethe.client import Client, ProblemError
from lethe.identity import parse
from lethe.log.note import NoteError, NoteVerifier, parse_log_vkey

_key = click.option(
    "--key", "key_file", type=FILE, help="Your private key (PEM), or that of `lethe login`."
)
_keyid = click.option("--keyid", help="Its keyid. Default: the key's fingerprint.")
_DAY = click.DateTime(["%Y-%m-%d"])
_timeout = click.option(
    "--timeout", type=click.FloatRange(min=0), help="Seconds to watch. Default: no limit."
)


class _Scope(TypedDict):
    records: tuple[str, ...] | None
    client: str | None
    subject: str | None


@click.group()
def request() -> None:
    """Submit, follow and withdraw erasure requests."""


@request.command()
@service_url
@_key
@_keyid
@click.option("--model", help="Reference of the model. Default with --person: all models.")
@click.option("--record", "records", multiple=True, help="A record; repeatable.")
@click.option("--client", help="All records of this client.")
@click.option("--subject", help="All records of this data subject.")
@click.option(
    "--person",
    metavar="KIND=VALUE",
    help="All records of this person, such as email=jane@example.org.",
)
@click.option("--on-behalf", is_flag=True, help="Submit for a person, with LETHE_TOKEN.")
@click.option("--ticket", help="Reference of the person's message; include no names.")
@click.option("--checked", help="How you checked the identity; include no names.")
@click.option("--contact", help="Where to send the answer; destroyed when the case is closed.")
@click.option("--method", help="The unlearning method. Default: the model's own.")
@click.option(
    "--regulation",
    type=click.Choice(["gdpr", "ccpa"]),
    default="gdpr",
    show_default=True,
    help="The law that sets the deadline.",
)
@click.option(
    "--idempotency-key", help="Unique name of the submission; retry with the same one."
)
@click.option(
    "--callback", metavar="URL", help="An https:// address to notify when its state changes."
)
@click.option("--log-key", type=FILE, help="The log's vkey, to verify the receipt.")
@click.option(
    "--preview", "only_preview", is_flag=True, help="Show what it would do; send nothing."
)
@click.option(
    "--allow-escalation",
    is_flag=True,
    help="Send it even if --method cannot be certified on so few records.",
)
@as_json
@click.option(
    "--watch", "watching", is_flag=True, help="Follow the request, or the case, to its end."
)
@_timeout
def submit(
    url: str,
    key_file: Path | None,
    keyid: str | None,
    model: str | None,
    records: tuple[str, ...],
    client: str | None,
    subject: str | None,
    person: str | None,
    on_behalf: bool,
    ticket: str | None,
    checked: str | None,
    contact: str | None,
    method: str | None,
    regulation: str,
    idempotency_key: str | None,
    callback: str | None,
    log_key: Path | None,
    only_preview: bool,
    allow_escalation: bool,
    as_json: bool,
    watching: bool,
    timeout: float | None,
) -> None:
    """Sign and submit a request to erase records, a client or a subject.

    With --person, --on-behalf and --ticket, an operator opens a case for a person instead, in
    all models or in --model. The identity is hashed here; the log records who acted.
    """
    if person is not None or on_behalf:
        signed = (key_file, keyid, client, subject, method, idempotency_key, callback, log_key)
        if person is None or not on_behalf or ticket is None:
            raise click.UsageError("a person's case needs --person, --on-behalf and --ticket")
        if records or only_preview or any(option is not None for option in signed):
            raise click.UsageError(
                "with --person leave out --key, --keyid, --record, --client, --subject, "
                "--method, --idempotency-key, --callback, --log-key and --preview"
            )
        identity = parse(person)
        with Client(url, token=saved.token_for(url)) as service:
            found = service.open_case(
                identity,
                ticket,
                models=None if model is None else [model],
                regulation=regulation,
                checked=checked,
                contact=contact,
            )
            if watching:
                # A user who stops waiting must know what was opened.
                click.echo(plain(f"opened case {found['ref']}, waiting for it …"), err=True)
                found = wait_for_case(service, found, timeout)
        print_case(found, as_json)
        if all(part["outcome"] == NOTHING_FOUND for part in found["parts"]):
            say_kind(identity.kind)
        if watching and any(part["outcome"] not in SETTLED for part in found["parts"]):
            sys.exit(1)
        return
    if ticket is not None or checked is not None or contact is not None:
        raise click.UsageError("--ticket, --checked and --contact need --person")
    if model is None:
        raise click.UsageError("name the model with --model")
    signer = find_signer(url, key_file, keyid)
    if signer is None:
        raise click.UsageError("give your --key, or save it with `lethe login --key`")
    log_file = log_key or signer.log_key
    log = None if log_file is None else _read_vkey(log_file)
    with signing_client(url, signer, log) as service:
        scope: _Scope = {"records": records or None, "client": client, "subject": subject}
        try:
            if only_preview:
                preview = service.preview_erasure(model, method=method, **scope)
                print_preview(preview, as_json)
                return
            told = None
            if not allow_escalation:
                told = _tell_if_uncertifiable(service, model, method, scope)
            receipt = service.submit_erasure(
                model,
                **scope,
                method=method,
                regulation=regulation,
                idempotency_key=idempotency_key,
                callback=callback,
            )
        except ProblemError as error:
            raise _naming_records(_naming_the_earlier(error), records) from None
        for warning in receipt.warnings:
            if warning != told:
                click.echo(f"warning: {plain(warning)}", err=True)
        print_receipt(receipt, as_json, verified=log is not None)
        if watching:
            watch_request(service, receipt.id, timeout, as_json)


@request.command()
@click.argument("request_id", metavar="ID")
@service_url
@as_json
def status(request_id: str, url: str, as_json: bool) -> None:
    """Show the state of the request ID; with LETHE_TOKEN, ID may be its reference."""
    token = saved.token_for(url)
    with Client(url, token=token) as service:
        try:
            shown = service.status(request_id)
        except ProblemError as error:
            found = _id_of(service, token, request_id) if error.slug == "not-found" else None
            if found is None:
                raise
            shown = service.status(found)
    print_status(shown, as_json)


@request.command("list")
@service_url
@reading_token
@click.option(
    "--state", type=click.Choice(STATES), metavar="STATE", help="Only requests in this state."
)
@click.option("--model", help="Only requests for this model.")
@click.option("--method", help="Only requests by this method.")
@click.option("--overdue", is_flag=True, help="Only requests past their deadline.")
@click.option("--since", type=_DAY, help="Only requests received on this day (UTC) or later.")
@click.option("--until", type=_DAY, help="Only requests received before this day (UTC).")
@each_as_json
def list_requests(
    url: str,
    token: str,
    state: str | None,
    model: str | None,
    method: str | None,
    overdue: bool,
    since: datetime | None,
    until: datetime | None,
    as_json: bool,
) -> None:
    """List requests, oldest first; options filter them."""
    with Client(url, token=token) as service:
        found = service.requests(
            state=state,
            model=model,
            method=method,
            overdue=overdue or None,
            since=None if since is None else since.replace(tzinfo=UTC),
            until=None if until is None else until.replace(tzinfo=UTC),
        )
        if as_json:
            for one in found:
                print_json(one.document)
            return
        print_table(
            ("REQUEST", "MODEL", "STATE", "RECEIVED", "DUE"),
            (
                (
                    one.id or one.ref,
                    one.model,
                    one.state,
                    f"{one.received_at:%Y-%m-%d}",
                    f"{one.due_at:%Y-%m-%d}",
                )
                for one in found
            ),
        )


@request.command()
@click.argument("request_id", metavar="ID")
@service_url
@as_json
@_timeout
def watch(request_id: str, url: str, as_json: bool, timeout: float | None) -> None:
    """Follow the request ID to its end, with a line for each state.

    Exits with 0 once it is certified, with 1 if it ends otherwise, with 2 after the time-out.
    """
    with Client(url) as service:
        watch_request(service, request_id, timeout, as_json)


@request.command()
@click.argument("request_id", metavar="ID")
@service_url
@_key
@_keyid
@as_json
def withdraw(
    request_id: str, url: str, key_file: Path | None, keyid: str | None, as_json: bool
) -> None:
    """Withdraw the request ID before a worker starts it, with the key that signed it.

    Without --key: a request that you submitted on behalf of a person, with LETHE_TOKEN.
    """
    as_operator = key_file is None and "LETHE_TOKEN" in os.environ
    signer = None if as_operator else find_signer(url, key_file, keyid)
    if signer is not None:
        with signing_client(url, signer, None) as service:
            shown = service.withdraw(request_id)
    else:
        token = saved.token_for(url)
        if token is None or keyid is not None:
            raise click.UsageError("give your --key, or as an operator LETHE_TOKEN alone")
        with Client(url, token=token) as service:
            shown = service.withdraw(request_id)
    print_status(shown, as_json)


def _id_of(service: Client, token: str | None, ref: str) -> str | None:
    """Return the id of the request with a reference, None without an operator's token.

    The reference is public in the log; the id gives access to scope and evidence.
    """
    if not token:
        return None
    for part in service.case(ref)["parts"]:
        if part["request_ref"] == ref:
            return str(part["request"])
    return None


def _naming_records(error: ProblemError, records: tuple[str, ...]) -> ProblemError:
    """Return a refusal with the records at the places that it refers to."""
    named = [records[place - 1] for place in error.places(len(records))]
    if not named:
        return error
    detail = f"{error.detail} (records {', '.join(plain(one) for one in named)})"
    return ProblemError(error.status, error.slug, error.title, detail, error.members)


def _naming_the_earlier(error: ProblemError) -> ProblemError:
    """Return a refusal with the reference of the earlier request, if it names one."""
    ref = error.members.get("ref")
    if not isinstance(ref, str):
        return error
    detail = f"{error.detail} (reference {plain(ref)})"
    return ProblemError(error.status, error.slug, error.title, detail, error.members)


@request.command()
@click.argument("request_id")
@service_url
@operator_token
@click.option(
    "--why", required=True, help="Reason, for the request's history; include no names."
)
@click.argument("decision", type=click.Choice(["retry", "abandon"]))
@as_json
def decide(
    request_id: str, url: str, token: str, why: str, decision: str, as_json: bool
) -> None:
    """Decide on a request in state needs-decision; its reason names the cause.

    retry rebuilds the model from the retained rows and puts it back in service; a stalled
    request is tried again. abandon ends the request as failed. The log names the token.
    """
    with Client(url, token=token) as service:
        shown = service.decide(request_id, decision, why)
    if as_json:
        print_json(dict(shown))
    else:
        print_rows(("request", request_id), ("state", str(shown["state"])))


def _read_vkey(path: Path) -> NoteVerifier:
    # A non-UTF-8 byte is not base64 either: parse_log_vkey names the remedy.
    try:
        return parse_log_vkey(path.read_bytes().decode("utf-8", "replace").strip())
    except NoteError as error:
        raise NoteError(
            f"--log-key: {plain(path.name)} is not the log's key, log.vkey: {error.detail}"
        ) from None


def _tell_if_uncertifiable(
    service: Client, model: str, method: str | None, scope: _Scope
) -> str | None:
    """Stop before sending a request whose method cannot be certified for its records.

    If the method is the model's, the operator chose it: print the warning and return it.
    """
    try:
        preview = service.preview_erasure(model, method=method, **scope)
    except ProblemError:  # the submission reports its own, and knows idempotency keys
        return None
    if preview.certifiable:
        return None
    if method is None:
        click.echo(f"warning: {plain(preview.warnings[0])}", err=True)
        return preview.warnings[0]
    raise click.ClickException(
        f"not sent: {plain(preview.warnings[0])} --allow-escalation sends it all the same."
    )
