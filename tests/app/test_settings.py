"""What an environment may say in production, and what a refusal may repeat of it: nothing."""

import base64
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.reconcile.retention import cut_offs
from app.service.context import open_services
from app.settings import Settings, SettingsError
from lethe.cli.main import main
from models.database.types import utcnow

KEY = base64.b64encode(bytes(range(32))).decode()
GOOD: dict[str, Any] = {
    "environment": "production",
    "data_dir": "/var/lib/lethe",
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
    ("closed without witnesses", "witness_fail", "closed", "LETHE_WITNESS_POLICY"),
    ("no directory", "data_dir", "", "LETHE_DATA_DIR"),
    ("a blank directory", "data_dir", " ", "LETHE_DATA_DIR"),
    ("a home directory", "data_dir", "~/lethe", "LETHE_DATA_DIR"),
    ("a relative directory", "data_dir", "lethe-data", "LETHE_DATA_DIR"),
    ("no database URL", "database_url", "M9dKxPUQ", "LETHE_DATABASE_URL"),
    ("another database", "database_url", "mysql://lethe:M9dKxPUQ@db/lethe", "LETHE_DATABASE_URL"),
    ("another driver", "database_url", "postgresql+asyncpg://lethe@db/lethe", "LETHE_DATABASE_URL"),
    ("no port of the database", "database_url", "postgresql://u:M9dKxPUQ@db:M9dKxPUQ/d", "LETHE_DATABASE_URL"),
    ("a database in memory", "database_url", "sqlite:///:memory:", "LETHE_DATABASE_URL"),
    ("a password and a file", "database_url", "", "LETHE_DATABASE_PASSWORD"),
    ("no broker", "broker_url", "", "LETHE_BROKER_URL"),
    ("another broker", "broker_url", "amqp://M9dKxPUQ@broker", "LETHE_BROKER_URL"),
    ("a broker without checks", "broker_url", "sentinel://redis.example.org", "LETHE_BROKER_URL"),
    ("a folder of the broker", "broker_url", "filesystem:///tmp/broker", "LETHE_BROKER_URL"),
    ("a password with a slash", "broker_url", "redis://:M9d/KxPUQ@redis/0", "%2F"),
    ("a password with a number sign", "broker_url", "redis://:12#M9d@redis/0", "%23"),
    ("a host with a port", "webhook_allow", "hooks.corp:8080", "LETHE_WEBHOOK_ALLOW"),
    ("a pattern of hosts", "callback_allow", "10.0.0.0/8,*.corp", "LETHE_CALLBACK_ALLOW"),
    ("a public URL with a space", "public_url", "https://erasure.example.org ", "LETHE_PUBLIC_URL"),
    ("a public URL with a line", "public_url", "https://erasure.example.org\n", "LETHE_PUBLIC_URL"),
    ("a public URL in capitals", "public_url", "HTTPS://erasure.example.org", "LETHE_PUBLIC_URL"),
    ("a public URL with a query", "public_url", "https://erasure.example.org/?a=b", "LETHE_PUBLIC_URL"),
    ("a public URL with a password", "public_url", "https://u:M9dKxPUQ@erasure.example.org", "LETHE_PUBLIC_URL"),
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


# The first value that is too large: PostgreSQL takes milliseconds of 31 bits, limits 63 bits.
MOST = {"fit_memory_bytes": 1 << 63, "fit_output_bytes": 1 << 63, "stall_seconds": 2_147_484}
TIMES = [name for name in Settings.model_fields if name.endswith(("_seconds", "_days"))]


@pytest.mark.parametrize("name", sorted({*TIMES, *MOST}))
def test_a_size_that_no_task_could_compute_with_is_refused_at_the_start(name: str) -> None:
    """For ever, as somebody might write it: a million days, a billion seconds."""
    huge = {"batch_min_requests": 2, name: MOST.get(name, 10**6 if "days" in name else 10**9)}
    with pytest.raises(SettingsError, match=f"^LETHE_{name.upper()}: "):
        Settings(**{**GOOD, **huge})
    (most,) = (one.le for one in Settings.model_fields[name].metadata if hasattr(one, "le"))
    batch = {"batch_min_requests": 2, "batch_max_wait_seconds": 60}
    made = Settings(**{**GOOD, **batch, name: most})
    assert cut_offs(made, utcnow())
    if name in TIMES:
        assert utcnow() - timedelta(**{name.rpartition("_")[2]: most})


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("worker_metrics", "9101", "HOST:PORT"),
        ("oidc_roles", "officer", "operator=VALUE"),
        ("request_retention_days", "forever", "Days that scope"),
        ("stall_seconds", "1e9", "in seconds"),
    ],
)
def test_a_refusal_says_what_the_setting_is_and_its_unit(
    name: str, value: str, meant: str
) -> None:
    with pytest.raises(SettingsError, match=f"^LETHE_{name.upper()}: .*{meant}"):
        Settings(**{**GOOD, name: value})


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ({"witness_fail": "closed", "time_zone": "Nowhere"}, "LETHE_WITNESS_FAIL"),
        ({"time_zone": "Nowhere", "smtp_url": "http://x"}, "LETHE_TIME_ZONE"),
        ({"smtp_url": "smtp://x", "notice_mail": "x"}, "LETHE_MAIL_FROM"),
        ({"notice_mail": "x", "oidc_issuer": "https://x"}, "LETHE_NOTICE_MAIL"),
        ({"batch_min_requests": 2, "fault": "request.checked=kill"}, "set LETHE_BATCH"),
    ],
)
def test_of_several_contradictions_the_first_is_reported(
    values: dict[str, Any], first: str
) -> None:
    """In the order of the groups; whether all of them suit production comes last."""
    with pytest.raises(SettingsError, match=f"^{first}"):
        Settings(**{**GOOD, **values})


