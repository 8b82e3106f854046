"""One Chromium for all pages, and services in real processes on both installations."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import chromium
from tests.e2e.conftest import forks, processes

__all__ = ["browser", "forks", "processes"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        started = running.chromium.launch(
            executable_path=chromium.PROGRAM, args=["--no-sandbox"]
        )
        yield started
        started.close()
