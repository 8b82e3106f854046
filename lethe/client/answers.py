"""The service's answers as values. Unknown fields are kept in `document` and not validated."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2

from lethe import canonical
from lethe.client.documents import Answer, check_answer, name_call
from lethe.client.errors import AnswerError, ProblemError

PROBLEM_PREFIX = "urn:lethe:problem:"
_KIND = re.compile(PROBLEM_PREFIX + "[a-z][a-z0-9-]{0,79}")
FINAL_STATES = frozenset({"certified", "refused", "withdrawn", "failed"})
Document = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogReceipt:
    """Proof that the log holds the request; leaf: the entry's bytes, hashes: its audit path."""

    log_index: int
    tree_size: int
    leaf: bytes
    hashes: tuple[bytes, ...]
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a submission. `id` is a secret of its holder, `ref` its public name.

    warnings are sentences for people; they do not change the request.
    """

    id: str
    ref: str
    state: str
    due_at: datetime
    receipt: LogReceipt
    warnings: tuple[str, ...]
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a request would do if it were submitted now.

    records: how many it would claim. pairs: the most pairs of an erased and a held-out record
    that its tests could form, counted up to needed; needed: how many they need. warnings are
    sentences for people.
    """

    method: str
    records: int
    pairs: int
    needed: int
    warnings: tuple[str, ...]
    document: Document = field(repr=False, compare=False)

    @property
    def certifiable(self) -> bool:
        """Whether the method may be certified for these records."""
        return self.pairs >= self.needed


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One transition and the log entry that proves it.

    attempt: the number of the attempt that an escalation leads to, or that was executed or
    verified after one; else None.
    """

    event: str
    at: datetime
    log_index: int
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a long computation: `done` of `total` `unit`s."""

    phase: str
    done: int
    total: int
    unit: str

    def __str__(self) -> str:
        return f"{self.phase}, {self.done} of {self.total} {self.unit} done"


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """A request as its holder sees it. `certificate` is a path once there is one.

    progress is None unless a worker runs a long computation.
    """

    id: str
    state: str
    model: str
    method: str | None
    scope: Document | None  # None: its retention has ended
    due_at: datetime
    history: tuple[HistoryEvent, ...]
    certificate: str | None
    progress: Progress | None
    document: Document = field(repr=False, compare=False)

    @property
    def final(self) -> bool:
        """Whether nothing more will happen without human action.

        False for a certificate that still waits for witnesses: it has no path yet.
        """
        waits = self.state == "certified" and self.certificate is None
        return self.state in FINAL_STATES and not waits


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """A request as an operator lists it.

    id: None for auditors, because it gives access to scope and evidence.
    """

    id: str | None
    ref: str
    state: str
    model: str
    received_at: datetime
    due_at: datetime
    document: Document = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; `next` is the cursor of the following page."""

    items: tuple[Document, ...]
    next: str | None


def parse_receipt(response: httpx2.Response) -> Receipt:
    """Parse the answer to POST /v1/requests.

    Raises AnswerError: a field is missing or of another type.
    """
    document = parse_object(response)
    receipt = _typed(document, "receipt", dict)
    return Receipt(
        id=_typed(document, "id", str),
        ref=_typed(document, "ref", str),
        state=_typed(document, "state", str),
        due_at=_time(document, "due_at"),
        receipt=LogReceipt(
            log_index=_typed(receipt, "log_index", int),
            tree_size=_typed(receipt, "tree_size", int),
            leaf=_base64(_typed(receipt, "leaf", str)),
            hashes=tuple(_base64(item) for item in _typed(receipt, "hashes", list)),
            checkpoint=_typed(receipt, "checkpoint", str),
        ),
        warnings=_warnings(document),
        document=document,
    )


def parse_preview(response: httpx2.Response) -> Preview:
    """Parse the answer to POST /v1/requests/preview. Raises AnswerError."""
    document = parse_object(response)
    preview = Preview(
        method=_typed(document, "method", str),
        records=_typed(document, "records", int),
        pairs=_typed(document, "pairs", int),
        needed=_typed(document, "needed", int),
        warnings=_warnings(document),
        document=document,
    )
    if not preview.certifiable and not preview.warnings:
        raise AnswerError("the service's answer has no warnings, and too few pairs")
    return preview


def parse_status(response: httpx2.Response) -> RequestStatus:
    """Parse the answer to GET or DELETE /v1/requests/{id}.

    Raises AnswerError: a field is missing or of another type.
    """
    document = parse_object(response)
    return RequestStatus(
        id=_typed(document, "id", str),
        state=_typed(document, "state", str),
        model=_typed(document, "model", str),
        method=_optional(document, "method"),
        scope=_typed(document, "scope", dict) if document.get("scope") is not None else None,
        due_at=_time(document, "due_at"),
        history=tuple(
            HistoryEvent(
                event=_typed(item, "event", str),
                at=_time(item, "at"),
                log_index=_typed(item, "log_index", int),
                attempt=_attempt(item),
            )
            for item in _typed(document, "history", list)
        ),
        certificate=_optional(document, "certificate"),
        progress=parse_progress(document),
        document=document,
    )


def _attempt(item: Document) -> int | None:
    """Return the number of a history item's attempt, None if it states none."""
    if not isinstance(detail := item.get("detail"), dict) or "attempt" not in detail:
        return None
    try:
        return canonical.parse_decimal(_typed(detail, "attempt", str), 2**31)
    except ValueError:
        raise AnswerError(
            "the service's answer has an attempt that is no whole number: update "
            "the service or this client"
        ) from None


