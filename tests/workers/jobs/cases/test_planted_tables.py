"""Writing one table between execution and verdict never gets anything false signed.

For each family of tables and each change: either the certified model is that of a refit, whose
file was compared with the family's oracle before the change, or nothing is certified.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app.service.context import Services
from lethe.catalogue import CHECKS_OF, ModelKind
from models import ModelVersion
from tests.doubles.dispatcher import InlineDispatcher
from tests.installation import Installation, install
from tests.workers.jobs.attempts.test_refuted_groups import GROUPS, fits_here
from tests.workers.jobs.families.network import networks
from workers.jobs import execute, sweep

__all__ = ["fits_here"]  # a fixture

FIRST = "(SELECT min(id) FROM records)"
OF_BEFORE = "FROM model_versions WHERE number = 1"
CHANGES = {
    "nothing": "UPDATE models SET failure = NULL",
    "what was kept for the judge": "UPDATE jobs SET before_id = NULL WHERE kind = 'erase'",
    "the draft of the claim": "UPDATE jobs SET draft_id = (SELECT id FROM artifacts WHERE kind = 'evidence') WHERE kind = 'erase'",
    "the file": f"UPDATE model_versions SET head_id = (SELECT head_id {OF_BEFORE}) WHERE number = 2",
    "its digest": f"UPDATE model_versions SET head_digest = (SELECT head_digest {OF_BEFORE}) WHERE number = 2",
    "the state": f"UPDATE model_versions SET state_id = (SELECT state_id {OF_BEFORE}) WHERE number = 2",
    "the digest of its rows": f"UPDATE model_versions SET statistics_digest = (SELECT statistics_digest {OF_BEFORE}) WHERE number = 2",
    "the digest of the rows before": "UPDATE model_versions SET statistics_digest = (SELECT statistics_digest FROM model_versions WHERE number = 2) WHERE number = 1",
    "the retained set": f"UPDATE model_versions SET retained_root = (SELECT retained_root {OF_BEFORE}) WHERE number = 2",
    "the registration": "UPDATE models SET config = json_set(config, '$.columns', 5)",
    "the classes": """UPDATE models SET classes = '["a","b","c"]'""",
    "a salt": f"UPDATE records SET salt = (SELECT salt FROM records ORDER BY id DESC LIMIT 1) WHERE id = {FIRST}",
    "a record less": f"DELETE FROM records WHERE id = {FIRST}",
    "an owner": f"UPDATE records SET subject_id = (SELECT max(id) FROM subjects) WHERE id = {FIRST}",
    "a person's rows": "UPDATE feature_blocks SET ciphertext = (SELECT ciphertext FROM feature_blocks ORDER BY subject_id DESC LIMIT 1)",
    "no tombstone": "DELETE FROM tombstones",
    "another method": "UPDATE erasure_requests SET state = 'executed', method = 'none'",
}  # fmt: skip


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: both read the tampered rows by the same calls."""
    return sqlite_url


def last_file(installation: Installation) -> bytes:
    """Return the file of the last version, as stored."""
    with Session(installation.services.engine) as session:
        last = session.exec(select(ModelVersion).order_by(col(ModelVersion.number))).all()[-1]
        return installation.services.artifacts.get(session, last.head_id)


@contextmanager
def copied(installation: Installation, folder: Path) -> Iterator[Installation]:
    """Open a copy of an installation that is not written to meanwhile."""
    of = installation.settings
    shutil.copytree(of.data_dir, folder / "data")
    (place,) = of.data_dir.parent.glob("lethe.db")
    for file in place.parent.glob("lethe.db*"):
        shutil.copyfile(file, folder / file.name)
    changes = {"data_dir": folder / "data", "database_url": f"sqlite:///{folder}/lethe.db"}
    with install(of.model_copy(update=changes)) as made:
        yield made


def sweep_thrice(dispatcher: InlineDispatcher, services: Services) -> None:
    """Sweep and deliver three times: a request that waits for a person is swept forever."""
    for _ in range(3):
        if not sweep.run(services):
            return
        dispatcher.drain(services)


@pytest.mark.parametrize("family", GROUPS)
def test_no_change_of_a_table_is_signed(
    installation: Installation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: ModelKind,
) -> None:
    monkeypatch.setattr(InlineDispatcher, "sweep", sweep_thrice)
    group = GROUPS[family]
    group.register(installation)
    requests = [group.submit(installation, record) for record in group.records]
    job_id, stage = installation.dispatcher.nudges.popleft()
    assert stage == "execute"
    execute.run(installation.services, job_id)
    assert group.right(installation)
    true = last_file(installation)
    certified = {}

    for number, (name, change) in enumerate(CHANGES.items()):
        folder = tmp_path / f"copy-{number}"
        folder.mkdir()
        with copied(installation, folder) as other:
            certified[name] = planted(other, change, true, requests, family)
        shutil.rmtree(folder)
    assert certified["nothing"] == len(requests)
    refused = [name for name, count in certified.items() if count == 0]
    assert {"the draft of the claim", "the file", "the registration"} <= {*refused}, certified


def planted(
    installation: Installation, change: str, true: bytes, requests: list[str], family: ModelKind
) -> int:
    """Change a table, run all work, and return how many requests are certified."""
    with installation.services.engine.begin() as connection:
        connection.execute(text(change))
    installation.recover()
    certified = [
        one for one in requests if networks.request(installation, one).state == "certified"
    ]
    for request in certified:
        said = networks.statement(installation, request)
        assert said.predicate.model.version_after.digest == sha256(true).hexdigest(), change
        assert {check.name for check in said.predicate.checks} <= {*CHECKS_OF[family]}
        assert said.predicate.scope.records == 1, change
    if certified:
        assert last_file(installation) == true, change
    return len(certified)
