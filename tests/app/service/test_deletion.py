"""A model is deleted whole: what is left is its log, its certificates and the answers on them."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app import steps
from app.ledger.guard import SigningGuard
from app.ledger.startup import load_issuer
from app.reconcile.deleted import EVENT, LEFT, REVIVED, UNLOGGED
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.run import fsck
from app.reconcile.model_events import model_events
from app.service.context import open_services
from app.service.desk import people
from app.service.models import deletion
from app.vault.journal import JournalError
from app.vault.wipe import KEPT
from lethe.certificates.case_summary import check_summary
from lethe.certificates.verify import verify_certificate
from lethe.identity import Identity, digests
from models import (
    Artifact,
    Audit,
    ErasureRequest,
    Job,
    LogEntry,
    Model,
    ModelVersion,
    Release,
    Round,
    Subject,
    Verification,
)
from models.database.types import METADATA, utcnow
from tests.installation import Installation
from tests.small import MODEL, pack, rows

ANN = Identity("email", digests("email", "ann@x.org"))
PLACE = f"/v1/models/{MODEL}"


def delete(ready: Installation, ref: str = MODEL) -> Any:
    return ready.caller.operator("DELETE", f"/v1/models/{ref}")


def deleted(ready: Installation) -> int:
    answer = delete(ready)
    assert answer.status_code == 200, answer.text
    assert answer.json()["ref"] == MODEL
    return int(answer.json()["log_index"])


def case_of(ready: Installation, person: Identity) -> dict[str, Any]:
    named = {name: digest.hex() for name, digest in person.digests.items()}
    body = {"person": {"kind": person.kind, **named}, "ticket": "T1"}
    answer = ready.caller.operator("POST", "/v1/cases", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def write(ready: Installation, statement: str, **values: Any) -> None:
    """Change a table as whoever writes only that would."""
    with ready.services.engine.begin() as connection:
        connection.execute(text(statement), values)


def findings(ready: Installation) -> list[str]:
    report: FsckReport = fsck(ready.services.ledger)
    return [finding.detail for finding in report.findings]


def live(ready: Installation) -> set[str]:
    """Return the kinds of the files that can still be opened."""
    with Session(ready.services.engine) as session:
        query = select(Artifact.kind).where(Artifact.wrapped_key.is_not(None))  # type: ignore[union-attr]
        return set(session.exec(query))


def test_a_deletion_whose_checkpoint_failed_is_not_logged_again(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as failing:
        failing.setattr(SigningGuard, "advance", full)
        assert delete(ready).status_code == 503
    index = deleted(ready)
    assert [one for one, _ in model_events(ready.services.ledger, MODEL, EVENT)] == [index]
    assert findings(ready) == []


def test_nothing_is_left_but_what_verifies(ready: Installation) -> None:
    assert people.import_identities(ready.services, MODEL, [("r1", ANN)], "desk") == 1
    case = case_of(ready, ANN)
    ready.drain()
    request = case["parts"][0]["request"]
    certificate = ready.caller.http.get(f"/v1/requests/{request}/certificate").content
    answer = ready.caller.operator("GET", f"/v1/cases/{case['ref']}/summary").content

    index = deleted(ready)

    for number in ("1", "2", "current"):
        for part in ("", "/artifact", "/signature"):
            gone = ready.caller.operator("GET", f"{PLACE}/versions/{number}{part}")
            assert (gone.status_code, gone.json()["type"][-13:]) == (410, "model-deleted")
    assert ready.caller.operator("GET", PLACE).json()["state"] == "deleted"
    with Session(ready.services.engine) as session:
        model = session.exec(select(Model)).one()
        for table in METADATA.sorted_tables:
            if "model_id" in table.c and table.name not in KEPT:
                assert session.connection().execute(table.select()).first() is None, table.name
        assert bytes(model.tombstone_key) == b""
    assert live(ready) == {"evidence"}
    assert len(list((ready.settings.data_dir / "artifacts").iterdir())) == 1

    issuer, _ = load_issuer(ready.services.settings)
    again = ready.caller.http.get(f"/v1/requests/{request}/certificate").content
    assert again == certificate
    verdict = verify_certificate(
        certificate, log=ready.services.ledger.verifier, issuer=issuer.public_key()
    )
    assert verdict.result == "PASS", verdict.steps
    again = ready.caller.operator("GET", f"/v1/cases/{case['ref']}/summary").content
    shown = [check_summary(one, issuer.public_key(), [certificate]) for one in (again, answer)]
    assert shown[0] == shown[1]
    assert ready.caller.operator("POST", f"/v1/cases/{case['ref']}/close").status_code == 200

    history = ready.caller.http.get("/v1/log/entries?event=model.deleted").json()["items"]
    assert [(one["log_index"], one["ref"]) for one in history] == [(index, MODEL)]
    assert deleted(ready) == index
    ready.check()
    open_services(ready.settings).close()


def test_a_name_is_never_used_again(ready: Installation) -> None:
    deleted(ready)
    named = {name: digest.hex() for name, digest in ANN.digests.items()}
    find = {"person": {"kind": ANN.kind, **named}}
    caller = ready.caller
    # Whoever writes the table hides that there was such a model.
    for step in ("as it is", "UPDATE models SET state='failed', current_version=NULL"):
        if step != "as it is":
            write(ready, step)
        for answer in (
            caller.register_model(),
            caller.register_model(rows(seed=1)),
            caller.signed(
                "POST", f"{PLACE}/contributions", pack(rows()), content_type="application/x-npz"
            ),
            caller.operator("POST", "/v1/people/find", json={**find, "models": [MODEL]}),
        ):
            assert answer.status_code in (403, 410), (step, answer.text)
    assert caller.register_model().json()["type"].endswith("model-deleted")
    everywhere = caller.operator("POST", "/v1/people/find", json=find)
    assert everywhere.json()["items"] == []
    assert caller.register_model(ref="other").status_code == 201


def request_open(ready: Installation) -> None:
    assert ready.caller.erase_records("r1").status_code == 202


def request_hidden(ready: Installation) -> None:
    """The table has an open request as failed; the log has not."""
    request_open(ready)
    write(ready, "UPDATE erasure_requests SET state='failed'")
    write(ready, "UPDATE jobs SET done_at=created_at")


def learning(ready: Installation) -> None:
    write(ready, "UPDATE jobs SET done_at=NULL")


def round_open(ready: Installation) -> None:
    lists: dict[str, Any] = {"plan": {}, "requests": {}, "warnings": []}
    numbers = {"threshold": 2, "step_seconds": 60, "log_index": 0}
    of_model(ready, Round, id="round", step_until=utcnow(), **lists, **numbers)


def release_open(ready: Installation) -> None:
    """Of a request that the log has as certified, and whose client was never asked."""
    request_open(ready)
    ready.drain()
    with Session(ready.services.engine) as session:
        request = session.exec(select(ErasureRequest.id)).one()
        subject = session.exec(select(Subject.id)).first()
    asked = {"request_id": request, "subject_id": subject}
    of_model(ready, Release, id="release", escalates_at=utcnow(), **asked)


def audit_open(ready: Installation) -> None:
    of_model(ready, Audit, id="audit", method="acu", config={}, parallel=1, every_days=0)


def of_model(ready: Installation, kind: Any, **values: Any) -> None:
    """Store a row of the model."""
    with Session(ready.services.engine) as session:
        session.add(kind(model_id=session.exec(select(Model.id)).one(), **values))
        session.commit()


def of_another(ready: Installation) -> None:
    """A version of another model is made to name this model's file, or this one that of it."""
    assert ready.caller.register_model(ref="other").status_code == 201
    ready.drain()
    with Session(ready.services.engine) as session:
        first, second = session.exec(select(ModelVersion).order_by(ModelVersion.id)).all()  # type: ignore[arg-type]
        first.head_id = second.head_id
        session.add(first)
        session.commit()


