"""OpenTelemetry's SDK and the ids of spans, for `app.traces` once traces are on.

A trace has the id of its call, which connects log lines and traces. A job's stages run later,
in other processes: the job's row has the call's id, and the id of their parent span is derived
from the job's. So no table and no message carries a span's id.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app import logs

Value = str | int | float | bool
KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}

_chosen: ContextVar[int | None] = ContextVar("span_id", default=None)


class _Ids(RandomIdGenerator):
    """Uses the call's id as trace id, and the chosen span id if there is one."""

    def generate_trace_id(self) -> int:
        return _number(logs.call_id()) or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return _chosen.get() or super().generate_span_id()


class Tracing:
    """Starts spans. Never records an exception's text, which may hold a row's values."""

    def __init__(self, service: str, processor: SpanProcessor) -> None:
        own = version("lethe-ledger")
        resource = Resource.create({"service.name": service, "service.version": own})
        self._provider = TracerProvider(resource=resource, id_generator=_Ids())
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("lethe", own)

    @contextmanager
    def span(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Value],
        *,
        parent: Context | None = None,
        links: Sequence[SpanContext] = (),
    ) -> Iterator[trace.Span]:
        """Run the block in a span; an error that leaves it is recorded by its type."""
        with self._tracer.start_as_current_span(
            name,
            parent,
            KINDS[kind],
            dict(attributes),
            [Link(one) for one in links],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                fail(span, type(error).__name__)
                raise

    def queued(self, job_id: str, kind: str) -> None:
        """Emit the span that becomes the parent of the job's stages."""
        token = _chosen.set(_span_id(job_id))
        try:
            self._tracer.start_span("job queued", attributes={"lethe.job.kind": kind}).end()
        finally:
            _chosen.reset(token)

    def of_job(self, job_id: str, call_id: str | None) -> Context | None:
        """Return the parent context of a job's stages, None for a job that no call queued."""
        number = _number(call_id)
        return None if number is None else self._remote(number, _span_id(job_id))

    def of_caller(self, traceparent: str) -> Context | None:
        """Return the span of a caller (W3C Trace Context), None if the header is invalid."""
        found = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        given = trace.get_current_span(found).get_span_context()
        return self._remote(given.trace_id, given.span_id) if given.is_valid else None

    def close(self) -> None:
        """Send the spans that wait, and shut down."""
        self._provider.shutdown()

    def _remote(self, trace_id: int, span_id: int) -> Context:
        # Sampled by the trace's id alone, so that a call and its jobs elsewhere agree.
        decided = self._provider.sampler.should_sample(None, trace_id, "call").decision
        sampled = decided is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
        return trace.set_span_in_context(NonRecordingSpan(context))


def to_collector(endpoint: str, service: str) -> Tracing:
    """Return tracing that sends to a collector in the background.

    endpoint: its base URL; empty: that of the standard variables OTEL_EXPORTER_OTLP_*.
    """
    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    return Tracing(service, BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))


def current() -> SpanContext | None:
    """Return the span that this code runs in, None outside of spans."""
    found = trace.get_current_span().get_span_context()
    return found if found.is_valid else None


def fail(span: Any, kind: str) -> None:
    """Mark a span as failed, with the kind of error."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))


def _number(call_id: str | None) -> int | None:
    # Zero is a well-formed id of a call, but no valid trace id.
    return int(call_id.replace("-", ""), 16) or None if call_id else None


def _span_id(job_id: str) -> int:
    return int.from_bytes(sha256(f"lethe job {job_id}".encode()).digest()[:8], "big") or 1
