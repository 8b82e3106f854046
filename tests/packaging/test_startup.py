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
TRACES = {"opentelemetry.sdk", "opentelemetry.exporter", "google.protobuf", "requests"}
STARTS = {
    "api": (
        "import app.main",
        NUMERICS | BROKER | TRACES | {"alembic", "prometheus_client", "workers", "httpx2"},
    ),
    "worker": (
        "import workers.celery_app, workers.devices",
        NUMERICS | WEB | TRACES | {"alembic", "opentelemetry", "prometheus_client", "httpx2"},
    ),
    "base": (
        "import lethe.errors\nfrom lethe import AsyncClient, Client, verify",
        NUMERICS | BROKER | WEB | {"opentelemetry"},
    ),
    # `make demo` installs neither: it ends before it begins where one is loaded.
    "demo": ("import workers.cli.demo, workers.demo.run", {"pyarrow", "torch", "numba"}),
    "verify": (
        "import lethe.certificates.verify\n"
        "from lethe.cli.main import lethe\n"
        "lethe(['certificate', 'verify', '--help'], standalone_mode=False)",
        NUMERICS
        | BROKER
        | WEB
        | {"importlib.metadata", "email", "httpx2", "http_message_signatures", "pydantic"}
        | {"sqlalchemy", "asyncio", "app", "models", "opentelemetry", "workers"}
        | {"decimal", "logging", "socket", "ssl", "subprocess", "tempfile"},
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


# Each class that `dataclasses` compiles takes 0.8 ms: see `lethe.records`.
COMPILED = """
import sys
import lethe.certificates.verify, lethe.cli.certificate, lethe.cli.main
for name, module in list(sys.modules.items()):
    if name.split(".")[0] == "lethe":
        for one in vars(module).values():
            code = getattr(getattr(one, "__init__", None), "__code__", None)
            if isinstance(one, type) and code is not None and code.co_filename == "<string>":
                print(f"{one.__module__}.{one.__name__}")
"""


def test_a_verification_defines_few_classes_with_compiled_functions() -> None:
    command = [sys.executable, "-c", COMPILED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {
        "lethe.certificates.retained_tree.Part",  # many instances
        "lethe.certificates.retained_tree.Path",
        "lethe.certificates.retained_tree.PathStep",
        "lethe.certificates.shape.Codec",  # compared by identity
        "lethe.certificates.verify._Run",  # changes
        "lethe.cli.commands.Point",
    }


# Validators of the wire's types and of tables, built at the import, were a sixth of the start.
# What is built is a default of another type's field, or the settings.
BUILT = """
import app.main
from pydantic import BaseModel
def below(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from below(sub)
mine = [cls for cls in below(BaseModel) if cls.__module__.split(".")[0] in ("app", "models")]
print(len(mine), sum(cls.__pydantic_complete__ for cls in mine))
"""


def test_validators_are_built_at_their_first_use() -> None:
    command = [sys.executable, "-c", BUILT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    types, built = map(int, done.stdout.split())
    assert types > 100
    assert built < 12
