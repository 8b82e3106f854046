"""`lethe person` and `lethe case`: find a person, erase on their behalf, answer them.

The identity is hashed here. Only digests are sent, in a body and never in a URL.
"""

import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.decorators import FC

from lethe.catalogue import EXTENSIONS, PAUSES, REFUSALS
from lethe.cli.case_receipt import verify_receipt
from lethe.cli.options import count, plain, service_url
from lethe.cli.saved import token_for
from lethe.cli.waiting import Waiting
from lethe.identity import Identity, IdentityError, digests, parse, parse_digest

if TYPE_CHECKING:
    from lethe.client import Client

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_json = click.option("--json", "as_json", is_flag=True, help="Print the service's JSON.")
_ref = click.argument("ref")


def _reason(known: Mapping[str, Mapping[str, str]]) -> Callable[[FC], FC]:
    """Return an option --reason: codes of any regulation, explained by regulation."""
    words = "; ".join(
        f"{law.upper()}: {', '.join(codes)}" for law, codes in known.items() if codes
    )
    choice = click.Choice(sorted({code for codes in known.values() for code in codes}))
    return click.option(
        "--reason", required=True, type=choice, metavar="CODE", help=f"One of {words}."
    )


POLL_S = 0.5
# What a part of a case may come to without anybody having to look after it.
SETTLED = ("certified", "held out only", "erased before", "nothing found")
QUEUE_COLUMNS = (
    "ref",
    "case",
    "model",
    "state",
    "regulation",
    "requester",
    "assignee",
    "received_at",
    "due_at",
    "days_left",
    "overdue",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets compute
AT_ONCE = 5000  # identities in one call


@click.group()
def person() -> None:
    """Find people's records by e-mail address or another identity.

    Needs an operator's token in LETHE_TOKEN.
    """


@person.command()
@service_url
@click.argument("identity", metavar="KIND=VALUE")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="Look in this model; repeatable. Default: all models.",
)
@_json
def find(url: str, identity: str, models: tuple[str, ...], as_json: bool) -> None:
    """Show the records of a person in each model, by KIND=VALUE or KIND:sha256=HEX.

    Exits with 1 if no model has or had records of the person.
    """
    wanted = parse(identity)
    with _client(url) as operator:
        found = operator.find_person(wanted, models or None)
    if as_json:
        click.echo(json.dumps(found))
    else:
        for one in found:
            _print_found(one)
    if not any(one["records"] or one["held_out"] or one["erased"] for one in found):
        sys.exit(1)


def _print_found(one: Mapping[str, Any]) -> None:
    parts = []
    if one["records"]:
        parts.append(f"{len(one['records'])} records: {', '.join(one['records'])}")
    if one["held_out"]:
        names = ", ".join(one["held_out"])
        parts.append(f"{len(one['held_out'])} held out, never learned: {names}")
    if one["erased"]:
        parts.append(f"{one['erased']} erased before")
    click.echo(plain(f"{one['model']:24} {'; '.join(parts) or 'nothing found'}"))


@person.command("import")
@service_url
@click.argument("file", type=_FILE)
@click.option("--kind", required=True, help="The kind of identity, such as email.")
@click.option(
    "--record-id",
    "record",
    default="record",
    show_default=True,
    metavar="COLUMN",
    help="Column of the record ids.",
)
@click.option(
    "--column", metavar="COLUMN", help="Column of the values. Default: that named as the kind."
)
@click.option("--model", required=True, help="Reference of the model.")
@click.option("--hashed", help="The values are hex digests of this algorithm, such as sha256.")
def import_file(
    url: str,
    file: Path,
    kind: str,
    record: str,
    column: str | None,
    model: str,
    hashed: str | None,
) -> None:
    """Import identities of a model's records from a CSV file.

    FILE has a header. Of its columns one has the record ids and one the values; all others are
    ignored. Of two columns the other one has the values, whatever its name. Rows without a
    value are skipped. Importing a file twice changes nothing.
    """
    from lethe.client import ProblemError

    added = count = 0
    with _client(url) as operator:
        block: list[tuple[str, Identity]] = []
        lines: list[int] = []
        for line, name, identity in _rows(file, kind, hashed, record, column):
            block.append((name, identity))
            lines.append(line)
            count += 1
            if len(block) == AT_ONCE:
                added += _send(operator, model, block, lines, ProblemError)
                block, lines = [], []
        if block:
            added += _send(operator, model, block, lines, ProblemError)
    click.echo(f"{count} identities read, {added} new in {model}")


