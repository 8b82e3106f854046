"""Identities of people, from an upload to a lookup and an erasure, and tampered rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app.backup.reapply import log_people
from app.problems import UnknownRecordError
from app.purge.search import search
from app.reconcile import people as reconcile
from app.reconcile.fsck.run import fsck
from app.reconcile.fsck.vault import fsck_vault
from app.reconcile.people import PeopleChangedError, hand_over, stored_rows
from app.service.desk import people
from lethe.identity import WIDTH, Identity, digests, pack, parse
from models import Model, PeopleSums, Person
from tests import small
from tests.installation import Installation
from tests.small import Caller, rows

ANN, BOB, EVE = "ann@example.org", "bob@example.org", "eve@example.org"


def packed(*emails: str) -> Any:
    """Return a column of digests, as an upload sends it."""
    zero = bytes(WIDTH)
    data = [pack(digests("email", email)) if email else zero for email in emails]
    return np.array([np.frombuffer(row, dtype=np.uint8) for row in data])


def named(**held_out: str) -> dict[str, Any]:
    """Return the small model's rows: r0 and r5 are Ann's, r1 Bob's; held_out: record, address."""
    arrays = rows()
    emails = [""] * len(arrays["records"])
    emails[0] = emails[5] = ANN
    emails[1] = BOB
    arrays["identity_email"] = packed(*emails)
    if held_out:
        arrays["held_out_records"] = np.array(list(held_out))
        arrays["held_out_identity_email"] = packed(*held_out.values())
    return arrays


def ready(installation: Installation, *refs: str, **held_out: str) -> None:
    """Fit models of these rows."""
    assert installation.caller.register_key().status_code == 201
    for ref in refs or ("small",):
        arrays = named(**held_out)
        assert installation.caller.register_model(arrays, ref=ref).status_code == 201
    installation.drain()


def found(installation: Installation, person: str, ref: str = "small") -> people.Found:
    """Look a person up."""
    with installation.services.reading() as session:
        model = session.exec(select(Model).where(Model.ref == ref)).one()
    return people.find(installation.services, model, parse(person))


def write(installation: Installation, statement: str) -> None:
    """Write to the table as an attacker with the database but no key."""
    with Session(installation.services.engine) as session:
        session.connection().execute(text(statement))
        session.commit()


def refuses(installation: Installation, *people: str) -> None:
    """Check that none of these can be looked up any more, and that fsck finds why."""
    for person in people or (ANN, BOB):
        with pytest.raises(PeopleChangedError):
            found(installation, f"email={person}")
    assert "people" in checks(installation)


def checks(installation: Installation) -> set[str]:
    """Return the names of fsck's checks with findings."""
    services = installation.services
    report = fsck(services.ledger)
    fsck_vault(services.engine, services.artifacts, services.root_secret, report)
    return {finding.check for finding in report.findings}


def test_a_person_is_found_by_value_and_by_each_digest(installation: Installation) -> None:
    ready(installation, r99=EVE)
    assert found(installation, f"email= {ANN.upper()} ").learned == ("r0", "r5")
    for algorithm, digest in digests("email", BOB).items():
        listed = found(installation, f"email:{algorithm}={digest.hex()}")
        assert (listed.learned, listed.held_out, listed.erased) == (("r1",), (), 0)
    assert found(installation, f"email={EVE}").held_out == ("r99",)
    assert found(installation, f"email={EVE}").learned == ()
    with installation.services.reading() as session:
        model = session.exec(select(Model)).one()
    weak = {name: digests("email", BOB)[name] for name in ("sha1", "md5")}
    for strong in ({"sha256": digests("email", "x@y.z")["sha256"]}, {"sha1": bytes(20)}):
        collided = Identity("email", {**weak, **strong})
        assert people.find(installation.services, model, collided).rows == frozenset()
    nothing = found(installation, f"phone={ANN}")
    assert (nothing.learned, nothing.held_out, nothing.erased) == ((), (), 0)
    installation.check()


def test_an_erased_person_was_erased_before(installation: Installation) -> None:
    ready(installation)
    accepted = installation.caller.erase_records("r0")
    assert accepted.status_code == 202
    installation.drain()
    ann = found(installation, f"email={ANN}")
    assert (ann.learned, ann.erased, ann.erased_by) == (("r5",), 1, (accepted.json()["id"],))
    assert installation.caller.erase_records("r5").status_code == 202
    installation.drain()
    assert found(installation, f"email={ANN}").learned == ()
    assert found(installation, f"email={ANN}").erased == 2
    assert found(installation, f"email={BOB}").learned == ("r1",)
    installation.check()


