"""An attacker with the database cannot hide a newer leak behind an older harmless report."""

import hashlib
from typing import Any

import pytest
from sqlalchemy import text

from app.reconcile.fsck.run import fsck
from tests.installation import Installation
from tests.workers.jobs.method_audits import audits
from tests.workers.jobs.method_audits.audits import cited
from workers.audit_pairs.pair import Pair


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: log and files are compared."""
    return sqlite_url


@pytest.fixture
def ready(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """A network whose audits with seed 5 find nothing and with any other seed a leak."""
    audits.register(installation)

    def run_pair(*given: Any) -> Pair:
        drawn = hashlib.sha256(f"{given[4].seed}|{given[5]}".encode()).digest()
        noise, high = drawn[0] / 256, 20 + drawn[1] / 256
        return Pair(high, noise if given[4].seed == 5 else high, noise, False)

    monkeypatch.setattr("workers.families.network.audited.run_pair", run_pair)
    return installation


def audited(ready: Installation, seed: int) -> str:
    audit_id = audits.start(ready, method="retrain", seed=seed)
    ready.drain()
    return audit_id


def write(ready: Installation, *statements: str) -> None:
    with ready.services.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def found(ready: Installation) -> set[str]:
    return {finding.check for finding in fsck(ready.services.ledger).findings}


HIDING = {
    "as if it was stopped": ["update audits set state = 'stopped' where id = '{leak}'"],
    "as if it failed": [
        "update audits set state = 'failed', failure = 'x' where id = '{leak}'"
    ],
    "as if it ran": ["update audits set state = 'running' where id = '{leak}'"],
    "as another method": ["update audits set method = 'natural' where id = '{leak}'"],
    "as of other code": ["update audits set code_digest = 'x' where id = '{leak}'"],
    "as of another version": ["update audits set method_version = 'x' where id = '{leak}'"],
    "backdated": ["update audits set created_at = '2020-01-01' where id = '{leak}'"],
    "as the older": [
        "update audits set created_at = (select created_at from audits where id = '{clean}'), "
        "config = (select config from audits where id = '{clean}') where id = '{leak}'"
    ],
    "deleted": [
        "delete from audit_pairs where audit_id = '{leak}'",
        "delete from audits where id = '{leak}'",
    ],
}


@pytest.mark.parametrize("way", HIDING)
def test_a_newer_leak_is_cited_whatever_its_row_says(ready: Installation, way: str) -> None:
    clean, leak = audited(ready, 5), audited(ready, 6)
    wanted = cited(ready)
    assert wanted["audit.found"].startswith("LEAK")
    assert found(ready) == set()
    write(ready, *[one.format(clean=clean, leak=leak) for one in HIDING[way]])
    said = cited(ready, "r1")
    assert said["audit"] == wanted["audit"]
    assert said["audit.found"] == wanted["audit.found"]
    of_code = way in ("as of other code", "as of another version")  # in no report or log
    if not of_code:
        assert found(ready) & {"audit", "audit.missing"}
    shown = {one["state"]: one for one in audits.all_of(ready)}
    state = "missing" if "audit.missing" in said else "reported"
    leaks = [one for one in audits.all_of(ready) if one["result"] == "LEAK"]
    assert [one["state"] for one in leaks] == [state]
    assert of_code or leaks[0]["problem"] is not None
    assert shown[state]["report_digest"] == wanted["audit"] or state == "reported"


def test_a_report_that_is_not_stored_is_missing_and_no_older_one_is_cited(
    ready: Installation,
) -> None:
    audited(ready, 5)
    leak = audited(ready, 6)
    digest = cited(ready)["audit"]
    write(ready, f"update artifacts set wrapped_key = null where digest = '{digest}'")
    said = cited(ready, "r1")
    assert {name: said.get(name) for name in ("audit", "audit.found", "audit.missing")} == {
        "audit": None,
        "audit.found": None,
        "audit.missing": "the log has the report of this audit, and the report is not stored",
    }
    assert (said["audit.started"], said["audit.reported"]) == ("2", "2")
    assert found(ready) == {"audit.missing"}
    shown = audits.get(ready, leak)
    assert (shown["state"], shown["result"]) == ("reported", None)
    assert shown["problem"] == said["audit.missing"]
    answer = ready.caller.operator("GET", f"/v1/audits/{leak}/report")
    assert answer.json()["title"] == "The audit's report is missing"


def test_a_deleted_audit_is_listed_as_missing_with_its_report(ready: Installation) -> None:
    leak = audited(ready, 6)
    file = audits.file(ready, leak, "report")
    write(ready, *[one.format(clean="", leak=leak) for one in HIDING["deleted"]])
    (shown,) = audits.all_of(ready)
    assert (shown["state"], shown["result"], shown["method"]) == ("missing", "LEAK", "retrain")
    assert shown["problem"] == "the log has this audit, and the database lacks it"
    assert audits.get(ready, shown["id"]) == shown
    assert audits.file(ready, shown["id"], "report") == file
    assert ready.caller.operator("GET", f"/v1/audits/{leak}").status_code == 404
    assert cited(ready)["audit.missing"] == "audits that the log has and the database lacks: 1"


def test_a_deleted_audit_that_never_ended_is_missing_too(ready: Installation) -> None:
    audit_id = audits.start(ready, method="retrain", seed=5)
    ready.dispatcher.nudges.clear()
    write(ready, *[one.format(clean="", leak=audit_id) for one in HIDING["deleted"]])
    assert [one["state"] for one in audits.all_of(ready)] == ["missing"]
    said = cited(ready)
    assert said["audit.missing"] == "audits that the log has and the database lacks: 1"
    assert (said["audit.started"], said["audit.reported"]) == ("1", "0")
    assert found(ready) == {"audit.missing"}


def test_a_row_that_the_log_does_not_know_is_shown_so_and_found(ready: Installation) -> None:
    audited(ready, 5)
    write(
        ready,
        "insert into audits select '00000000-0000-4000-8000-000000000000', model_id, method, "
        "config, parallel, every_days, due_at, state, failure, code_digest, method_version, "
        "nudged_at, created_at from audits",
    )
    first, _ = audits.all_of(ready)
    assert (first["state"], first["result"], first["config"]) == ("unlogged", None, {})
    assert found(ready) == {"audit"}
    stopped = ready.caller.operator("POST", f"/v1/audits/{first['id']}/stop")
    assert stopped.json()["state"] == "unlogged"
    assert [event for event, _ in audits.logged(ready)] == ["audit.started", "audit.reported"]


def test_an_older_audit_that_is_put_back_to_run_after_another_start_reports_nothing(
    ready: Installation,
) -> None:
    """Its configuration is that of the second audit, which is running."""
    older = audited(ready, 6)
    second = audits.start(ready, method="retrain", seed=6)
    ready.dispatcher.nudges.clear()
    write(
        ready,
        f"update audits set state = 'stopped' where id = '{second}'",
        f"update audits set state = 'running' where id = '{older}'",
    )
    ready.dispatcher.nudge(older, "audit")
    ready.drain()
    events = [event for event, _ in audits.logged(ready)]
    assert events == ["audit.started", "audit.reported", "audit.started"]
    states = {one["id"]: (one["state"], one["result"]) for one in audits.all_of(ready)}
    assert states == {older: ("reported", "LEAK"), second: ("running", None)}
    assert found(ready) == {"audit"}
