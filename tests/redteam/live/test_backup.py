"""Who restores an older backup of a running service brings nobody back."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.e2e.harness import Processes, stopped
from tests.redteam.live.conftest import Target, restricted
from tests.small import MODEL


@contextmanager
def elsewhere(
    request: pytest.FixtureRequest, lost: Processes, directory: Path
) -> Iterator[tuple[Processes, Processes, str]]:
    """Yield an installation without a database, as its owner and as the service; its role."""
    (directory / "data").mkdir(parents=True)
    shutil.copytree(lost.directory / "data" / "keys", directory / "data" / "keys")
    made = replace(lost, directory=directory, api=None, worker=None)
    if not lost.database_url:
        yield made, made, ""
        return
    with restricted(request.getfixturevalue("postgres")) as (owner, service, role):
        serving = replace(made, database_url=service)
        yield replace(made, database_url=owner), serving, role


def test_an_older_backup_brings_nobody_back(
    target: Target, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    processes = target.processes
    backup, mirror = str(tmp_path / "backup"), str(tmp_path / "mirror")
    assert "not included" in processes.cli("backup", "new", backup).stdout
    with processes.requester() as requester:
        asked = requester.submit_erasure(MODEL, records=["r1", "r2"])
        requester.wait(asked.id, timeout=60)
    vkey = str(processes.directory / "data" / "keys" / "log.vkey")
    processes.cli("log", "mirror", f"{processes.base_url}/v1/log", mirror, "--vkey", vkey)
    processes.kill()
    with elsewhere(request, processes, tmp_path / "new") as (owner, service, role):
        told = owner.cli("restore", backup).stdout
        assert "erased again: 2 records" in told
        if role:
            owner.cli("migrate", "--grant", role)
        refused = service.cli("serve", "--port", "0", check=False)
        assert refused.returncode == 2
        assert "a checkpoint over" in refused.stderr
        assert "the log has" in service.cli("log", "recover", mirror).stdout
        with stopped(service):
            service.restart()
            with service.operator() as operator:
                assert operator.model(MODEL)["state"] == "quarantined"
            with Target(service).database() as engine, engine.connect() as connection:
                query = text("SELECT count(*) FROM records WHERE record IN ('r1', 'r2')")
                assert connection.execute(query).scalar_one() == 0