@person.command()
@service_url
@click.option("--model", required=True, help="Reference of the model.")
@click.option(
    "--record", "records", multiple=True, required=True, help="Id of a row; repeatable."
)
def remove_held_out(url: str, model: str, records: tuple[str, ...]) -> None:
    """Remove held-out rows that were sent to measure a model, by their record ids.

    Fails if one of them is not stored; then none is removed. A case removes those of its
    person by itself.
    """
    with _client(url) as operator:
        done = operator.remove_held_out(model, records)
    click.echo(_removed(done["removed"], done["log_index"]))


def _send(
    operator: "Client",
    model: str,
    block: list[tuple[str, Identity]],
    lines: list[int],
    problem: type[Any],
) -> int:
    """Send some identities; name the lines of records that the model lacks."""
    try:
        return operator.import_people(model, block)
    except problem as error:
        places = str(error.members.get("places", ""))
        known = [int(part) for part in places.split(", ") if part.isdigit()]
        if not known:
            raise
        named = ", ".join(f"{block[one - 1][0]} (line {lines[one - 1]})" for one in known)
        raise click.ClickException(
            plain(
                f"{model} has not learned these records: {named}; none of the {len(block)} "
                "rows of this block were imported: correct or remove them"
            )
        ) from None


def _rows(
    file: Path, kind: str, hashed: str | None, record_column: str, column: str | None
) -> Iterator[tuple[int, str, Identity]]:
    """Yield the line, record and identity of each row that has a value."""
    with file.open(newline="", encoding="utf-8-sig") as text:
        reader = csv.reader(text)
        header = [name.strip() for name in next(reader, [])]
        places = _places(header, kind, record_column, column)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header) or not row[places[0]]:
                raise click.ClickException(
                    f"line {reader.line_num}: give each of the header's columns a cell, and "
                    f"{header[places[0]]} an id"
                )
            record, value = (row[place] for place in places)
            if not value.strip():
                continue
            try:
                found = (
                    digests(kind, value)
                    if hashed is None
                    else {hashed: parse_digest(hashed, value.strip())}
                )
            except IdentityError as error:
                raise click.ClickException(f"line {reader.line_num}: {error.detail}") from None
            yield reader.line_num, record, Identity(kind, found)


def _places(
    header: Sequence[str], kind: str, record: str, column: str | None
) -> tuple[int, int]:
    """Return where the record ids and the values are. Raises click.ClickException."""
    others = [name for name in header if name != record]
    if column is None:
        column = others[0] if len(header) == 2 and len(others) == 1 else kind
    for option, name in (("--record-id", record), ("--column", column)):
        if header.count(name) != 1:
            raise click.ClickException(
                f"the file needs one column {name}; name another with {option}"
            )
    if record == column:
        raise click.ClickException("record ids and values are two columns")
    return header.index(record), header.index(column)


@click.group()
def case() -> None:
    """List, decide on, answer and close requests; REF is of a case or of a request.

    Needs an operator's token in LETHE_TOKEN.
    """


case.add_command(verify_receipt)


