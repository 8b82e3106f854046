"""One certificate and the files that come with it; a service of the test's module."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from lethe.client import Client
from tests.lethe.certificates.build import Certified, Office


@pytest.fixture(scope="package")
def certified() -> Certified:
    return Office().certify()


@pytest.fixture
def files(certified: Certified, tmp_path: Path) -> Path:
    certified.write(tmp_path)
    return tmp_path


@pytest.fixture
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module's `Service`, which commands reach as the client does."""
    made = request.module.Service()

    class Inside(Client):
        def __init__(self, base: str, **options: Any) -> None:
            super().__init__(base, transport=httpx2.MockTransport(made), **options)

    monkeypatch.setattr("lethe.client.Client", Inside)
    return made
