"""Traces: one from the call to the certificate, nobody named in any span, nothing when off."""

import io
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import text

from app import logs, traces
from app.settings import Settings
from tests.installation import Installation, answer_errors

CALL = "4bf92f35-77b3-4da6-a3ce-929d0e0e4736"
TRACE = CALL.replace("-", "")
PARENT = "00f067aa0ba902b7"


def ended(spans: InMemorySpanExporter, *names: str) -> list[Any]:
    """Return the spans that ended, of these names or all."""
    return [one for one in spans.get_finished_spans() if not names or one.name in names]


def of_trace(spans: InMemorySpanExporter, trace: str = TRACE) -> dict[str, Any]:
    """Return the spans of a trace by their names, each of which is there once."""
    found = [
        one for one in spans.get_finished_spans() if f"{one.context.trace_id:032x}" == trace
    ]
    by_name = {one.name: one for one in found if one.name != "log transaction"}
    assert len(by_name) == len([one for one in found if one.name != "log transaction"])
    return by_name


def test_one_trace_leads_from_the_call_to_the_certificate(
    ready: Installation, spans: InMemorySpanExporter
) -> None:
    answer = ready.caller.erase_records("r1", headers={"x-request-id": CALL})
    assert answer.status_code == 202
    ready.drain()
    status = ready.caller.http.get(f"/v1/requests/{answer.json()['id']}").json()
    assert status["state"] == "certified"
    found = of_trace(spans)
    post = found["POST /v1/requests"]
    assert post.parent is None
    assert post.kind.name == "SERVER"
    assert post.attributes["http.request.method"] == "POST"
    assert post.attributes["http.route"] == "/v1/requests"
    assert post.attributes["http.response.status_code"] == 202
    assert post.attributes["lethe.operation"] == "submitRequest"
    for name in ("request admission", "job queued"):
        assert found[name].parent.span_id == post.context.span_id
    for stage in ("execute", "verify", "certify"):
        span = found[f"job {stage}"]
        assert span.parent.span_id == found["job queued"].context.span_id
        assert span.attributes["lethe.job.stage"] == stage
        assert span.attributes["lethe.job.kind"] == "erase"
        assert span.status.is_ok or span.status.status_code.name == "UNSET"
    (batch,) = ended(spans, "log batch")
    assert [one.context.span_id for one in batch.links] == [
        found["request admission"].context.span_id
    ]
    assert batch.attributes["lethe.batch.items"] == 1


def test_each_of_two_requests_with_one_call_id_has_its_own_stages(
    ready: Installation, spans: InMemorySpanExporter
) -> None:
    """A caller may give all its calls one id: span ids are not shared between its jobs."""
    for record in ("r1", "r2"):
        ready.caller.erase_records(record, headers={"x-request-id": CALL})
        ready.drain()
    ids = {one.context.span_id for one in ended(spans, "job queued")}
    assert len(ids) == 2
    assert {one.parent.span_id for one in ended(spans, "job execute")} == ids


def test_a_callers_trace_is_gone_on_with(
    ready: Installation, spans: InMemorySpanExporter
) -> None:
    header = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    answer = ready.caller.http.get("/v1/keys", headers=header)
    assert answer.headers["x-request-id"] == TRACE
    assert f"{of_trace(spans)['GET /v1/keys'].parent.span_id:016x}" == PARENT
    # An X-Request-Id is kept, so the trace has its id and not the other.
    own = "0b5d1c1e-6a4e-4b52-9d39-0d5a6c6d2f11"
    answer = ready.caller.http.get("/v1/keys", headers={**header, "x-request-id": own})
    assert answer.headers["x-request-id"] == own
    assert of_trace(spans, own.replace("-", ""))["GET /v1/keys"].parent is None


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "x",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-jane.doe-{PARENT}-01",
    ],
)
def test_a_malformed_traceparent_is_ignored(
    ready: Installation, spans: InMemorySpanExporter, sent: str
) -> None:
    answer = ready.caller.http.get("/v1/keys", headers={"traceparent": sent})
    assert logs.accept_call_id(answer.headers["x-request-id"]) == answer.headers["x-request-id"]
    assert answer.headers["x-request-id"] != TRACE
    (span,) = ended(spans, "GET /v1/keys")
    assert span.parent is None