def of_a_certificate(ready: Installation) -> None:
    """A version is made to name the evidence of a certificate."""
    request_open(ready)
    ready.drain()
    with Session(ready.services.engine) as session:
        job = session.exec(select(Job).where(Job.kind == "erase")).one()
        job.before_id = session.exec(select(Verification.evidence_id)).one()
        session.add(job)
        session.commit()


IN_USE: dict[str, tuple[Callable[[Installation], None], str]] = {
    "an open request": (request_open, "1 requests to the model are open"),
    "one that a table has as failed": (request_hidden, "1 requests to the model are open"),
    "rows that are learned": (learning, "wait until it is ready"),
    "a masked round": (round_open, "a masked round of the model is open"),
    "a release": (release_open, "clients are asked for statistics"),
    "a method audit": (audit_open, "a method audit of the model is running"),
    "a file of another model": (of_another, "names a file of the model"),
    "evidence": (of_a_certificate, "names a file of the model"),
}


@pytest.mark.parametrize("case", IN_USE)
def test_what_is_in_use_is_not_deleted(ready: Installation, case: str) -> None:
    begin, wanted = IN_USE[case]
    begin(ready)
    before = live(ready)
    answer = delete(ready)
    assert answer.status_code == 409, answer.text
    assert wanted in answer.json()["detail"]
    assert live(ready) == before
    with Session(ready.services.engine) as session:
        assert session.exec(select(LogEntry).where(LogEntry.event == EVENT)).first() is None


ROLLED_BACK = ("ledger.appended", "execute.journaled")
DONE = ("ledger.committed", "checkpoint.guarded", "checkpoint.committed", "execute.applied")


@pytest.mark.parametrize("step", [*ROLLED_BACK, *DONE])
def test_a_crash_leaves_all_or_nothing(ready: Installation, step: str) -> None:
    steps.plant(f"{step}=raise")
    with pytest.raises(steps.PlantedFaultError):
        deletion.delete(ready.services, MODEL)
    steps.install(None)
    if step in ROLLED_BACK:
        open_services(ready.settings).close()  # the journal is ahead, and is not believed
        with Session(ready.services.engine) as session:
            assert session.exec(select(Model.state)).one() == "ready"
        assert {"head", "state"} <= live(ready)
        assert ready.caller.erase_records("r1").status_code == 202
        ready.drain()
        ready.check()
    else:
        assert not {"head", "state"} & live(ready)
        ready.recover()  # as any start does after a while
        assert list((ready.settings.data_dir / "artifacts").iterdir()) == []
        ready.check()
    deleted(ready)
    ready.check()


