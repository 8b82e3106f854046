"""An attempt to send a notice is a span, which says neither where it went nor of whom it was."""

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.app.notices.conftest import add, turn
from tests.app.notices.receiver import Receiver
from tests.installation import Installation


def test_attempts_at_a_receiver_are_spans(
    ready: Installation, receiver: Receiver, spans: InMemorySpanExporter
) -> None:
    add(ready, receiver, "request.received")
    receiver.answer(503)
    ready.caller.erase_records("r1")
    turn(ready)
    (sent,) = [one for one in spans.get_finished_spans() if one.name == "notice attempt"]
    assert sent.parent is None
    assert sent.kind.name == "CLIENT"
    assert sent.attributes is not None
    assert sent.attributes["lethe.notice.event"] == "request.received"
    assert sent.attributes["lethe.notice.state"] == "waiting"
    assert sent.status.status_code.name == "ERROR"
    text = sent.to_json()
    assert receiver.url not in text
    assert "127.0.0.1" not in text
