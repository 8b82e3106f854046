"""Client-side parsing of server-sent events (WHATWG HTML section 9.2.6)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lethe.client.answers import Document
from lethe.client.errors import AnswerError

MOST = 2**20  # characters of a line or an event; a history item has a few hundred
LONGEST_INDEX = 18  # digits; Python refuses to convert thousands of digits


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event. kind: history, progress or end. log_index: of a history item, else None."""

    kind: str
    log_index: int | None
    data: Document = field(repr=False)


class EventParser:
    """Parses pieces of a stream into events."""

    def __init__(self) -> None:
        self._rest: list[str] = []  # pieces of the incomplete line, joined once
        self._length = 0  # of these pieces
        self._fields: dict[str, str] = {}
        self._size = 0  # of the incomplete event

    def feed(self, text: str) -> Iterator[StreamEvent]:
        """Yield the events that this piece of text completes.

        Raises AnswerError: a line or an event is too long, or its data is not a JSON object.
        """
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = "".join((*self._rest, lines[0]))
            self._rest, self._length = [], 0
        self._rest.append(rest)
        self._length += len(rest)
        if self._length > MOST:
            raise AnswerError(
                f"the service's stream has a line of more than {MOST} characters: is "
                "the URL right?"
            )
        for line in lines:
            line = line.removesuffix("\r")
            if not line:
                if "data" in self._fields:
                    yield self._event()
                self._fields, self._size = {}, 0
            elif not line.startswith(":"):  # a comment: the stream is alive
                self._size += len(line)
                if self._size > MOST:
                    raise AnswerError(
                        f"the service's stream has an event of more than {MOST} characters: is "
                        "the URL right?"
                    )
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "data" and "data" in self._fields:
                    value = f"{self._fields['data']}\n{value}"
                self._fields[name] = value

    def _event(self) -> StreamEvent:
        number = self._fields.get("id", "")
        try:
            data: Any = json.loads(self._fields["data"])
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise AnswerError(
                "an event of the service's stream is no JSON object: is the URL right?"
            )
        counted = number.isascii() and number.isdigit() and len(number) <= LONGEST_INDEX
        index = int(number) if counted else None
        return StreamEvent(self._fields.get("event", "message"), index, data)
