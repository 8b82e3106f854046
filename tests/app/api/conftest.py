"""An installation whose small model is fitted."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from tests.app.api.declared import checking
from tests.installation import Installation, install


@pytest.fixture(scope="session")
def declared() -> dict[str, Any]:
    """What OpenAPI declares: filled by the first application, for it takes longer than a test."""
    return {}


@pytest.fixture
def installation(
    settings: Settings, ledger: Ledger, declared: dict[str, Any]
) -> Iterator[Installation]:
    """A fresh installation, nothing registered."""
    with install(settings) as made:
        if not declared:
            declared.update(made.caller.http.app.openapi())  # type: ignore[attr-defined]
        made.caller.http.event_hooks["response"] = [checking(declared)]
        yield made


@pytest.fixture
def ready(installation: Installation, fitted: PrivateKey) -> Installation:
    """One whose key and model are registered and whose model is fitted."""
    installation.caller.key = fitted
    return installation
