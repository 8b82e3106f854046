"""What a process does not load before it is ready: `benchmarks/service/startup.py` has the times."""

import subprocess
import sys

import pytest

# Imported by what is started; each of these takes from 50 ms to seconds.
NUMERICS = {
    "lethe.estimators",
    "numba",
    "numpy",
    "scipy",
    "sklearn",
    "torch",
    "safetensors",
    "matplotlib",
}
BROKER = {"celery", "kombu", "redis", "amqp"}
WEB = {"fastapi", "starlette", "uvicorn"}
STARTS = {
    "api": (
        "import app.main",
        NUMERICS | BROKER | {"alembic", "prometheus_client", "workers", "httpx2"},
    ),
    "worker": (
        "import workers.celery_app, workers.devices",
        NUMERICS | WEB | {"alembic", "prometheus_client", "httpx2"},
    ),
    "base": (
        "import lethe.errors\nfrom lethe import AsyncClient, Client, verify",
        NUMERICS | BROKER | WEB,
    ),
    "verify": (
        "import lethe.certificates.verify\n"
        "from lethe.cli.main import lethe\n"
        "lethe(['certificate', 'verify', '--help'], standalone_mode=False)",
        NUMERICS
        | BROKER
        | WEB
        | {"importlib.metadata", "email", "httpx2", "http_message_signatures", "pydantic"}
        | {"sqlalchemy", "asyncio", "app", "models", "workers"},
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_does_not_load_what_it_may_never_need(name: str) -> None:
    program, unwanted = STARTS[name]
    program += "\nimport sys\nprint('loaded', *sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "lethe.errors" in loaded
    assert not unwanted & loaded
