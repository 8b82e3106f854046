"""An attacker with the database cannot get a changed report signed."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app.method_audits.audits import pairs_of
from models import Audit, AuditPair, Model
from tests.installation import Installation
from tests.workers.jobs.method_audits import audits
from workers.audit_pairs.pair import Pair
from workers.families.network.audited import NOT_ITS_ROWS
from workers.families.network.config import network_config
from workers.families.network.data.rows import Held, assemble, holdings
from workers.families.network.training import data_of
from workers.lineage.logged import LoggedRegistration
from workers.lineage.versions import salts_of
from workers.method_audits import (
    report as audit_report,
)
from workers.method_audits import (
    run as audit,
)
from workers.method_audits import (
    trust as audit_trust,
)
from workers.method_audits.trust import (
    FORGED,
    OTHERS,
    UNLOGGED,
    UNREGISTERED,
    contradiction,
)

Change = Callable[[Audit, list[AuditPair]], Any]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: other tests compare the kinds."""
    return sqlite_url


@pytest.fixture
def leaky(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """A network each of whose pairs shows that the method unlearned nothing."""
    audits.register(installation)

    def run_pair(*given: Any) -> Pair:
        drawn = hashlib.sha256(f"{given[4].seed}|{given[5]}".encode()).digest()[0] / 256
        return Pair(20 + drawn, 20 + drawn, drawn, False)

    monkeypatch.setattr("workers.families.network.audited.run_pair", run_pair)
    return installation


def complete(ready: Installation, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an audit with all pairs computed but no report."""
    audit_id = audits.start(ready, method="retrain")
    with monkeypatch.context() as patched:
        patched.setattr(audit_report, "issue_if_complete", lambda *_: False)
        ready.drain()
    return audit_id


def write(ready: Installation, statement: str) -> None:
    with ready.services.engine.begin() as connection:
        connection.execute(text(statement))


def report(ready: Installation, audit_id: str) -> dict[str, Any]:
    ready.dispatcher.nudge(audit_id, "audit")
    ready.drain()
    return audits.get(ready, audit_id)


def test_a_leak_that_is_made_none_in_the_table_ends_the_audit_without_a_report(
    leaky: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = report(leaky, complete(leaky, monkeypatch))
    assert (honest["state"], honest["result"]) == ("reported", "LEAK")
    audit_id = complete(leaky, monkeypatch)
    write(leaky, f"update audit_pairs set after = retrained where audit_id = '{audit_id}'")
    shown = report(leaky, audit_id)
    assert (shown["state"], shown["result"]) == ("failed", None)
    assert shown["failure"] == FORGED.format(0)
    event, digests = audits.logged(leaky)[-1]
    assert (event, digests["config"]) == ("audit.failed", shown["config_digest"])
    # Nor by marking it as running again afterwards, with its numbers unchanged.
    write(leaky, f"update audits set state = 'running' where id = '{audit_id}'")
    write(
        leaky, f"update audit_pairs set after = before where audit_id = '{audit_id}'"
    )  # as run_pair computes them
    assert report(leaky, audit_id)["failure"] == UNLOGGED
    assert audits.get(leaky, audit_id)["state"] == "failed"
    assert [event for event, _ in audits.logged(leaky)].count("audit.reported") == 1
    leaky.check()


def changed(name: str, value: Any) -> Change:
    """Return the change of a column of the last pair."""
    return lambda _, pairs: setattr(pairs[-1], name, value)


def swapped(_: Audit, pairs: list[AuditPair]) -> None:
    for name in ("before", "after", "retrained", "mac"):
        first, second = (getattr(pair, name) for pair in pairs[-2:])
        setattr(pairs[-2], name, second)
        setattr(pairs[-1], name, first)


def of_audit(name: str, value: Any) -> Change:
    return lambda row, _: setattr(row, name, value)


def reseeded(row: Audit, _: list[AuditPair]) -> None:
    row.config = {**row.config, "seed": "6"}


def a_second_older(row: Audit, _: list[AuditPair]) -> None:
    row.created_at -= timedelta(seconds=1)


LAST, FIRST = FORGED.format(15), FORGED.format(0)
CHANGES: list[tuple[Change, str]] = [
    *((changed(name, "0x1.0p+0"), LAST) for name in ("before", "after", "retrained")),
    (changed("gave_way", True), LAST),
    (changed("gave_way", 0), LAST),
    (changed("version", 2), LAST),
    (changed("environment", {}), LAST),
    (changed("environment", {"rate": float("nan")}), LAST),
    (changed("mac", "ä"), LAST),
    (changed("mac", None), LAST),
    (swapped, FORGED.format(14)),
    (lambda _, pairs: pairs.pop(), OTHERS),
    (lambda _, pairs: pairs.append(pairs[0]), OTHERS),
    (of_audit("code_digest", "0" * 64), FIRST),
    (of_audit("code_digest", None), FIRST),
    (of_audit("method_version", "0"), FIRST),
    (of_audit("method", "natural"), UNLOGGED),
    (of_audit("id", "0" * 36), UNLOGGED),
    (of_audit("config", {"pairs": float("nan")}), UNLOGGED),
    (reseeded, UNLOGGED),
    (a_second_older, UNLOGGED),
]


def test_each_field_of_a_report_is_held_to_log_or_mac(
    leaky: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The digest of an earlier audit, with another seed, is in the log too.
    earlier = audits.start(leaky, method="retrain", seed=6)
    leaky.caller.operator("POST", f"/v1/audits/{earlier}/stop")
    audit_id = complete(leaky, monkeypatch)

    def said(change: Change) -> str | None:
        with Session(leaky.services.engine) as session, session.no_autoflush:
            row = session.get_one(Audit, audit_id)
            model = session.get_one(Model, row.model_id)
            query = select(AuditPair).where(AuditPair.audit_id == audit_id)
            pairs = sorted(session.exec(query), key=lambda one: one.pair)
            change(row, pairs)
            found = contradiction(leaky.services, row, model, pairs)
            session.rollback()
        return found

    assert said(lambda *_: None) is None
    for at, (change, why) in enumerate(CHANGES):
        assert said(change) == why, at


def test_a_model_that_was_trained_otherwise_meanwhile_is_not_the_registered_one(
    leaky: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its registration is changed while pairs run, and restored when they are judged."""
    audit_id = complete(leaky, monkeypatch)
    with leaky.services.reading() as session:
        row = session.get_one(Audit, audit_id)
        model = session.get_one(Model, row.model_id)
        pairs = pairs_of(session, audit_id)
    training = {**model.config["training"], "rounds": 2}
    model.config = {**model.config, "training": training}
    assert contradiction(leaky.services, row, model, pairs) == UNREGISTERED
    # Even with the registered configuration, its pairs do not belong to it.
    monkeypatch.setattr(
        audit_trust, "registered", lambda *_: LoggedRegistration(True, "", "", ("", ""))
    )
    assert contradiction(leaky.services, row, model, pairs) == FIRST


def test_no_report_is_signed_of_a_model_that_is_not_as_it_was_registered(
    leaky: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row was changed before the first pair ran, and no worker noticed."""
    audit_id = audits.start(leaky, method="retrain")
    with Session(leaky.services.engine) as session:
        model = session.exec(select(Model)).one()
        local = {**model.config["training"]["local"], "learning_rate": 0.1}
        model.config = {
            **model.config,
            "training": {**model.config["training"], "local": local},
        }
        session.commit()
    leaky.drain()
    shown = audits.get(leaky, audit_id)
    assert (shown["state"], shown["failure"]) == ("failed", UNREGISTERED)


def test_a_row_that_is_no_audit_of_the_log_ends_without_an_entry(
    leaky: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_id = complete(leaky, monkeypatch)
    write(leaky, "update audits set created_at = '2020-01-01'")
    shown = report(leaky, audit_id)
    assert (shown["state"], shown["failure"]) == ("unlogged", UNLOGGED)
    assert [event for event, _ in audits.logged(leaky)] == ["audit.started"]


def test_numbers_that_are_not_the_signed_ones_are_not_given_out(
    leaky: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_id = complete(leaky, monkeypatch)
    report(leaky, audit_id)
    assert audits.file(leaky, audit_id, "statistics")
    write(leaky, "update audit_pairs set after = retrained where pair = 3")
    answer = leaky.caller.operator("GET", f"/v1/audits/{audit_id}/statistics")
    assert (answer.status_code, answer.json()["title"]) == (500, "The numbers were changed")


TABLES = ("subjects", "feature_blocks", "records")
LAST_SUBJECT = "(SELECT max(id) FROM subjects)"
OTHER_CLIENT = "(SELECT client FROM subjects WHERE id = (SELECT min(id) FROM subjects))"
OTHER_BLOCK = (
    "(SELECT ciphertext FROM kept_feature_blocks k WHERE k.subject_id <> "
    "feature_blocks.subject_id)"
)
OTHER_SALT = (
    "(SELECT salt FROM kept_records k WHERE k.id IN (1, 2) AND k.id <> records.id LIMIT 1)"
)
CHANGED_ROWS: dict[str, tuple[str, ...]] = {
    "a block is deleted, and says so": (
        f"DELETE FROM feature_blocks WHERE subject_id = {LAST_SUBJECT}",
        f"UPDATE subjects SET wrapped_key = NULL WHERE id = {LAST_SUBJECT}",
    ),
    "a block is deleted": (f"DELETE FROM feature_blocks WHERE subject_id = {LAST_SUBJECT}",),
    "a block is said to be erased": (
        f"UPDATE subjects SET shredded_at = '2020-01-01' WHERE id = {LAST_SUBJECT}",
    ),
    "two blocks are exchanged": (f"UPDATE feature_blocks SET ciphertext = {OTHER_BLOCK}",),
    "rows are listed for another client": (
        f"UPDATE subjects SET client = {OTHER_CLIENT} WHERE id = {LAST_SUBJECT}",
    ),
    "a record is deleted": ("DELETE FROM records WHERE id = 1",),
    "two salts are exchanged": (f"UPDATE records SET salt = {OTHER_SALT} WHERE id IN (1, 2)",),
}


def keep_rows(ready: Installation) -> None:
    for table in TABLES:
        write(ready, f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")


def restore_rows(ready: Installation) -> None:
    named = "client, wrapped_key, shredded_at"
    own = "FROM kept_subjects k WHERE k.id = subjects.id"
    write(ready, f"UPDATE subjects SET ({named}) = (SELECT {named} {own})")
    for table in TABLES[1:]:
        write(ready, f"DELETE FROM {table}")
        write(ready, f"INSERT INTO {table} SELECT * FROM kept_{table}")


def test_no_pair_runs_on_other_rows_than_those_of_the_published_version(
    leaky: Installation,
) -> None:
    keep_rows(leaky)
    for name, statements in CHANGED_ROWS.items():
        audit_id = audits.start(leaky, method="retrain")
        audit.run(leaky.services, audit_id)
        for statement in statements:
            write(leaky, statement)
        leaky.drain()
        shown = audits.get(leaky, audit_id)
        assert (shown["state"], shown["failure"]) == ("failed", NOT_ITS_ROWS), name
        assert shown["pairs_done"] == 1, name
        restore_rows(leaky)
    # As the message advises: they are restored, and another audit is started.
    again = audits.start(leaky, method="retrain")
    leaky.drain()
    assert audits.get(leaky, again)["result"] == "LEAK"
    ended = ["audit.started", "audit.failed"] * len(CHANGED_ROWS)
    events = [event for event, _ in audits.logged(leaky)]
    assert events == [*ended, "audit.started", "audit.reported"]


def test_no_report_is_signed_once_the_rows_are_others(
    leaky: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_id = complete(leaky, monkeypatch)
    for statement in CHANGED_ROWS["a block is deleted, and says so"]:
        write(leaky, statement)
    shown = report(leaky, audit_id)
    assert (shown["state"], shown["failure"]) == ("failed", NOT_ITS_ROWS)
    assert [event for event, _ in audits.logged(leaky)] == ["audit.started", "audit.failed"]


def test_rows_that_the_table_alone_calls_those_of_the_version_are_not_audited(
    leaky: Installation,
) -> None:
    """Only the table has the digest of the remaining rows, not the log."""
    audit_id = audits.start(leaky, method="retrain")
    for statement in CHANGED_ROWS["a block is deleted, and says so"]:
        write(leaky, statement)
    with leaky.services.reading() as session:
        model = session.exec(select(Model)).one()
        assert model.id is not None
        held = assemble(leaky.services, session, model.id)
        left = data_of(holdings(held, network_config(model)), salts_of(session, model.id))
    write(leaky, f"UPDATE model_versions SET statistics_digest = '{left}'")
    leaky.drain()
    shown = audits.get(leaky, audit_id)
    assert (shown["state"], shown["failure"]) == ("failed", NOT_ITS_ROWS)


def test_a_record_with_two_rows_is_not_audited(
    leaky: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version's digest covers one of them: a pair would be trained on both."""

    def twice(*given: Any) -> list[Held]:
        first, *others = assemble(*given)
        return [replace(first, client="a0"), first, *others]

    monkeypatch.setattr("workers.families.network.audited.assemble", twice)
    audit_id = audits.start(leaky, method="retrain")
    leaky.drain()
    shown = audits.get(leaky, audit_id)
    assert (shown["state"], shown["failure"]) == ("failed", NOT_ITS_ROWS)