def test_silos_and_the_queue_of_gpus_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match=r"^LETHE_GPU_QUEUE and LETHE_SILOS"):
        Settings(**GOOD, gpu_queue=True, silos=2)


def test_databases_and_brokers_of_production_are_accepted() -> None:
    for name, value in (
        ("database_url", "postgresql+psycopg://lethe@/lethe?host=/run/postgresql"),
        ("broker_url", "filesystem://"),
        ("broker_url", "rediss://:M9dKxPUQ@redis.example.org:6380/1"),
        ("broker_url", "redis+socket:///run/redis.sock"),
        ("webhook_allow", "hooks.corp, Hooks_2.corp,10.0.0.1,fd00::1,10.0.0.0/8,fd00::/8"),
        ("public_url", "https://example.org:8443/erasure/"),
        ("public_url", "http://[::1]:8000"),
    ):
        assert getattr(Settings(**{**GOOD, name: value}), name) == value
    file = "sqlite:////var/lib/lethe/lethe.db"
    made = Settings(**{**GOOD, "database_url": file, "database_password": ""})
    assert made.database_url == file


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LETHE_SILO", "LETHE_SILOS"),
        ("LETHE_ENVIROMENT", "LETHE_ENVIRONMENT"),
        ("LETHE_WITNESS_POLCY", "LETHE_WITNESS_POLICY"),
        ("lethe_data_dirs", "LETHE_DATA_DIR"),
    ],
)
def test_a_misspelt_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "M9dKxPUQ")
    with pytest.raises(SettingsError, match=f"^{name} .*{meant}") as caught:
        Settings(**GOOD)
    assert "M9dKxPUQ" not in str(caught.value)


def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the command line, of keys, and of Kubernetes for a Service named lethe."""
    for name in ("URL", "TOKEN", "CONFIG", "SQL", "LOG_KEY", "ISSUER_KEY", "ISSUER_KEY_2"):
        monkeypatch.setenv(f"LETHE_{name}", "x")
    for name in (
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "PORT",
        "PORT_80_TCP_ADDR",
    ):
        monkeypatch.setenv(f"LETHE_{name}", "x")
    assert Settings(**GOOD)


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SettingsError, match=r"^LETHE_DATA_DIR: .*cannot be created"):
            Settings(data_dir=path).made_data_dir()


def test_a_data_directory_of_another_user_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # as tests run as root
    settings = Settings(data_dir=tmp_path / "data")
    settings.require_writable()  # it is missing: something else says so
    with pytest.raises(SettingsError, match=r"^LETHE_DATA_DIR: .*cannot write"):
        settings.made_data_dir()
    with pytest.raises(SettingsError, match=r"^LETHE_DATA_DIR: .*cannot write"):
        open_services(settings)


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
