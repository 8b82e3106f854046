"""A request as text: its preview, receipt and status, and each state to its end."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import click

from lethe.cli.options import plain, print_json, print_rows
from lethe.cli.text.waiting import Waiting
from lethe.client import Client, HistoryEvent, Preview, ProblemError, Receipt, RequestStatus
from lethe.client.errors import AnswerError, UnreachableError


def print_preview(preview: Preview, as_json: bool) -> None:
    """Print a request's preview, and its warnings to standard error."""
    if as_json:
        print_json(preview.document)
        return
    print_rows(("records", str(preview.records)), ("method", preview.method))
    for warning in preview.warnings:
        click.echo(f"warning: {plain(warning)}", err=True)


def print_receipt(receipt: Receipt, as_json: bool, *, verified: bool) -> None:
    """Print a receipt, and whether its proof of inclusion was verified."""
    if as_json:
        print_json(receipt.document)
        return
    proof = receipt.receipt
    proven = "inclusion verified" if verified else "not verified: give --log-key"
    print_rows(
        ("request", receipt.id),
        ("reference", receipt.ref),
        ("state", receipt.state),
        ("due", format_time(receipt.due_at)),
        ("log entry", f"{proof.log_index} of {proof.tree_size}, {proven}"),
    )


def print_status(shown: RequestStatus, as_json: bool) -> None:
    """Print a request's status and history."""
    if as_json:
        print_json(shown.document)
        return
    reason = shown.document.get("reason")  # of a refusal or failure
    print_rows(
        ("request", shown.id),
        ("model", shown.model),
        ("state", shown.state),
        ("due", format_time(shown.due_at)),
        *([("reason", reason)] if isinstance(reason, str) else []),
        *_attempt(shown.document.get("attempt")),
        *([] if shown.progress is None else [("progress", str(shown.progress))]),
        ("certificate", shown.certificate or "none yet"),
        *(("", f"{format_time(event.at)}  {_transition(event)}") for event in shown.history),
    )


def _transition(event: HistoryEvent) -> str:
    attempt = "" if event.attempt is None else f", attempt {event.attempt}"
    return f"{event.event}{attempt}, log entry {event.log_index}"


def _attempt(attempt: object) -> list[tuple[str, str]]:
    """Return the line about the attempt, empty while the first one runs."""
    if not isinstance(attempt, dict) or attempt.get("number", 1) == 1:
        return []
    ahead = [str(name) for name in attempt.get("ahead", [])]
    then = f", then {', then '.join(ahead)}" if ahead else ""
    return [("attempt", f"{attempt['number']}: {attempt.get('method')}{then}")]


def format_time(at: datetime) -> str:
    """Return a time (UTC) in the commands' format."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def watch_request(
    service: Client, request_id: str, timeout: float | None, as_json: bool
) -> None:
    """Print each state of a request until it ends; exit with 1 unless it is certified."""
    said: list[str] = []

    def show(shown: RequestStatus) -> None:
        if said[-1:] == [shown.state]:  # the stream already reported it
            return
        said.append(shown.state)
        waiting.clear()
        if as_json:
            print_json(shown.document)
        else:
            at = shown.history[-1].at if shown.history else datetime.now(UTC)
            click.echo(f"{format_time(at)}  {plain(shown.state)}")

    def go_on(shown: RequestStatus) -> None:
        # For a file, lines for the states are enough.
        if waiting.live and not shown.final:
            waiting.tell(plain(shown.state), shown.progress)

    with Waiting("request") as waiting:
        if timeout is None:
            _stream(service, request_id, show, go_on)
        ended = service.wait(request_id, timeout, show, go_on)
    if ended.state != "certified":
        sys.exit(1)


def _stream(service: Client, request_id: str, *tell: Callable[[RequestStatus], object]) -> None:
    """Report the request's status at each event of its stream, until the stream ends.

    If the service has no streams, or too many, the caller polls.
    """
    try:
        for _ in service.events(request_id):
            shown = service.status(request_id)
            for one in tell:
                one(shown)
            if shown.final:
                return
    except (ProblemError, UnreachableError, AnswerError):
        return
