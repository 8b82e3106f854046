"""What an environment may say in production, and what a refusal may repeat of it: nothing."""

import base64
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings, SettingsError
from lethe.cli.main import main

KEY = base64.b64encode(bytes(range(32))).decode()
GOOD: dict[str, Any] = {
    "environment": "production",
    "origin": "erasure.example.org/log",
    "public_url": "https://erasure.example.org",
    "master_key": KEY,
    "database_url": "postgresql://lethe_service@db.example.org/lethe",
    "database_password": "M9dKxPUQ",
    "broker_url": "redis://:M9dKxPUQ@redis.example.org/0",
}


def test_a_production_installation_is_accepted() -> None:
    assert Settings(**GOOD).public_url == "https://erasure.example.org"
    assert Settings(**{**GOOD, "master_key": "", "database_password": ""})


REFUSED: list[tuple[str, str, Any, str]] = [
    ("no public URL", "public_url", "", "LETHE_PUBLIC_URL"),
    ("no URL", "public_url", "erasure.example.org", "LETHE_PUBLIC_URL"),
    ("no web URL", "public_url", "ftp://erasure.example.org", "LETHE_PUBLIC_URL"),
    ("no host", "public_url", "https:///v1", "LETHE_PUBLIC_URL"),
    ("local origin", "origin", "localhost/lethe", "LETHE_ORIGIN"),
    ("placeholder", "database_password", "ChangeMe", "LETHE_DATABASE_PASSWORD"),
    ("placeholder in the database URL", "database_url", "postgresql://lethe:changeme@db/lethe", "LETHE_DATABASE_URL"),
    ("placeholder in the broker URL", "broker_url", "redis://:secret@redis/0", "LETHE_BROKER_URL"),
    ("placeholder key", "master_key", "changeme", "LETHE_MASTER_KEY"),
    ("short key", "master_key", "aaaa", "LETHE_MASTER_KEY"),
    ("long key", "master_key", base64.b64encode(bytes(33)).decode(), "LETHE_MASTER_KEY"),
    ("no base64", "master_key", "€" * 32, "LETHE_MASTER_KEY"),
    ("fault", "fault", "request.checked=kill", "LETHE_FAULT"),
    ("a batch without a wait", "batch_min_requests", 2, "LETHE_BATCH_MAX_WAIT_SECONDS"),
    ("a wait without a batch", "batch_max_wait_seconds", 60, "LETHE_BATCH_MIN_REQUESTS"),
    ("too large a batch", "batch_min_requests", 257, "LETHE_BATCH_MIN_REQUESTS"),
    ("number", "lease_seconds", "M9dKxPUQ", "LETHE_LEASE_SECONDS"),
    ("choice", "device", "M9dKxPUQ", "LETHE_DEVICE"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "named"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])  # fmt: skip
def test_an_unsafe_production_is_refused_by_name(name: str, value: Any, named: str) -> None:
    with pytest.raises(SettingsError, match=named) as caught:
        Settings(**{**GOOD, name: value})
    shown = "".join(traceback.format_exception(caught.value))
    for secret in (KEY, "M9dKxPUQ", "ValidationError"):
        assert secret not in shown


def test_a_batch_and_its_wait_go_together() -> None:
    made = Settings(**GOOD, batch_min_requests=256, batch_max_wait_seconds=3600)
    assert (made.batch_min_requests, made.batch_max_wait_seconds) == (256, 3600)


def test_development_needs_nothing() -> None:
    assert Settings(environment="development").public_url == ""


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_a_command_says_what_is_refused_and_shows_no_secret(
    tmp_path: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in [name for name in os.environ if name.startswith("LETHE_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "ENVIRONMENT": "production",
        "DATA_DIR": str(tmp_path),
        "MASTER_KEY": KEY,
        "DATABASE_URL": "postgresql://lethe:M9dKxPUQ@db/lethe",
    }.items():
        monkeypatch.setenv(f"LETHE_{name}", value)
    monkeypatch.setattr(sys, "argv", ["lethe", command])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capfd.readouterr().err
    assert ended.value.code == 2
    assert shown.startswith("error: LETHE_ORIGIN")
    assert shown.count("\n") == 1
    assert KEY not in shown
    assert "M9dKxPUQ" not in shown
