"""Traces for OpenTelemetry: what a call did, and the stages of the job that it queued.

Off unless LETHE_OTEL_ENDPOINT or one of the standard variables OTEL_EXPORTER_OTLP_ENDPOINT and
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. Off, these functions do nothing and import nothing.

A span says how long what took, and of whom nothing: names and attributes are the code's words
(methods, route templates, states, kinds, numbers), and never a path, a query, a header, an id
of a request, a person's, record's or model's name, or the text of an error.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from app.settings import Settings
from lethe.errors import LetheError
from lethe.install import with_extra

if TYPE_CHECKING:
    from app.otel import Tracing

STANDARD = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
OTHER = "_OTHER"  # OpenTelemetry's word for a method that nobody knows: it is the caller's text

_tracing: "Tracing | None" = None


class TracesError(LetheError):
    """Traces are configured and cannot be sent."""

    slug = "settings"
    title = "The configuration is refused"


class TraceSpan:
    """A span that may be told more while it lasts; nothing happens where traces are off."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def set(self, name: str, value: str | int | float | bool) -> None:
        """Add an attribute."""
        if self._span is not None:
            self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Give the span another name, once it is known."""
        if self._span is not None:
            self._span.update_name(name)

    def fail(self, kind: str) -> None:
        """Mark the span as failed. kind: the error's type, never its text."""
        if self._span is not None:
            from app.otel import fail

            fail(self._span, kind)


_NOTHING = TraceSpan()


def configure(settings: Settings, service: str) -> None:
    """Begin to send the traces of this process, if an endpoint is set.

    service: the process's name in traces.

    Raises:
        TracesError: The extra `otel` is not installed.
    """
    wanted = settings.otel_endpoint or any(os.environ.get(name) for name in STANDARD)
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        from app.otel import to_collector
    except ImportError:
        raise TracesError(
            "traces are configured (LETHE_OTEL_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT) and "
            f"OpenTelemetry is missing: unset the variable, or run {with_extra('otel')}"
        ) from None
    use(to_collector(settings.otel_endpoint, service))


def use(tracing: "Tracing | None") -> None:
    """Have spans started by `tracing` from now on; None: traces are off."""
    global _tracing
    _tracing = tracing


def close() -> None:
    """Send what is waiting, and turn traces off."""
    if _tracing is not None:
        _tracing.close()
    use(None)


@contextmanager
def call(method: str, traceparent: str | None = None) -> Iterator[TraceSpan]:
    """Have the block be the span of an HTTP call, whose id `app.logs` has."""
    if _tracing is None:
        yield _NOTHING
        return
    known = known_method(method)
    parent = None if traceparent is None else _tracing.of_caller(traceparent)
    said = {"http.request.method": known}
    with _tracing.span(known, "server", said, parent=parent) as span:
        yield TraceSpan(span)


def known_method(method: str) -> str:
    """Return a method as spans name it."""
    return method if method in METHODS else OTHER


def caller_id(traceparent: str | None) -> str | None:
    """Return the trace id of a caller's header `traceparent`, None if traces are off."""
    if _tracing is None or traceparent is None:
        return None
    parts = traceparent.split("-")
    return parts[1] if len(parts) > 3 and _tracing.of_caller(traceparent) else None


def queued(job_id: str, kind: str) -> None:
    """Note, in the call that queued a job and once that is durable, that its stages follow."""
    if _tracing is not None:
        _tracing.queued(job_id, kind)


@contextmanager
def stage(
    job_id: str, call_id: str | None, name: str, kind: str, tries: int
) -> Iterator[TraceSpan]:
    """Have the block be a stage of a job, in the trace of the call that queued the job."""
    if _tracing is None:
        yield _NOTHING
        return
    said: dict[str, str | int] = {
        "lethe.job.kind": kind,
        "lethe.job.stage": name,
        "lethe.job.tries": tries,
    }
    parent = _tracing.of_job(job_id, call_id)
    with _tracing.span(f"job {name}", "internal", said, parent=parent) as span:
        yield TraceSpan(span)


@contextmanager
def part(
    name: str, kind: str = "internal", *, links: Sequence[Any] | None = None
) -> Iterator[TraceSpan]:
    """Have the block be a part of the span around it; without one it is no span.

    links: of spans for which the block works together: then it is a span of its own.
    """
    if _tracing is None or (links is None and here() is None):
        yield _NOTHING
        return
    with _tracing.span(name, kind, {}, links=links or ()) as span:
        yield TraceSpan(span)


def here() -> Any:
    """Return what `part` links to this span by, None outside of spans."""
    if _tracing is None:
        return None
    from app.otel import current

    return current()