def test_a_call_whose_id_is_zero_has_a_trace_all_the_same(
    ready: Installation, spans: InMemorySpanExporter
) -> None:
    ready.caller.http.get("/healthz", headers={"x-request-id": "0" * 32})
    (span,) = ended(spans)
    assert span.context.is_valid


PLANTED = "jane.doe@example.org"


def test_an_id_of_a_call_that_somebody_wrote_into_a_job_is_none(
    ready: Installation, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """It would stop the job where traces are on, and could pass for another line of the log."""
    ready.caller.erase_records("r1")
    with ready.services.engine.begin() as connection:
        connection.execute(
            text("UPDATE jobs SET call_id = :it"), {"it": "1\n2026 error: forged"}
        )
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs.TextLines())
    with caplog.at_level(logging.INFO, "workers"):
        logging.getLogger("workers").addHandler(handler)
        ready.drain()
        logging.getLogger("workers").removeHandler(handler)
    assert "execute begins" in written.getvalue()
    assert "forged" not in written.getvalue()
    assert ended(spans, "job certify")


def test_no_span_names_anybody(
    ready: Installation, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = ready.caller.http
    # Where a library has set a global provider, FastAPI's own spans would go there.
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    answer = ready.caller.erase_records("r1")
    ready.drain()
    request = answer.json()["id"]
    http.get(f"/v1/requests/{request}")
    http.get(f"/v1/requests/{PLANTED}")
    http.get(f"/nowhere/{PLANTED}?q={PLANTED}", headers={"user-agent": PLANTED})
    http.get(f"/v1/log/entries?ref={PLANTED}")
    http.request("JANEDOE", f"/v1/requests/{PLANTED}", headers={"x-request-id": PLANTED})
    http.post("/v1/requests", content=PLANTED.encode())

    def explode(*_: object) -> None:
        raise RuntimeError(PLANTED)

    answer_errors(http)
    with monkeypatch.context() as patch:
        patch.setattr("app.service.acceptance.admit", explode)
        assert ready.caller.erase_records("r2").status_code == 500
    monkeypatch.setattr("workers.jobs.execute.erase", explode)
    ready.caller.erase_records("r3")
    ready.drain()
    told = [json.loads(one.to_json()) for one in spans.get_finished_spans()]
    failed = [one for one in told if one["status"]["status_code"] == "ERROR"]
    assert {"POST /v1/requests", "request admission", "job execute"} <= {
        one["name"] for one in failed
    }
    assert all(one["attributes"]["error.type"] in ("500", "RuntimeError") for one in failed)
    assert not any(one["events"] for one in told)
    assert "_OTHER" in {one["attributes"].get("http.request.method") for one in told}
    text = json.dumps(told).lower()
    for secret in (PLANTED, "jane", request, '"r1"', "small", "alice"):
        assert secret not in text, secret


OFF = """
import sys
import app.main, app.cli.serve
from app import traces
from app.settings import Settings
traces.configure(Settings(), "x")
with traces.call("GET"), traces.stage("1", None, "execute", "erase", 1), traces.part("p", links=()):
    traces.queued("1", "erase")
    assert traces.here() is None
# FastAPI imports OpenTelemetry's interface by itself, which does nothing without an SDK.
heavy = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto", "google", "requests", "app.otel")
assert not [name for name in sys.modules if name.startswith(heavy)]
"""


def test_nothing_is_sent_or_imported_where_traces_are_off() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFF], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_the_extra_the_start_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "app.otel", None)
    settings = Settings.model_validate({"otel_endpoint": "http://127.0.0.1:4318"})
    with pytest.raises(traces.TracesError, match=r"install .* '\.\[otel\]'"):
        traces.configure(settings, "x")
    traces.configure(Settings(), "x")  # off: nothing is needed
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    with pytest.raises(traces.TracesError):
        traces.configure(Settings(), "x")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    traces.configure(settings, "x")
