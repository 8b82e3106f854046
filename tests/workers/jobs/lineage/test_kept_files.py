"""Whoever writes rows of versions and jobs keeps no file that held an erased record.

Either the file is destroyed whatever the row says, or the erasure is not certified.
"""

from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app import steps
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.vault import UNNAMED, fsck_vault, naming
from lethe.signing.keys import generate_key
from models import Artifact, Contribution, ModelVersion
from models.database.types import METADATA
from tests.installation import Installation, shown
from tests.small import pack
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.test_vectors_family import COLUMNS, register
from tests.workers.jobs.families.uploaded import MODEL, submit
from workers.lineage.versions import OTHER_FILES


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: both read the rows by the same calls."""
    return sqlite_url


def write(installation: Installation, *statements: str) -> None:
    with installation.services.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def live(installation: Installation, kind: str) -> int:
    with Session(installation.services.engine) as session:
        query = select(Artifact.id).where(Artifact.kind == kind)
        return len(session.exec(query.where(col(Artifact.wrapped_key).is_not(None))).all())


def unnamed(installation: Installation) -> int:
    """Return how many files fsck finds that no row needs."""
    services, report = installation.services, FsckReport()
    fsck_vault(services.engine, services.artifacts, services.root_secret, report)
    return sum(finding.detail == UNNAMED for finding in report.findings)


ANOTHER = "(SELECT id FROM artifacts WHERE kind = '{}' LIMIT 1)"
VERSIONS = "UPDATE model_versions SET"
PLANTED = {
    "the head as the state": [f"{VERSIONS} state_id = head_id"],
    "the state as the head": [f"{VERSIONS} head_id = state_id"],
    "another file as the state": [f"{VERSIONS} state_id = {ANOTHER.format('scores')}"],
    "another file named as a state": [
        f"{VERSIONS} state_id = {ANOTHER.format('scores')}",
        "UPDATE artifacts SET kind = 'state' WHERE kind = 'scores'",
    ],
    "another file named as the head": [
        f"{VERSIONS} head_id = {ANOTHER.format('scores')}",
        "UPDATE artifacts SET kind = 'head', digest = (SELECT head_digest FROM model_versions) "
        "WHERE kind = 'scores'",
    ],
    "no key of the head": [
        "UPDATE artifacts SET wrapped_key = NULL, unlinked_at = created_at WHERE kind = 'head'"
    ],
    "no key of the state": [
        "UPDATE artifacts SET wrapped_key = NULL, unlinked_at = created_at WHERE kind = 'state'"
    ],
    "a version less": [f"{VERSIONS} number = 1000", "UPDATE models SET current_version = 1000"],
}


@pytest.mark.parametrize("change", PLANTED)
def test_what_is_not_destroyed_is_not_certified(
    installation: Installation, change: str
) -> None:
    register(installation)
    with Session(installation.services.engine) as session:
        installation.services.artifacts.put(session, "scores", b"of another kind")
        session.commit()
    write(installation, *PLANTED[change])
    request = submit(installation, "passage-003")
    installation.drain()
    # An index opens its head first: a job that cannot is tried again.
    assert shown(installation, request)["state"] in ("needs-decision", "executing")
    assert len(networks.versions(installation)) == 1


def test_a_state_that_no_row_names_is_found(installation: Installation) -> None:
    register(installation)
    assert unnamed(installation) == 0
    write(installation, f"{VERSIONS} state_id = head_id")
    assert unnamed(installation) == 1


def test_a_file_is_destroyed_whatever_its_row_says_of_it(installation: Installation) -> None:
    register(installation)
    write(installation, f"{VERSIONS} withdrawn_at = created_at")
    request = submit(installation, "passage-003")
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    with Session(installation.services.engine) as session:
        before = session.exec(select(ModelVersion).where(ModelVersion.number == 1)).one()
    purged = networks.statement(installation, request).predicate.purged
    assert before.head_digest in purged.artifacts
    assert (live(installation, "head"), live(installation, "state")) == (1, 1)
    installation.check()


def test_a_contribution_destroys_the_state_before_or_is_refused(
    installation: Installation,
) -> None:
    register(installation)
    write(installation, f"{VERSIONS} state_id = head_id")
    feeder = replace(installation.caller, keyid="feeder", key=generate_key("ed25519"))
    assert feeder.register_key(role="client", client="c3").status_code == 201
    more = {
        "features": np.ones((1, COLUMNS), np.float32),
        "clients": np.array(["c3"]),
        "records": np.array(["fresh"]),
        "subjects": np.array(["z"]),
    }
    path, kind = f"/v1/models/{MODEL}/contributions", "application/x-npz"
    assert feeder.signed("POST", path, pack(more), content_type=kind).status_code == 202
    installation.drain()
    with Session(installation.services.engine) as session:
        last = session.exec(select(Contribution).where(Contribution.keyid == "feeder")).one()
    assert (last.state, last.failure) == ("failed", OTHER_FILES)


@pytest.mark.parametrize("again", ["NULL", "kept"])
def test_the_rows_kept_for_the_judge_are_destroyed_with_the_certificate(
    installation: Installation, again: str
) -> None:
    """The job's row names none after the verdict, and names them again after the certificate."""
    register(installation)
    request = submit(installation, "passage-003")

    def plant(step: str) -> None:
        if step == "verify.recorded":
            assert live(installation, "before") == 1
            write(installation, "UPDATE jobs SET before_id = NULL")

    steps.install(plant)
    try:
        installation.drain()
    finally:
        steps.install(None)
    assert shown(installation, request)["state"] == "certified"
    if again == "kept":
        write(installation, f"UPDATE jobs SET before_id = {ANOTHER.format('before')}")
    assert live(installation, "before") == 0
    installation.check()


def test_rows_kept_for_an_ended_job_are_found(installation: Installation) -> None:
    register(installation)
    with Session(installation.services.engine) as session:
        kept = installation.services.artifacts.put(session, "before", b"rows").id
        session.commit()
    assert unnamed(installation) == 1
    write(installation, f"UPDATE jobs SET before_id = '{kept}', done_at = NULL")
    assert unnamed(installation) == 0
    write(installation, "UPDATE jobs SET done_at = created_at")
    assert unnamed(installation) == 1


def test_every_column_that_names_a_file_counts_for_a_kind() -> None:
    stored = {
        key.parent
        for table in METADATA.sorted_tables
        for key in table.foreign_keys
        if key.column.table.name == "artifacts"
    }
    counted = [
        column
        for queries in naming().values()
        for query in queries
        for column in query.selected_columns
    ]
    assert {str(one) for one in counted} == {str(one) for one in stored}
