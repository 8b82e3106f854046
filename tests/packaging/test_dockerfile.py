"""The Dockerfile's own install and start steps, run in a clean virtual environment."""

import re
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.dockerfile import (
    REPOSITORY,
    Sandbox,
    command_of,
    context_files,
    environment_of,
    health_command_of,
    lineage,
    parse_dockerfile,
)

pytestmark = pytest.mark.timeout(600)

STAGES = parse_dockerfile((REPOSITORY / "Dockerfile").read_text())
TARGETS = ("api", "worker")
START_S = 60.0  # a loaded machine reads hundreds of modules from a cold disk


@dataclass(frozen=True)
class Image:
    """What was built: the directory, and the packages in it at that time."""

    sandbox: Sandbox
    packages: frozenset[str]


def _packages(sandbox: Sandbox) -> frozenset[str]:
    listing = (
        "from importlib.metadata import distributions\n"
        "print(*(f'{d.name}=={d.version}' for d in distributions()), sep='\\n')"
    )
    done = sandbox.run([str(sandbox.path("/opt/lethe/bin/python")), "-c", listing], {})
    return frozenset(done.stdout.split())


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """What the target api consists of."""
    sandbox = Sandbox(tmp_path_factory.mktemp("image"))
    for stage in lineage(STAGES, "build-api"):
        sandbox.build(stage)
    sandbox.build(STAGES["api"])
    return Image(sandbox, _packages(sandbox))


@pytest.fixture(scope="module")
def worker(api: Image) -> Image:
    """What the target worker consists of: its environment is built on the API's."""
    api.sandbox.build(STAGES["build-worker"])
    api.sandbox.build(STAGES["worker"])
    return Image(api.sandbox, _packages(api.sandbox))


@pytest.fixture(scope="module")
def installation(api: Image) -> dict[str, str]:
    """The environment of a fresh installation: migrated, with an empty log."""
    api.sandbox.path("/var/lib/lethe").mkdir(parents=True)
    environment = environment_of(STAGES, "api") | {
        "LETHE_ORIGIN": "erasure.example.org/log",
        "LETHE_PUBLIC_URL": "https://erasure.example.org",
        "LETHE_SWEEP_SECONDS": "1",
    }
    api.sandbox.run(["lethe", "migrate"], environment, check=True)
    api.sandbox.run(["lethe", "log", "init"], environment, check=True)
    return environment


def _free_port() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return str(listener.getsockname()[1])


def _wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@contextmanager
def _running(
    image: Image, command: list[str], environment: dict[str, str], cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    process = image.sandbox.start(command, environment, cwd)
    try:
        yield process
        assert process.poll() is None, f"{command} ended by itself"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def test_the_api_image_starts_and_tells_its_health(
    api: Image, installation: dict[str, str]
) -> None:
    port = _free_port()
    serve, health = (
        [word.replace("8000", port) for word in command]
        for command in (command_of(STAGES, "api"), health_command_of(STAGES, "api"))
    )
    assert port in serve
    assert port in "".join(health)

    def healthy() -> bool:
        return api.sandbox.run(health, installation).returncode == 0

    assert not healthy(), "the health check passes with nothing to check"
    with _running(api, serve, installation):
        _wait_until(healthy, "the API never became healthy")


def test_the_api_image_has_no_numerics_but_the_parser_of_uploads(api: Image) -> None:
    names = {package.partition("==")[0].lower() for package in api.packages}
    assert {"fastapi", "numpy", "psycopg", "lethe-ledger"} <= names
    assert not names & {"scipy", "scikit-learn", "torch", "safetensors", "pytest", "ruff"}


def test_images_hold_only_what_is_pinned(worker: Image) -> None:
    pinned = {
        line.lower().replace("_", "-")
        for line in (REPOSITORY / "constraints.txt").read_text().split()
    }
    installed = {package.lower().replace("_", "-") for package in worker.packages}
    own = {package for package in installed if package.startswith("lethe-ledger==")}
    assert len(own) == 1
    assert installed - own <= pinned


def test_the_worker_image_and_its_schedule_sweep(
    worker: Image, installation: dict[str, str], tmp_path: Path
) -> None:
    database = worker.sandbox.path("/var/lib/lethe") / "lethe.db"

    def spent_nonces() -> int:
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM used_nonces").fetchone()
            return int(count)

    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.execute("INSERT INTO used_nonces VALUES ('k', 'n', '2020-01-01 00:00:00')")
    assert spent_nonces() == 1
    with _running(worker, ["lethe", "worker", "--beat"], installation, cwd=tmp_path):
        _wait_until(lambda: spent_nonces() == 0, "no worker swept what the schedule asked for")
        worker.sandbox.run(health_command_of(STAGES, "worker"), installation, check=True)
    # The containers' root is read-only: only the data directory may be written.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", TARGETS)
def test_images_run_as_nobody_who_could_change_the_code(target: str) -> None:
    stages = lineage(STAGES, target)
    steps = [step for stage in stages for step in stage.steps]
    users = [argument for instruction, argument in steps if instruction == "USER"]
    assert users[-1:] not in ([], ["root"], ["0"])
    data = environment_of(STAGES, target)["LETHE_DATA_DIR"]
    assert ("VOLUME", data) in steps
    for instruction, argument in steps:
        # Copied after USER, files still belong to root unless --chown says otherwise.
        assert not (instruction == "COPY" and "--chown" in argument)


@pytest.mark.parametrize("target", TARGETS)
def test_images_install_nothing_after_the_build_stages(target: str) -> None:
    for stage in lineage(STAGES, target):
        for instruction, argument in stage.steps:
            if instruction == "RUN":
                assert not re.search(r"\b(pip|apt|apt-get|gcc|make|curl)\b", argument)


def test_every_install_step_uses_the_pinned_set() -> None:
    installs = [
        argument
        for stage in STAGES.values()
        for instruction, argument in stage.steps
        if instruction == "RUN" and " install -" in argument and "pip" in argument
    ]
    assert len(installs) == 2
    pinned = re.compile(r" -c (constraints\.txt|\$\{CONSTRAINTS:-constraints\.txt\}) ")
    assert all(pinned.search(argument) for argument in installs)


def test_the_build_context_holds_sources_only() -> None:
    tops = {path.parts[0] for path in context_files()}
    assert tops >= {"app", "lethe", "models", "workers", "migrations", "pyproject.toml"}
    assert not tops & {".git", ".env", ".venv", "lethe-data", "demo-out", "tests", "build"}
    assert not [path for path in context_files() if "__pycache__" in path.parts]


def test_the_context_is_filtered_as_dockerignore_says(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text("# a comment\n*\n!app\n**/__pycache__\n")
    for name in ("app/a.py", "app/x/__pycache__/a.pyc", "keys/log.key", ".env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert context_files(tmp_path) == [Path("app/a.py")]
