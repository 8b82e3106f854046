"""`lethe drop`: California's deletion lists, from a downloaded ZIP to files of statuses.

The lists hold only digests. Each is looked up through the service, and a person who is found
gets a case, as with `lethe request submit --person`.
"""

import csv
import fcntl
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from lethe.cli import saved
from lethe.cli.options import FILE, OUT_FOLDER, count, plain, service_url
from lethe.files import write_durably
from lethe.identity import Identity, check_kind
from lethe.protocols.drop_lists import (
    DELETED,
    EXEMPTED,
    HEADER,
    NOT_FOUND,
    TYPES,
    DropError,
    Lists,
    Row,
    checked,
    status_of_case,
    status_of_found,
)

if TYPE_CHECKING:
    from lethe.client import Client

CASES, PENDING = "cases.csv", "pending.csv"
WORDS = {EXEMPTED: "exempted", DELETED: "deleted", NOT_FOUND: "not found"}
# A line of cases.csv: work item, case and, once it is final, status. Others were truncated.
_NOTED = re.compile(r"([0-9A-Za-z]{12}),([0-9a-f-]{36}(?:,[0-9])?)")
_REF = re.compile(r"[0-9a-f-]{36}")
Kinds = Mapping[str, str]


@click.group()
def drop() -> None:
    """Process California's deletion lists (DROP) from a downloaded ZIP file.

    Needs an operator's or officer's token in LETHE_TOKEN.
    """


@drop.command()
@service_url
@click.argument("file", type=FILE)
@click.option(
    "--out",
    type=OUT_FOLDER,
    required=True,
    help="Folder for the status files; use the same one for each run of FILE.",
)
@click.option(
    "--list",
    "named",
    multiple=True,
    metavar="TYPE=KIND",
    help=f"Kind of the identities in a list; repeatable. TYPE is one of {', '.join(TYPES)}. "
    "Default: Email=email.",
)
@click.option("--dry-run", is_flag=True, help="Look up everybody; submit and write nothing.")
def process(url: str, file: Path, out: Path, named: tuple[str, ...], dry_run: bool) -> None:
    """Open a case for each person found on the lists in FILE, and write what to upload.

    Writes a file Id,Status for each list, under the list's name, and pending.csv with the work
    items that have no status yet. Run it again later: it opens no second case, and only asks
    for the state of the cases.
    Exits with 1 while something is pending.
    """
    kinds = _kinds(named)
    with checked(file) as lists, saved.client(url) as operator:
        for name, kind in lists.types.items():
            if lists.sizes[name] and kind not in kinds:
                raise DropError(
                    f"{name} has {count(lists.sizes[name], 'row')}: name the kind of identity "
                    f"that they are looked up by, as in --list {kind}=drop-{kind.lower()}; "
                    "nothing was submitted"
                )
        if dry_run:
            _rehearse(operator, lists, kinds)
            return
        out.mkdir(parents=True, exist_ok=True)
        pending = _process(operator, lists, kinds, out)
    if pending:
        raise SystemExit(1)


def _kinds(named: tuple[str, ...]) -> Kinds:
    found = {"Email": "email"}
    for text in named:
        kind, _, identity = text.partition("=")
        if kind not in TYPES:
            raise click.UsageError(
                f"--list: write TYPE=KIND, with TYPE one of {', '.join(TYPES)}"
            )
        found[kind] = check_kind(identity)
    return found


def _person(kind: str, row: Row) -> Identity:
    return Identity(kind, {"sha256": row.digest})


def _rehearse(operator: "Client", lists: Lists, kinds: Kinds) -> None:
    for name, kind in lists.types.items():
        seen: Counter[str] = Counter()
        for row in lists.rows(name):
            status = status_of_found(operator.find_person(_person(kinds[kind], row)))
            seen["to be erased" if status is None else WORDS[status]] += 1
        _print(name, seen)


