"""Traces for OpenTelemetry: what a call did, and the stages of the job that it queued.

Off unless LETHE_OTEL_ENDPOINT or one of the standard variables OTEL_EXPORTER_OTLP_ENDPOINT and
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. Off, these functions do nothing and import nothing.

Spans hold durations and no personal data: names and attributes are words of the code (methods,
route templates, states, kinds) and numbers, never a path, a query, a header, a request's id,
the name of a person, record or model, or the text of an error.
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
OTHER = "_OTHER"  # OpenTelemetry's word for an unknown method, which is the caller's text

_tracing: "Tracing | None" = None


class TracesError(LetheError):
    """Traces are configured and cannot be sent."""

    slug, title = "settings", "The configuration is refused"


class TraceSpan:
    """A span that takes attributes while it is open; does nothing if traces are off."""

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

    service: the process's name in traces. Raises TracesError if the extra `otel` is not
    installed.
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
    """Start spans with `tracing` from now on; None turns traces off."""
    global _tracing
    _tracing = tracing


def close() -> None:
    """Send the spans that wait, and turn traces off."""
    if _tracing is not None:
        _tracing.close()
    use(None)


@contextmanager
def call(method: str, traceparent: str | None = None) -> Iterator[TraceSpan]:
    """Run the block in the span of an HTTP call, whose id is in `app.logs`."""
    if _tracing is None:
        yield _NOTHING
        return
    known = known_method(method)
    parent = None if traceparent is None else _tracing.of_caller(traceparent)
    said = {"http.request.method": known}
    with _tracing.span(known, "server", said, parent=parent) as span:
        yield TraceSpan(span)


def known_method(method: str) -> str:
    """Return a method's name in spans, OTHER if it is unknown."""
    return method if method in METHODS else OTHER


def caller_id(traceparent: str | None) -> str | None:
    """Return the trace id of a caller's header `traceparent`, None if traces are off."""
    if _tracing is None or traceparent is None:
        return None
    parts = traceparent.split("-")
    return parts[1] if len(parts) > 3 and _tracing.of_caller(traceparent) else None


def queued(job_id: str, kind: str) -> None:
    """Emit, in the call that queued a job and once it is durable, the parent of its stages."""
    if _tracing is not None:
        _tracing.queued(job_id, kind)


@contextmanager
def stage(
    job_id: str, call_id: str | None, name: str, kind: str, tries: int
) -> Iterator[TraceSpan]:
    """Run the block in the span of a job's stage, in the trace of the call that queued it."""
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
    """Run the block in a child of the current span; outside of spans it gets none.

    links: spans on whose behalf the block works; with them it gets a span of its own.
    """
    if _tracing is None or (links is None and here() is None):
        yield _NOTHING
        return
    with _tracing.span(name, kind, {}, links=links or ()) as span:
        yield TraceSpan(span)


def here() -> Any:
    """Return the current span as a link for `part`, None outside of spans."""
    if _tracing is None:
        return None
    from app.otel import current

    return current()