def parse_progress(document: Document) -> Progress | None:
    """Parse the progress in a request or a model.

    Raises AnswerError: a field of it is missing or of another type.
    """
    progress = document.get("progress")
    if progress is None:
        return None
    return Progress(
        phase=_printable(_typed(progress, "phase", str)),
        done=_count(progress, "done"),
        total=_count(progress, "total"),
        unit=_printable(_typed(progress, "unit", str)),
    )


def parse_summary(document: Document) -> RequestSummary:
    """Parse one item of GET /v1/requests.

    Raises AnswerError: a field is missing or of another type.
    """
    return RequestSummary(
        id=None if document.get("id") is None else _typed(document, "id", str),
        ref=_typed(document, "ref", str),
        state=_typed(document, "state", str),
        model=_typed(document, "model", str),
        received_at=_time(document, "received_at"),
        due_at=_time(document, "due_at"),
        document=document,
    )


def parse_page(response: httpx2.Response) -> Page:
    """Parse any list.

    Raises AnswerError: it is not `{"items": [object…], "next": cursor or null}`.
    """
    document = parse_object(response)
    items = _typed(document, "items", list)
    if not all(isinstance(item, dict) for item in items):
        raise AnswerError("the service's list has an item that is no object: is the URL right?")
    return Page(tuple(items), _optional(document, "next"))


def parse_object(response: httpx2.Response) -> Document:
    """Parse the JSON object of an answer; reading a field that it lacks raises AnswerError.

    Raises AnswerError: the body is something else, or a field has another type than the API's.
    """
    call = name_call(response)
    said = "the service's answer" if call is None else f"the service's answer to {call}"
    document = _object(response, said)
    return document if call is None else check_answer(document, call)


def _object(response: httpx2.Response, said: str) -> dict[str, Any]:
    try:
        document = canonical.loads(response.content)
    except (ValueError, RecursionError):
        raise AnswerError(f"{said} is not JSON: is the URL right?") from None
    if not isinstance(document, dict):
        raise AnswerError(f"{said} is not a JSON object: is the URL right?")
    return document


def parse_problem(response: httpx2.Response) -> ProblemError:
    """Return the error in a refusal, or only its status if a proxy answered instead."""
    try:
        document = _object(response, "a refusal")
    except AnswerError:
        document = {}
    kind, title, detail = (document.get(name) for name in ("type", "title", "detail"))
    named = isinstance(kind, str) and _KIND.fullmatch(kind)
    return ProblemError(
        response.status_code,
        str(kind).removeprefix(PROBLEM_PREFIX) if named else "unspecified",
        _printable(title) if isinstance(title, str) else f"HTTP {response.status_code}",
        _with_errors(_printable(detail), document.get("errors"))
        if isinstance(detail, str) and detail
        else f"the service answered {response.status_code} and gave no reason",
        {
            name: value
            for name, value in document.items()
            if name not in ("type", "title", "detail", "status", "instance")
        },
    )


def _with_errors(detail: str, errors: object) -> str:
    """Append the errors at each place to a detail, because only the detail is shown."""
    said = [
        f"{one['place']}: {one['problem']}"
        for one in (errors if isinstance(errors, list) else [])
        if isinstance(one, dict) and {"place", "problem"} <= one.keys()
    ]
    if not said:
        return detail
    return f"{detail.removesuffix(': see `errors`')}: {_printable('; '.join(said))}"


def _printable(text: str) -> str:
    # It is printed on terminals, which must not interpret it.
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _typed(document: Any, name: str, kind: type[T]) -> T:
    if isinstance(document, Answer):
        value = document[name]
    else:
        value = document.get(name) if isinstance(document, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise AnswerError(
            f"the service's answer lacks the field {name!r}, or has it with another "
            "type: is the URL right, and the service of this version?"
        )
    return value


def _count(document: Any, name: str) -> int:
    if not 0 <= (value := _typed(document, name, int)) < 2**63:
        raise AnswerError(f"the service's answer has no proper count {name!r}")
    return value


def _warnings(document: Document) -> tuple[str, ...]:
    found = _typed(document, "warnings", list)
    if not all(isinstance(text, str) for text in found):
        raise AnswerError("the service's answer has no proper field 'warnings'")
    return tuple(found)


def _optional(document: Document, name: str) -> str | None:
    return None if document.get(name) is None else _typed(document, name, str)


def _time(document: Any, name: str) -> datetime:
    try:
        at = datetime.fromisoformat(_typed(document, name, str))
        if at.tzinfo is None:
            raise ValueError("no zone")
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise AnswerError(f"the service's answer has no proper time {name!r}") from None


def _base64(value: object) -> bytes:
    try:
        if not isinstance(value, str):
            raise ValueError
        return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        raise AnswerError("the service's receipt holds something not base64") from None