def _process(operator: "Client", lists: Lists, kinds: Kinds, out: Path) -> int:
    """Write the files of each list; return the number of work items without a status."""
    waiting = [("ID", "List", "State", "Case")]
    with _cases(out / CASES) as (known, opened):
        for name, kind in lists.types.items():
            written, seen = StringIO(HEADER), Counter[str]()
            written.seek(0, os.SEEK_END)
            for row in lists.rows(name):
                status, state = _one(
                    operator, _person(kinds[kind], row), name, row, known, opened
                )
                seen["pending" if status is None else WORDS[status]] += 1
                if status is None:
                    waiting.append((row.item, name, state, _ref(known, row.item)))
                else:
                    written.write(f"{row.item},{status}\n")
            write_durably(out / name, written.getvalue().encode())
            _print(name, seen)
        for item in sorted(known.keys() & lists.removed):
            if "," not in known[item]:  # erased: this status is final
                waiting.append((item, "", "withdrawn by the consumer", _ref(known, item)))
    table = StringIO()
    csv.writer(table, lineterminator="\n").writerows(waiting)
    write_durably(out / PENDING, table.getvalue().encode())
    return len(waiting) - 1


def _one(
    operator: "Client",
    person: Identity,
    name: str,
    row: Row,
    known: dict[str, str],
    opened: TextIO,
) -> tuple[int | None, str]:
    """Return a work item's status, or None and what it waits for; open a case if needed."""
    from lethe.client import ProblemError

    if row.item in known:
        ref, _, told = known[row.item].partition(",")
        if told:
            return int(told), ""
        status, state = status_of_case(operator.case(ref))
        if status is not None:
            operator.case_summary(ref)  # refused unless the log has the case as it was shown
            _note(opened, known, row.item, f"{ref},{status}")
        return status, state
    status = status_of_found(operator.find_person(person))
    if status is not None:
        return status, ""
    try:
        case = operator.open_case(
            person,
            f"DROP {name} {row.item}",
            regulation="ccpa",
            checked="matched by a digest of California's DROP",
        )
    except ProblemError as error:
        if error.status != 409:  # 409: rows are still being learned, or were just claimed
            raise
        return None, error.slug
    # If this is lost, the next run opens a second case, which follows the first one's requests.
    _note(opened, known, row.item, _checked(case["ref"]))
    return _one(operator, person, name, row, known, opened)


def _checked(ref: object) -> str:
    """Return a case's reference. Raises AnswerError: it could add a line of its own."""
    from lethe.client.errors import AnswerError

    if not isinstance(ref, str) or not _REF.fullmatch(ref):
        raise AnswerError("the service's answer has an invalid reference of a case")
    return ref


def _ref(known: Mapping[str, str], item: str) -> str:
    return known.get(item, "").partition(",")[0]


def _note(opened: TextIO, known: dict[str, str], item: str, noted: str) -> None:
    """Add a work item's case, or case and status, durably; an item's last line counts."""
    known[item] = noted
    opened.write(f"{item},{noted}\n")
    opened.flush()
    os.fsync(opened.fileno())


@contextmanager
def _cases(path: Path) -> Iterator[tuple[dict[str, str], TextIO]]:
    """Yield the cases and statuses of earlier runs by work item, and the file for new ones.

    Raises DropError: another command has the file, and would open a second case for a person.
    """
    path.touch(mode=0o600)
    with path.open("a", encoding="ascii") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DropError(
                f"another command processes lists into {path.parent}: wait for its end"
            ) from None
        text = path.read_text("ascii")
        found = (_NOTED.fullmatch(line) for line in text.splitlines())
        known = {match[1]: match[2] for match in found if match is not None}
        if text and not text.endswith("\n"):
            opened.write("\n")  # a crash truncated the line: the next one must not continue it
        yield known, opened


def _print(name: str, seen: Counter[str]) -> None:
    parts = [f"{number} {word}" for word, number in sorted(seen.items())]
    click.echo(plain(f"{name:32} {count(seen.total(), 'row')}: {', '.join(parts) or 'none'}"))
