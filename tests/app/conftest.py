"""An installation whose small model is fitted."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app import traces
from app.ledger.sequencer import Ledger
from app.otel import Tracing
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from tests.installation import Installation, install


@pytest.fixture
def ready(settings: Settings, ledger: Ledger, fitted: PrivateKey) -> Iterator[Installation]:
    """An installation whose key and model are registered and whose model is fitted."""
    with install(settings) as made:
        made.caller.key = fitted
        yield made


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """The spans that end from here on, kept in memory."""
    exporter = InMemorySpanExporter()
    traces.use(Tracing("lethe-test", SimpleSpanProcessor(exporter)))
    yield exporter
    traces.close()
