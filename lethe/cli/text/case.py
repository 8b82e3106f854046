"""A case as text: its parts, deadline and timeline, and the wait until it is answered."""

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import count, plain, print_rows
from lethe.cli.text.waiting import Waiting
from lethe.identity import KINDS
from lethe.words.timeline import acts

if TYPE_CHECKING:
    from lethe.client import Client

POLL_S = 0.5
# States of a part of a case that need no human action.
HELD_OUT_ONLY = "held out only"
NOTHING_FOUND = "nothing found"
# Members of a timeline's details whose names are not words.
DETAILS = {
    "due_at": "new deadline",
    "registered_by": "key registered by",
    "issued_by": "code issued by",
    "imported_by": "identity imported by",
}
SETTLED = ("certified", HELD_OUT_ONLY, "erased before", NOTHING_FOUND)


def wait_for_case(
    operator: "Client", found: Mapping[str, Any], timeout: float | None
) -> Mapping[str, Any]:
    """Return a case once no part of it is in progress, or its state after `timeout` seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    with Waiting("case") as waiting:
        while found["state"] == "open" and (end is None or time.monotonic() < end):
            if waiting.live:
                waiting.tell(plain(", ".join(part["outcome"] for part in found["parts"])), None)
            time.sleep(POLL_S)
            found = operator.case(found["ref"])
    return found


def say_kind(kind: str) -> None:
    """If nobody was found, say that a kind is only known if a model names it."""
    if kind not in KINDS:
        click.echo(
            f"nobody is found by {kind} unless a model was registered with "
            f"--person {kind}=COLUMN, or identities of this kind were imported; "
            f"Lethe's own kinds are {', '.join(KINDS)}",
            err=True,
        )


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
        *(
            ("legal hold", f"{one['id']} by {one['placed_by']}: {one['reason']}")
            for one in found["holds"]
        ),
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
            only = part["outcome"] == HELD_OUT_ONLY
            index = part["removal_log_index"]
            rows.append(("", count_removed(part["held_out_removed"], index, only=only)))
    for act in acts(found["timeline"]):
        entries = "log entry" if len(act.entries) == 1 else "log entries"
        numbers = ", ".join(str(one) for one in act.entries)
        text = f"{', '.join(act.models)}: {act.item['event']}, {entries} {numbers}"
        rows.append(("", f"{act.item['at']}  {text}"))
        for name, value in act.item["detail"].items():
            rows.append(("", f"    {DETAILS.get(name, name)}: {value}"))
    print_rows(*rows)


def _left(found: Mapping[str, Any]) -> str:
    """Return the remaining time, in words."""
    if found["overdue"]:
        return f"overdue for {count(-found['days_left'], 'day')}"
    return f"{count(found['days_left'], 'day')} left"


def count_removed(rows: int, index: int | None, *, only: bool) -> str:
    """Return the outcome for stored held-out rows, in words.

    only: no version was made from them; otherwise they may also be records, which make the bins
    of a forest, and a request erases those.
    """
    said = f"{count(rows, 'held-out row')} removed from the evaluation set, log entry {index}"
    return f"{said}: no version was fitted on them" if only else said
