"""The service that a command registers at: of the class `Service` of the test's module."""

from typing import Any

import pytest


@pytest.fixture
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A service that has nothing yet."""
    found = request.module.Service()
    monkeypatch.setattr("workers.cli.service.connect", lambda url: found)
    return found
