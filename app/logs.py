"""Log lines as JSON or text, each with the id of the HTTP call that it belongs to.

A call's id is a UUID or 32 hexadecimal digits: other text in `X-Request-Id` could write a
name into the log. The id of an erasure request is its holder's
capability and is never logged; to keep the two apart the field is `call_id`.

An exception is logged as its type and place: its text, and a traceback, may hold a row's
values.
"""

import json
import logging
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

from app.settings import Settings

OWN = ("app", "lethe", "models", "workers")
_WELL_FORMED = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|[0-9a-fA-F]{32}"  # W3C Trace Context's trace-id
)
_call_id: ContextVar[str | None] = ContextVar("call_id", default=None)


def call_id() -> str | None:
    """Return the id of the call that this code runs for, None outside of calls and jobs."""
    return _call_id.get()


def accept_call_id(sent: str | None) -> str:
    """Return the id that a caller sent if it is well-formed, else a new one."""
    return well_formed(sent) or str(uuid.uuid4())


def well_formed(sent: str | None) -> str | None:
    """Return `sent` if it is a well-formed id of a call, else None."""
    return sent if sent is not None and _WELL_FORMED.fullmatch(sent) else None


@contextmanager
def for_call(identity: str | None) -> Iterator[None]:
    """Add a call's id to the lines logged in the block."""
    token = _call_id.set(identity)
    try:
        yield
    finally:
        _call_id.reset(token)


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Log to standard error as configured, the libraries of this process included."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    for name in OWN:  # at INFO libraries log addresses, targets and tasks' arguments
        logging.getLogger(name).setLevel(settings.log_level.upper())


def place_of(trace: TracebackType | None) -> str:
    """Return file and line of the innermost frame of a traceback."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, call_id and exception if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its end."""
        return json.dumps(_fields(record), ensure_ascii=False)


class TextLines(logging.Formatter):
    """Time, level, logger and message, then the other fields as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its end."""
        found = _fields(record)
        head = [found.pop(name) for name in ("time", "level", "logger")]
        # One record is one line, or a message with line breaks could pass for other lines.
        message = found.pop("message").replace("\\", "\\\\")
        message = message.replace("\n", "\\n").replace("\r", "\\r")
        rest = [f"{name}={value}" for name, value in found.items()]
        return " ".join([*head[:2], f"{head[2]}:", message, *rest])


def _fields(record: logging.LogRecord) -> dict[str, str]:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    found = {
        "time": time.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    if (identity := call_id()) is not None:
        found["call_id"] = identity
    if record.exc_info and record.exc_info[0] is not None:
        error, _, trace = record.exc_info
        found["exception"] = f"{error.__name__} at {place_of(trace)}"
    return found
