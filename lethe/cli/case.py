"""`lethe case`: list, decide on, answer and close cases, and single requests.

A person's identity is hashed here. Only digests are sent, in a body and never in a URL.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.decorators import FC

from lethe.catalogue import EXTENSIONS, PAUSES, REFUSALS
from lethe.cli import saved
from lethe.cli.case_receipt import verify_receipt
from lethe.cli.options import (
    FILE,
    OUT_FILE,
    OUT_FOLDER,
    STATES,
    as_json,
    count,
    plain,
    print_answer,
    print_failed,
    print_json,
    print_rows,
    print_table,
    service_url,
)
from lethe.cli.text.case import HELD_OUT_ONLY, count_removed, print_case, say_kind
from lethe.identity import Identity, parse
from lethe.report.queue import COLUMNS, write_lines

if TYPE_CHECKING:
    from lethe.client import Client

_ref = click.argument("ref")
_MODEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")


def _reason(known: Mapping[str, Mapping[str, str]]) -> Callable[[FC], FC]:
    """Return an option --reason: codes of any regulation, explained by regulation."""
    words = "; ".join(
        f"{law.upper()}: {', '.join(codes)}" for law, codes in known.items() if codes
    )
    choice = click.Choice(sorted({code for codes in known.values() for code in codes}))
    return click.option(
        "--reason", required=True, type=choice, metavar="CODE", help=f"One of {words}."
    )


@click.group()
def case() -> None:
    """List, decide on, answer and close cases and requests; REF is the reference of either.

    Needs an officer's or operator's token in LETHE_TOKEN.
    """


case.add_command(verify_receipt)


def _on_ref(function: Callable[..., None]) -> click.Command:
    """Make a command of the group that takes --url, REF and --json, with its own options."""
    return case.command()(service_url(_ref(as_json(function))))


@case.command("list")
@service_url
@click.option(
    "--due-within",
    type=click.IntRange(0, 3650),
    metavar="DAYS",
    help="Cases due within DAYS days.",
)
@click.option(
    "--overdue/--not-overdue",
    default=None,
    help="Only cases past their deadline, or only the others.",
)
@click.option(
    "--state",
    type=click.Choice((*STATES, "answered")),
    metavar="STATE",
    help="A request's state, or answered: cases to be closed.",
)
@click.option(
    "--held/--not-held", default=None, help="Only cases under a legal hold, or only the others."
)
@click.option("--model", help="Reference of the model.")
@click.option(
    "--person",
    metavar="KIND=VALUE",
    help="All cases of this person; the value is hashed locally.",
)
@click.option("--requester", help="A keyid, or the name of an operator's token.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Maximum number of lines. Default: 50; no limit with --json or --csv.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@as_json
def list_cases(
    url: str,
    person: str | None,
    limit: int | None,
    as_csv: bool,
    as_json: bool,
    **filters: str | int | bool | None,
) -> None:
    """List open cases and requests, most urgent first; options filter them."""
    if as_csv and as_json:
        raise click.UsageError("choose --csv or --json")
    if limit is None and not (as_csv or as_json):
        limit = 50
    wanted = {name: value for name, value in filters.items() if value is not None}
    identity = None if person is None else parse(person)
    with saved.client(url) as operator:
        items = _queue(operator, wanted, identity)
        found = list(items if limit is None else islice(items, limit))
        more = next(items, None) is not None
    if as_json:
        click.echo(json.dumps(found))
    elif as_csv:
        click.echo(",".join(COLUMNS))
        write_lines(
            sys.stdout,
            (
                {
                    name: plain(one) if isinstance(one := item[name], str) else one
                    for name in COLUMNS
                }
                for item in found
            ),
        )
    else:
        _print_queue(found)
        if identity is not None and not found:
            say_kind(identity.kind)
    if more:
        click.echo("more follow: raise --limit, or narrow the list", err=True)


def _queue(
    operator: "Client", wanted: Mapping[str, Any], person: Identity | None
) -> Iterator[Mapping[str, Any]]:
    """Yield the items of all pages. Raises AnswerError: a cursor leads back to itself."""
    from lethe.client.errors import AnswerError

    after: dict[str, Any] = {}
    while True:
        page = operator.search_cases({**wanted, **after, "limit": 1000}, person)
        yield from page["items"]
        if page["next"] is None:
            return
        if page["next"] == after.get("after"):
            raise AnswerError("the service's list does not end: its cursor leads to itself")
        after = {"after": page["next"]}


def _print_queue(found: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        ("days left", "state", "model", "requester", "reference", "case", "hold"),
        (
            (
                str(item["days_left"]),
                item["state"],
                item["model"] or "-",
                item["requester"] or "-",
                item["ref"],
                item["case"] if item["case"] not in (None, item["ref"]) else "",
                "held" if item["held"] else "",
            )
            for item in found
        ),
    )


@_on_ref
def show(url: str, ref: str, as_json: bool) -> None:
    """Show the parts, deadline and timeline of the case REF."""
    with saved.client(url) as operator:
        print_case(operator.case(ref), as_json)


@_on_ref
def contact(url: str, ref: str, as_json: bool) -> None:
    """Print the contact address of the case REF; the log records that you read it."""
    with saved.client(url) as operator:
        opened = operator.open_contact(ref)
    print_answer(opened, as_json, opened["contact"])
    if not as_json:
        click.echo(plain(f"opened with log entry {opened['log_index']}"), err=True)


@_on_ref
def close(url: str, ref: str, as_json: bool) -> None:
    """Close the answered case REF and destroy its contact address."""
    with saved.client(url) as operator:
        print_case(operator.close_case(ref), as_json)


@_on_ref
def approve(url: str, ref: str, as_json: bool) -> None:
    """Approve the execution of REF, a case or a request, that waits for review.

    Nobody approves what they submitted: it needs a token of another name.
    """
    _decide(url, ref, "approve", as_json)


@_on_ref
@_reason(REFUSALS)
def refuse(url: str, ref: str, reason: str, as_json: bool) -> None:
    """Refuse the requests of REF, a case or a request, that no worker has started.

    The person reads the reason and where to complain.
    """
    shown = _decide(url, ref, "refuse", as_json, reason)
    left = [part for part in shown["parts"] if part["outcome"] == "in progress"]
    if left:
        models = ", ".join(f"{part['model']} ({part['state']})" for part in left)
        click.echo(plain(f"not refused, and still in progress: {models}"), err=True)


@_on_ref
@_reason(EXTENSIONS)
def extend(url: str, ref: str, reason: str, as_json: bool) -> None:
    """Extend the deadline of REF once: by two months (GDPR) or 45 days (CCPA)."""
    _decide(url, ref, "extend", as_json, reason)


@_on_ref
@_reason(PAUSES)
def pause(url: str, ref: str, reason: str, as_json: bool) -> None:
    """Pause the deadline of REF until the person answers (GDPR only)."""
    _decide(url, ref, "pause", as_json, reason)


@_on_ref
def resume(url: str, ref: str, as_json: bool) -> None:
    """Resume the deadline of REF; it moves by the length of the pause."""
    _decide(url, ref, "resume", as_json)


@_on_ref
@click.argument("text")
def note(url: str, ref: str, text: str, as_json: bool) -> None:
    """Add the note TEXT to REF for operators and officers; name no person in it."""
    _decide(url, ref, "note", as_json, text)


@_on_ref
@click.argument("to")
def assign(url: str, ref: str, to: str, as_json: bool) -> None:
    """Assign REF to the operator or officer whose token is named TO."""
    _decide(url, ref, "assign", as_json, to)


def _decide(
    url: str, ref: str, decision: str, as_json: bool, value: str | None = None
) -> Mapping[str, Any]:
    """Decide on a case or request, print it and return it."""
    with saved.client(url) as operator:
        found = operator.decide_case(ref, decision, value)
    print_case(found, as_json)
    return found


@case.command()
@service_url
@_ref
@click.option("--out", required=True, type=OUT_FILE, help="Output file.")
@click.option(
    "--certificates",
    "folder",
    type=OUT_FOLDER,
    help="A folder for the certificates of the case's parts.",
)
def summary(url: str, ref: str, out: Path, folder: Path | None) -> None:
    """Download the signed answer to the case REF, once no part is in progress."""
    written = [out]
    with saved.client(url) as operator:
        out.write_bytes(operator.case_summary(ref))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for part in operator.case(ref)["parts"]:
                if part["certificate"] is not None:
                    file = folder / _certificate_name(part["model"])
                    file.write_bytes(operator.certificate(part["request"]))
                    written.append(file)
    for file in written:
        click.echo(str(file))


def _certificate_name(model: object) -> str:
    """Return the file name of a certificate.

    Raises AnswerError unless the service's id is safe.
    """
    from lethe.client.errors import AnswerError

    # The service must not choose a directory.
    if not isinstance(model, str) or not _MODEL.fullmatch(model):
        raise AnswerError("the service's answer has an invalid model reference")
    return f"{model}.sigstore.json"


@case.command()
@click.argument("file", type=FILE)
@click.option("--issuer-key", type=FILE, required=True, help="The issuer's public key (PEM).")
@click.option(
    "--certificate",
    "certificates",
    type=FILE,
    multiple=True,
    help="A certificate that the answer must name; repeatable.",
)
@as_json
def verify(file: Path, issuer_key: Path, certificates: tuple[Path, ...], as_json: bool) -> None:
    """Verify the signed answer to a case offline.

    Verify its certificates with `lethe certificate verify` too. Exits with 0 if the
    answer verifies, 1 if it does not, 2 if a file cannot be used.
    """
    from lethe.certificates.case_summary import check_summary
    from lethe.certificates.keys import read_issuer
    from lethe.certificates.shape import encode
    from lethe.errors import LetheError

    key = read_issuer(issuer_key)
    try:
        statement = check_summary(
            file.read_bytes(), key, [path.read_bytes() for path in certificates]
        )
    except LetheError as error:
        print_failed(error.detail, as_json)
    answer = statement.predicate
    if as_json:
        print_json({"result": "PASS", "answer": json.loads(encode(answer))})
        return
    click.echo("PASS  signed by the issuer\n")
    rows = [
        ("case", answer.case),
        ("received", answer.received_at.isoformat()),
        ("due", answer.due_at.isoformat()),
    ]
    for part in answer.parts:
        rows.append((part.model, f"{part.outcome}, {count(part.records, 'record')}"))
        if part.certificate is not None:
            rows.append(("", f"certificate sha256:{part.certificate}"))
        if part.held_out_removed:
            only = part.outcome == HELD_OUT_ONLY
            index = part.removal_log_index
            rows.append(("", count_removed(part.held_out_removed, index, only=only)))
        for one in part.decisions:
            said = [f"{one.at.isoformat()}  {one.decision}, log entry {one.log_index}"]
            said += [text for text in (one.reason, one.notice) if text is not None]
            said += [] if one.due_at is None else [f"due {one.due_at}"]
            rows.extend(("", text) for text in said)
    print_rows(*rows)