def test_whoever_names_the_record_of_another_as_held_out_learns_nothing_of_its_erasure(
    installation: Installation,
) -> None:
    """r1 is Bob's, and Eve's too according to c9's held-out rows."""
    ready(installation)
    arrays = rows(count=2, first=90)
    arrays |= {"clients": np.array(["c9"] * 2), "held_out_records": np.array(["r1"])}
    arrays["held_out_identity_email"] = packed(EVE)
    client = Caller(installation.caller.http, installation.caller.token, keyid="c9")
    client.register_key(role="client", client="c9")
    path, kind = "/v1/models/small/contributions", "application/x-npz"
    sent = client.signed("POST", path, small.pack(arrays), content_type=kind)
    assert sent.status_code == 202, sent.text
    installation.drain()
    assert found(installation, f"email={EVE}").held_out == ("r1",)
    installation.caller.erase_records("r1")
    installation.drain()
    assert found(installation, f"email={BOB}").erased == 1
    eve = found(installation, f"email={EVE}")
    assert (eve.erased, eve.erased_by) == (0, ())


def test_identities_of_a_model_come_later_by_import(installation: Installation) -> None:
    ready(installation)
    eve = Identity("email", digests("email", EVE))
    listed = [("r2", eve), ("r3", eve), ("r2", eve)]
    assert people.import_identities(installation.services, "small", listed, "desk") == 2
    assert people.import_identities(installation.services, "small", listed, "desk") == 0
    assert found(installation, f"email={EVE}").learned == ("r2", "r3")
    with pytest.raises(UnknownRecordError) as refused:
        people.import_identities(
            installation.services, "small", [*listed, ("secret", eve)], "desk"
        )
    assert refused.value.members == {"places": "4"}
    assert "secret" not in refused.value.detail
    installation.check()


PLANTED = {
    # Bob's tags on Ann's records: a request for Bob would erase Ann.
    "another's record": "UPDATE people SET sha256 = (SELECT sha256 FROM people WHERE id = 2) "
    "WHERE id = 1",
    "a swapped record": "UPDATE people SET record = (SELECT record FROM people WHERE id = 1) "
    "WHERE id = 2",
    "a row more": "INSERT INTO people (id, model_id, state, record, sha256, sha1, md5) "
    "SELECT 9, model_id, state, (SELECT record FROM people WHERE id = 1), sha256, sha1, md5 "
    "FROM people WHERE id = 2",
    "a row less": "DELETE FROM people WHERE id = 1",
    "no rows": "DELETE FROM people",
    "held out": "UPDATE people SET state = 'held-out' WHERE id = 1",
    "erased": "UPDATE people SET state = 'erased', record = NULL WHERE id = 1",
    "a moved number": "UPDATE people SET id = 77 WHERE id = 1",
    "text for a tag": "UPDATE people SET sha256 = 'text' WHERE id = 1",
    "a lost digest": "UPDATE people SET md5 = NULL WHERE id = 1",
}


# Lookups that read tampered rows; other people's read none, or are refused too.
CONCERNED = {"a swapped record": BOB, "a row more": BOB, "no rows": BOB}


@pytest.mark.parametrize(
    ("name", "sums"),
    [
        *((name, "as they were") for name in PLANTED),
        ("another's record", "deleted"),
        ("a row less", "altered"),
    ],
)
def test_a_row_that_was_written_by_another_is_not_believed(
    installation: Installation, name: str, sums: str
) -> None:
    ready(installation)
    assert [row.id for row in _stored(installation)] == [1, 2, 3]
    write(installation, PLANTED[name])
    if sums == "deleted":
        write(installation, "DELETE FROM people_sums")
    if sums == "altered":
        write(installation, "UPDATE people_sums SET sums = substr(sums, 2)")
    refuses(installation, CONCERNED.get(name, ANN))
    if sums != "as they were":
        refuses(installation, BOB, EVE)


def test_sums_of_an_earlier_table_are_not_believed(installation: Installation) -> None:
    """Old sums with matching rows: the log has moved on."""
    ready(installation)
    write(installation, "CREATE TABLE kept AS SELECT * FROM people")
    write(installation, "CREATE TABLE kept_sums AS SELECT * FROM people_sums")
    assert installation.caller.erase_records("r0").status_code == 202
    installation.drain()
    for table in ("people", "people_sums"):
        write(installation, f"DELETE FROM {table}")
        source = "kept" if table == "people" else "kept_sums"
        write(installation, f"INSERT INTO {table} SELECT * FROM {source}")
    refuses(installation, ANN, BOB, EVE)


def test_sums_that_are_missing_are_made_again_from_all_rows(
    installation: Installation,
) -> None:
    ready(installation)
    write(installation, "DELETE FROM people_sums")
    assert found(installation, f"email={ANN}").learned == ("r0", "r5")
    with Session(installation.services.engine) as session:
        assert session.exec(select(PeopleSums)).one().sums != b""
    write(installation, "UPDATE people_sums SET sums = substr(sums, 2)")
    assert "people" in checks(installation)
    assert found(installation, f"email={BOB}").learned == ("r1",)
    installation.check()


