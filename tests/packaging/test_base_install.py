"""The base install: what an auditor needs, and nothing that serves or computes."""

from pathlib import Path

import pytest

from tests.packaging.dockerfile import Sandbox, Stage

pytestmark = pytest.mark.timeout(600)

INSTALL = Stage(
    base="python",
    name="base-install",
    steps=[
        ("WORKDIR", "/src"),
        ("RUN", "python -m venv --without-pip /opt/lethe"),
        ("COPY", "pyproject.toml constraints.txt README.md LICENSE ./"),
        ("COPY", "lethe lethe"),
        ("COPY", "app app"),
        ("COPY", "migrations migrations"),
        ("COPY", "models models"),
        ("COPY", "workers workers"),
        (
            "RUN",
            "python -m pip --python /opt/lethe/bin/python install -c constraints.txt .",
        ),
    ],
)
PATH = {"PATH": "/opt/lethe/bin:$PATH"}
SERVES_OR_COMPUTES = {
    "alembic",
    "celery",
    "fastapi",
    "jinja2",
    "numba",
    "numpy",
    "psycopg",
    "pydantic",
    "pydantic-settings",
    "redis",
    "safetensors",
    "scikit-learn",
    "scipy",
    "sqlalchemy",
    "sqlmodel",
    "starlette",
    "torch",
    "uvicorn",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A clean virtual environment with `pip install .`."""
    sandbox = Sandbox(tmp_path_factory.mktemp("base"))
    sandbox.build(INSTALL)
    return sandbox


def test_it_pulls_no_web_framework_database_or_numerics(installed: Sandbox) -> None:
    found = {path.name for path in _site_packages(installed).glob("*.dist-info")}
    names = {name.partition("-")[0].lower().replace("_", "-") for name in found}
    assert {"lethe-ledger", "click", "cryptography"} <= names
    assert not names & SERVES_OR_COMPUTES


@pytest.mark.parametrize(
    "command",
    [
        ["certificate", "verify"],
        ["certificate", "show"],
        ["certificate", "recheck"],
        ["log", "verify"],
        ["log", "mirror"],
        ["key", "new"],
        ["request", "submit"],
    ],
    ids=" ".join,
)
def test_an_auditor_and_a_requester_can_work(installed: Sandbox, command: list[str]) -> None:
    done = installed.run(["lethe", *command, "--help"], PATH, check=True)
    assert f"Usage: lethe {' '.join(command)}" in done.stdout


@pytest.mark.parametrize(
    ("command", "extra"), [("serve", "server"), ("worker", "worker"), ("demo", "demo")]
)
def test_what_is_missing_is_named_with_its_extra(
    installed: Sandbox, command: str, extra: str
) -> None:
    done = installed.run(["lethe", command], PATH)
    assert done.returncode == 2
    assert f"pip install -c constraints.txt '.[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_estimators_name_their_extra(installed: Sandbox) -> None:
    done = installed.run(["python", "-c", "import lethe.estimators"], PATH)
    assert done.returncode == 1
    assert "lethe.estimators needs the package numba, which is not installed" in done.stderr
    assert "pip install -c constraints.txt '.[estimators]'" in done.stderr


def _site_packages(sandbox: Sandbox) -> Path:
    (found,) = sandbox.path("/opt/lethe/lib").glob("python*/site-packages")
    return found