@case.command("list")
@service_url
@click.option("--due-within", type=click.IntRange(0, 3650), metavar="DAYS", help="Soon due.")
@click.option("--overdue/--not-overdue", default=None, help="Past their deadline, or not.")
@click.option("--state", help="A request's state, or answered: cases to be closed.")
@click.option("--model", help="Reference of the model.")
@click.option("--person", metavar="KIND=VALUE", help="Of this person; hashed here. Lists all.")
@click.option("--requester", help="A keyid, or the name of an operator's token.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Most lines. Default: 50, and with --json or --csv no limit.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@_json
def list_cases(
    url: str,
    person: str | None,
    limit: int | None,
    as_csv: bool,
    as_json: bool,
    **filters: str | int | bool | None,
) -> None:
    """List what is open, by days left; filters narrow it."""
    if as_csv and as_json:
        raise click.UsageError("choose --csv or --json")
    if limit is None and not (as_csv or as_json):
        limit = 50
    wanted = {name: value for name, value in filters.items() if value is not None}
    identity = None if person is None else parse(person)
    with _client(url) as operator:
        items = _queue(operator, wanted, identity)
        found = list(items if limit is None else islice(items, limit))
        more = next(items, None) is not None
    if as_json:
        click.echo(json.dumps(found))
    elif as_csv:
        _write_csv(found)
    else:
        _print_queue(found)
    if more:
        click.echo("more follow: raise --limit, or narrow the list", err=True)


def _queue(
    operator: "Client", wanted: Mapping[str, Any], person: Identity | None
) -> Iterator[Mapping[str, Any]]:
    """Yield the items of all pages."""
    after: dict[str, Any] = {}
    while True:
        page = operator.search_cases({**wanted, **after, "limit": 1000}, person)
        yield from page["items"]
        if page["next"] is None:
            return
        after = {"after": page["next"]}


def _write_csv(found: Sequence[Mapping[str, Any]]) -> None:
    """Print items as CSV. A cell that a spreadsheet would compute begins with an apostrophe."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(QUEUE_COLUMNS)
    for item in found:
        cells = ["" if item[name] is None else str(item[name]) for name in QUEUE_COLUMNS]
        texts = [isinstance(item[name], str) for name in QUEUE_COLUMNS]
        writer.writerow(
            f"'{cell}" if is_text and cell.startswith(FORMULA) else cell
            for cell, is_text in zip(cells, texts, strict=True)
        )


def _print_queue(found: Sequence[Mapping[str, Any]]) -> None:
    click.echo(f"{'days left':>9}  {'state':15}  {'model':16}  {'requester':16}  reference")
    for item in found:
        case = f", case {item['case']}" if item["case"] not in (None, item["ref"]) else ""
        text = (
            f"{item['days_left']:>9}  {item['state']:15}  {item['model'] or '-':16}  "
            f"{item['requester']:16}  {item['ref']}{case}"
        )
        click.echo(plain(text))


@case.command()
@service_url
@_ref
@_json
def show(url: str, ref: str, as_json: bool) -> None:
    """Show the parts, deadline and timeline of the case REF."""
    with _client(url) as operator:
        print_case(operator.case(ref), as_json)


@case.command()
@service_url
@_ref
def contact(url: str, ref: str) -> None:
    """Print the contact address of the case REF; the log records that you read it."""
    with _client(url) as operator:
        opened = operator.open_contact(ref)
    click.echo(plain(opened["contact"]))
    click.echo(f"opened with log entry {opened['log_index']}", err=True)


@case.command()
@service_url
@_ref
@_json
def close(url: str, ref: str, as_json: bool) -> None:
    """Close the answered case REF and destroy its contact address."""
    with _client(url) as operator:
        print_case(operator.close_case(ref), as_json)


@case.command()
@service_url
@_ref
@_json
def approve(url: str, ref: str, as_json: bool) -> None:
    """Approve the execution of REF, a case or a request, that waits for review.

    Nobody approves what they submitted: it needs a token of another name.
    """
    _decide(url, ref, "approve", as_json)


@case.command()
@service_url
@_ref
@_reason(REFUSALS)
@_json
def refuse(url: str, ref: str, reason: str, as_json: bool) -> None:
    """Refuse REF, a case or a request, before it is executed.

    The person reads the reason and where to complain.
    """
    _decide(url, ref, "refuse", as_json, reason)


@case.command()
@service_url
@_ref
@_reason(EXTENSIONS)
@_json
def extend(url: str, ref: str, reason: str, as_json: bool) -> None:
    """Extend the deadline of REF once: by two months (GDPR) or 45 days (CCPA)."""
    _decide(url, ref, "extend", as_json, reason)


@case.command()
@service_url
@_ref
@_reason(PAUSES)
@_json
def pause(url: str, ref: str, reason: str, as_json: bool) -> None:
    """Stop the clock of REF while its person is asked for something; GDPR alone."""
    _decide(url, ref, "pause", as_json, reason)


@case.command()
@service_url
@_ref
@_json
def resume(url: str, ref: str, as_json: bool) -> None:
    """Let the clock of REF run again; its deadline moves by the pause."""
    _decide(url, ref, "resume", as_json)


@case.command()
@service_url
@_ref
@click.argument("text")
@_json
def note(url: str, ref: str, text: str, as_json: bool) -> None:
    """Keep the note TEXT with REF for other operators; name nobody."""
    _decide(url, ref, "note", as_json, text)


@case.command()
@service_url
@_ref
@click.argument("to")
@_json
def assign(url: str, ref: str, to: str, as_json: bool) -> None:
    """Name the operator who looks after REF; TO is the name of a token."""
    _decide(url, ref, "assign", as_json, to)


def _decide(url: str, ref: str, decision: str, as_json: bool, value: str | None = None) -> None:
    with _client(url) as operator:
        print_case(operator.decide_case(ref, decision, value), as_json)


@case.command()
@service_url
@_ref
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Output file."
)
@click.option(
    "--certificates",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for the certificates of the case's parts.",
)
def summary(url: str, ref: str, out: Path, folder: Path | None) -> None:
    """Download the signed answer to the case REF, once no part is in progress."""
    written = [out]
    with _client(url) as operator:
        out.write_bytes(operator.case_summary(ref))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for part in operator.case(ref)["parts"]:
                if part["certificate"] is not None:
                    file = folder / f"{part['model']}.sigstore.json"
                    file.write_bytes(operator.certificate(part["request"]))
                    written.append(file)
    for file in written:
        click.echo(str(file))


@case.command()
@click.argument("file", type=_FILE)
@click.option("--issuer-key", type=_FILE, required=True, help="The issuer's public key (PEM).")
@click.option(
    "--certificate",
    "certificates",
    type=_FILE,
    multiple=True,
    help="A certificate that the answer must name; repeatable.",
)
def verify(file: Path, issuer_key: Path, certificates: tuple[Path, ...]) -> None:
    """Verify the signed answer to a case offline.

    Verify its certificates with `lethe certificate verify` too. Exits with 0 if the
    answer verifies, 1 if it does not, 2 if a file cannot be used.
    """
    from lethe.certificates.case_summary import check_summary
    from lethe.certificates.keys import read_issuer
    from lethe.errors import LetheError

    key = read_issuer(issuer_key)
    try:
        statement = check_summary(
            file.read_bytes(), key, [path.read_bytes() for path in certificates]
        )
    except LetheError as error:
        click.echo(f"FAIL  {error.detail}")
        sys.exit(1)
    click.echo("PASS  signed by the issuer\n")
    answer = statement.predicate
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
            rows.append(("", _removed(part.held_out_removed, part.removal_log_index)))
        for one in part.decisions:
            said = [f"{one.at.isoformat()}  {one.decision}, log entry {one.log_index}"]
            said += [text for text in (one.reason, one.notice) if text is not None]
            said += [] if one.due_at is None else [f"due {one.due_at}"]
            rows.extend(("", text) for text in said)
    for label, text in rows:
        click.echo(plain(f"{label:12} {text}"))


def wait_for_case(
    operator: "Client", found: Mapping[str, Any], timeout: float | None
) -> Mapping[str, Any]:
    """Return a case once no part of it is in progress, or as it is after `timeout` seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    with Waiting("case") as waiting:
        while found["state"] == "open" and (end is None or time.monotonic() < end):
            if waiting.live:
                waiting.tell(plain(", ".join(part["outcome"] for part in found["parts"])), None)
            time.sleep(POLL_S)
            found = operator.case(found["ref"])
    return found


def print_case(found: Mapping[str, Any], as_json: bool) -> None:
    """Print a case."""
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        ("case", found["ref"]),
        ("state", found["state"]),
        ("due", f"{found['due_at']}, {_left(found)}"),
        *([("confirm by", found["confirm_by"])] if found["confirm_by"] else []),
        ("opened by", found["opened_by"]),
    ]
    for part in found["parts"]:
        state = f" ({part['state']})" if part["outcome"] == "in progress" else ""
        rows.append(
            (part["model"], f"{part['outcome']}{state}, {count(part['records'], 'record')}")
        )
        if part["request"] is not None:
            rows.append(("", f"request {part['request']}"))
        if part["assignee"] is not None:
            rows.append(("", f"assigned to {part['assignee']}"))
        if part["certificate"] is not None:
            rows.append(("", f"certificate {part['certificate']}"))
        if part["held_out_removed"]:
            rows.append(("", _removed(part["held_out_removed"], part["removal_log_index"])))
    for item in found["timeline"]:
        text = f"{item['at']}  {item['model']}: {item['event']}, log entry {item['log_index']}"
        rows.append(("", text))
        rows.extend(("", f"    {name}: {value}") for name, value in item["detail"].items())
    for label, text in rows:
        click.echo(plain(f"{label:12} {text}"))


def _left(found: Mapping[str, Any]) -> str:
    """Return how much time is left, in words."""
    if found["overdue"]:
        return f"overdue for {count(-found['days_left'], 'day')}"
    return f"{count(found['days_left'], 'day')} left"


def _removed(rows: int, index: int | None) -> str:
    """Return what became of stored held-out rows, in words."""
    return (
        f"{count(rows, 'held-out row')} removed from the evaluation set, log entry {index}: "
        "no version was fitted on them"
    )


def _client(url: str) -> "Client":
    from lethe.client import Client

    return Client(url, token=token_for(url))