def test_a_lookup_reads_few_of_the_rows(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(installation)
    people_of = [
        (f"r{n % 20}", Identity("email", digests("email", f"{n}@x"))) for n in range(4000)
    ]
    people.import_identities(installation.services, "small", people_of, "desk")
    read = 0

    def counted(*arguments: Any) -> Any:
        nonlocal read
        for row in stored_rows(*arguments):
            read += 1
            yield row

    monkeypatch.setattr(reconcile, "stored_rows", counted)
    monkeypatch.setattr(people, "stored_rows", counted)
    assert found(installation, f"email={ANN}").learned == ("r0", "r5")
    assert 2 < read < 150, read  # three digests, each a 256th of 4,003 rows: 47 on average
    write(installation, "DELETE FROM people_sums")
    found(installation, f"email={ANN}")
    assert read > 4003
    with Session(installation.services.engine) as session:
        if session.connection().dialect.name == "sqlite":
            query = "SELECT id FROM people WHERE model_id = 1 AND sha256 >= x'07' AND sha256 < x'08'"
            plan = str(session.connection().execute(text(f"EXPLAIN QUERY PLAN {query}")).all())
            assert "ix_people_model_id_sha256" in plan, plan


@pytest.mark.parametrize("logged", [False, True])
def test_a_restore_that_was_killed_before_it_logged_the_identities_leaves_them_usable(
    installation: Installation, logged: bool
) -> None:
    """r0 was erased after the backup; the process dies between the restore and its entry."""
    ready(installation)
    write(installation, "CREATE TABLE kept AS SELECT * FROM people")
    write(installation, "CREATE TABLE kept_sums AS SELECT * FROM people_sums")
    services = installation.services
    with Session(services.engine) as session:
        model = session.exec(select(Model)).one()
        forget = text("UPDATE people SET state = 'erased', record = NULL WHERE id = 1")
        session.connection().execute(forget)
        hand_over(session, services.root_secret, model)
        session.commit()
    # Killed here: nothing was logged.
    assert "people" in checks(installation)
    if logged:
        log_people(services.ledger, services.root_secret, ["small"])
        assert "people" not in checks(installation)
    ann = found(installation, f"email={ANN}")
    assert (ann.learned, ann.erased) == (("r5",), 1)
    assert found(installation, f"email={BOB}").learned == ("r1",)
    assert "people" not in checks(installation)
    assert installation.caller.erase_records("r5").status_code == 202
    installation.drain()
    assert found(installation, f"email={ANN}").erased == 2
    # After the entry, the earlier rows are not accepted any more.
    write(installation, "DELETE FROM people")
    write(installation, "INSERT INTO people SELECT * FROM kept")
    write(installation, "DELETE FROM people_sums")
    write(installation, "INSERT INTO people_sums SELECT * FROM kept_sums")
    refuses(installation)


def test_a_row_that_was_erased_does_not_come_back(installation: Installation) -> None:
    ready(installation)
    write(installation, "CREATE TABLE kept AS SELECT * FROM people")
    assert installation.caller.erase_records("r0").status_code == 202
    installation.drain()
    write(installation, "DELETE FROM people")
    write(installation, "INSERT INTO people SELECT * FROM kept")
    refuses(installation, ANN)


def test_rows_of_one_model_are_not_those_of_another(installation: Installation) -> None:
    ready(installation, "small", "other")
    first, second = (
        {row.sha256 for row in _stored(installation, ref)} for ref in ("small", "other")
    )
    assert first.isdisjoint(second)
    assert found(installation, f"email={ANN}", "other").learned == ("r0", "r5")
    write(installation, "UPDATE people SET model_id = 3 - model_id")
    refuses(installation)


def test_a_model_that_the_database_lacks_is_not_left_out(installation: Installation) -> None:
    ready(installation, "small", "other")
    services = installation.services
    with services.reading() as session:
        assert len(people.models_of(services, session, None)) == 2
    write(installation, "UPDATE models SET ref = 'hidden' WHERE ref = 'other'")
    with services.reading() as session, pytest.raises(PeopleChangedError, match="lacks"):
        people.models_of(services, session, None)
    assert "model" in checks(installation)


def test_no_value_and_no_plain_digest_is_stored(
    installation: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    ready(installation, r99=EVE)
    found(installation, f"email={ANN}")
    assert installation.caller.erase_records("r0").status_code == 202
    installation.drain()
    installation.recover()
    needles = [
        needle
        for email in (ANN, BOB, EVE)
        for digest in digests("email", email).values()
        for needle in (email.encode(), email.upper().encode(), digest, digest.hex().encode())
    ]
    looked = 0
    for path in Path(installation.settings.data_dir).rglob("*"):
        if path.is_file():
            looked += 1
            data = path.read_bytes()
            assert not any(needle in data for needle in needles), path.name
    assert looked > 5
    assert not any(needle.decode("latin-1") in caplog.text for needle in needles)


def _stored(installation: Installation, ref: str = "small") -> list[Person]:
    with installation.services.reading() as session:
        model = session.exec(select(Model).where(Model.ref == ref)).one()
        query = select(Person).where(Person.model_id == model.id).order_by("id")
        return list(session.exec(query))


def test_the_search_for_remaining_data_knows_identities(installation: Installation) -> None:
    ready(installation)
    held = search(installation.settings, [ANN])
    assert held.leftovers == {"people: learned records of the person": 2}
    assert installation.caller.erase_records("r0", "r5").status_code == 202
    installation.drain()
    found = search(installation.settings, [ANN])
    assert found.ok, found.as_json()
    assert found.kept["people: a one-way tag, which answers that there was one"] == 2
