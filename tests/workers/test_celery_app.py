"""Tasks keep what a driver quotes out of the log."""

import pytest

from workers import celery_app


def test_an_error_is_named_and_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    def explode() -> None:
        raise RuntimeError("jane.doe@example.org")

    celery_app.quietly(explode)
    assert "RuntimeError" in caplog.text
    assert "jane.doe" not in caplog.text
