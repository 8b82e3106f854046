"""Traces over the wire: what a collector receives from the processes of an installation."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lethe.client import RequestStatus
from tests.e2e.harness import Processes, until
from tests.small import MODEL

collector = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
    reason="needs the extra `otel`",
)


class Collector(ThreadingHTTPServer):
    """Reads OTLP over HTTP as protobuf; keeps each span with its service's name."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Spans)
        self.bodies: list[bytes] = []
        self.spans: list[tuple[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Spans(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        exported = collector.ExportTraceServiceRequest.FromString(body)
        for resource in exported.resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.server.spans += [(named["service.name"], one) for one in scope.spans]
        self.server.bodies.append(body)
        known = self.path == "/v1/traces"
        self.send_response(200 if known else 404)
        self.send_header("content-type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(collector.ExportTraceServiceResponse().SerializeToString())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def erased(processes: Processes, url: str) -> RequestStatus:
    """Have a request certified while traces are sent to `url`."""
    processes.more = {"LETHE_OTEL_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    processes.start_api()
    processes.start_worker()
    with processes.requester() as requester:
        receipt = requester.submit_erasure(MODEL, records=["r1"])
        return requester.wait(receipt.id, timeout=60)


def test_a_collector_has_one_trace_from_the_api_to_the_certificate(
    registered: Processes,
) -> None:
    with collecting() as server:
        status = erased(registered, server.url)
        assert status.state == "certified"
        until(
            lambda: any(one.name == "job certify" for _, one in server.spans),
            "the worker's spans",
        )
        (post,) = [one for _, one in server.spans if one.name == "POST /v1/requests"]
        trace = [
            (service, one) for service, one in server.spans if one.trace_id == post.trace_id
        ]
    found = {one.name: (service, one) for service, one in trace}
    services = {name: service for name, (service, _) in found.items()}
    assert services["POST /v1/requests"] == services["job queued"] == "lethe-api"
    for stage in ("execute", "verify", "certify"):
        service, span = found[f"job {stage}"]
        assert service == "lethe-worker"
        assert span.parent_span_id == found["job queued"][1].span_id
    assert found["job queued"][1].parent_span_id == post.span_id
    sent = b"".join(server.bodies)
    for secret in ("alice", MODEL, status.id):
        assert secret.encode() not in sent, secret
    said = [(one.name, one.attributes, one.events, one.status) for _, one in server.spans]
    assert "r1" not in str(said)  # in the bytes, two characters may be of a random id


def test_no_request_waits_for_a_collector_that_is_away(registered: Processes) -> None:
    with collecting() as server:
        url = server.url  # nothing listens there any more
    status = erased(registered, url)
    assert status.state == "certified"
    assert registered.cli("log", "fsck").returncode == 0