def test_a_model_that_is_put_back_is_not_served_and_nothing_starts(ready: Installation) -> None:
    """Whoever kept a copy of the tables writes it over what is left, files and all."""
    from app.backup.reapply import reapply

    tables = ("models", "model_versions", "artifacts")
    folder = ready.settings.data_dir / "artifacts"
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    with ready.services.engine.begin() as connection:
        copies = {
            name: connection.execute(text(f"SELECT * FROM {name}")).mappings().all()
            for name in tables
        }
    deleted(ready)
    for name in tables:
        for row in copies[name]:
            sets = ", ".join(f"{column}=:{column}" for column in row if column != "id")
            values = {**row}
            if not isinstance(values.get("config", ""), str):  # PostgreSQL returns objects
                continue
            write(ready, f"UPDATE {name} SET {sets} WHERE id=:id", **values)
    for path, data in kept.items():
        path.write_bytes(data)
    for part in ("", "/artifact", "/signature"):
        answer = ready.caller.operator("GET", f"{PLACE}/versions/1{part}")
        assert answer.status_code == 410, answer.text
    assert findings(ready) == [LEFT]
    with pytest.raises(JournalError, match="which was deleted"):
        open_services(ready.settings)
    ledger, services = ready.services.ledger, ready.services
    with ledger.repairing() as session:
        done = reapply(session, services.root_secret, services.journal)
        session.commit()
    assert done.deleted == [MODEL]
    ready.check()


def test_a_table_alone_deletes_no_model(ready: Installation) -> None:
    from app.backup.reapply import reapply

    write(ready, "UPDATE models SET state='deleted'")
    assert findings(ready) == [UNLOGGED]
    services = ready.services
    with services.ledger.repairing() as session:
        done = reapply(session, services.root_secret, services.journal)
        session.commit()
    assert (done.deleted, done.records) == ([], 0)
    everywhere = people.models_of
    with services.reading() as session:
        assert [one.ref for one in everywhere(services, session, None)] == [MODEL]
        assert {"head", "state"} <= live(ready)
    assert ready.caller.operator("GET", f"{PLACE}/versions/1/artifact").status_code == 410
    write(ready, "UPDATE models SET state='ready'")
    assert ready.caller.operator("GET", f"{PLACE}/versions/1/artifact").status_code == 200
    ready.check()


def test_an_entry_after_the_deletion_is_found(ready: Installation) -> None:
    from app.ledger.journal import record_model_event

    deleted(ready)
    ready.services.ledger.transact(
        lambda tx: record_model_event(tx, MODEL, "model.registered", {"config": "0" * 64})
    )
    assert REVIVED in findings(ready)


def test_each_table_that_names_files_is_known() -> None:
    """A new one must have the model, or be thought of in `app.vault.wipe`."""
    naming = {
        table.name
        for table in METADATA.sorted_tables
        if any(key.column.table.name == "artifacts" for key in table.foreign_keys)
        and "model_id" not in table.c
    }
    assert naming == {"round_members", "verifications"}
    owned = {table.name for table in METADATA.sorted_tables if "model_id" in table.c}
    assert KEPT - {"models"} <= owned


def exchange(ready: Installation, *columns: str) -> None:
    """Exchange two models' references, and other columns of their rows."""
    with Session(ready.services.engine) as session:
        own, other = (
            {name: getattr(row, name) for name in columns}
            for row in session.exec(select(Model).order_by(Model.ref))
        )
    for ref, name in ((MODEL, "x"), ("other", MODEL), ("x", "other")):
        write(ready, "UPDATE models SET ref = :to WHERE ref = :ref", ref=ref, to=name)
    for ref, values in (("other", own), (MODEL, other)):
        for name, value in values.items():
            write(ready, f"UPDATE models SET {name} = :to WHERE ref = :ref", ref=ref, to=value)


@pytest.mark.parametrize("columns", [(), ("tombstone_key",)])
def test_an_exchanged_reference_has_no_other_model_deleted(
    ready: Installation, columns: tuple[str, ...]
) -> None:
    """A hold keeps one model; the operator deletes the other one."""
    assert ready.caller.register_model(rows(seed=3), ref="other").status_code == 201
    ready.drain()
    held = {"ref": MODEL, "reason": "litigation"}
    assert ready.caller.operator("POST", "/v1/holds", json=held).status_code == 201
    exchange(ready, *columns)
    refused = delete(ready, "other")
    assert refused.status_code == 503, refused.text
    assert refused.json()["type"].endswith("version-unlogged")
    assert not len(model_events(ready.services.ledger, "other", EVENT))
    exchange(ready, *columns)
    assert fsck(ready.services.ledger).ok
    assert delete(ready).json()["type"].endswith("held")
    assert delete(ready, "other").status_code == 200
