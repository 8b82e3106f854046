"""Identities of people, from an upload to a lookup and an erasure, and rows that were planted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app.problems import UnknownRecordError
from app.purge.search import search
from app.reconcile.fsck import fsck
from app.reconcile.fsck_vault import fsck_vault
from app.reconcile.people import PeopleChangedError
from app.service import people
from lethe.identity import WIDTH, Identity, digests, pack, parse
from models import Model, Person
from tests import small
from tests.installation import Installation
from tests.small import Caller, rows

ANN, BOB, EVE = "ann@example.org", "bob@example.org", "eve@example.org"


def packed(*emails: str) -> Any:
    """Return a column of digests, as a door sends it."""
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
    """Write to the table as somebody does who has the database and no key."""
    with Session(installation.services.engine) as session:
        session.connection().execute(text(statement))
        session.commit()


def refuses(installation: Installation) -> None:
    """Insist that nobody is looked up any more, and that fsck finds it."""
    for person in (ANN, BOB, EVE):
        with pytest.raises(PeopleChangedError):
            found(installation, f"email={person}")
    services = installation.services
    report = fsck(services.ledger)
    fsck_vault(services.engine, services.artifacts, services.master, report)
    assert any(finding.check == "people" for finding in report.findings), report.findings


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
    """r1 is Bob's, and Eve's too if one believes what c9 sends of held-out rows."""
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
    assert people.import_identities(installation.services, "small", listed) == 2
    assert people.import_identities(installation.services, "small", listed) == 0
    assert found(installation, f"email={EVE}").learned == ("r2", "r3")
    with pytest.raises(UnknownRecordError) as refused:
        people.import_identities(installation.services, "small", [*listed, ("secret", eve)])
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


@pytest.mark.parametrize("statement", PLANTED.values(), ids=PLANTED.keys())
def test_a_row_that_was_written_by_another_is_not_believed(
    installation: Installation, statement: str
) -> None:
    ready(installation)
    assert [row.id for row in _stored(installation)] == [1, 2, 3]
    write(installation, statement)
    refuses(installation)


def test_a_row_that_was_erased_does_not_come_back(installation: Installation) -> None:
    ready(installation)
    write(installation, "CREATE TABLE kept AS SELECT * FROM people")
    assert installation.caller.erase_records("r0").status_code == 202
    installation.drain()
    write(installation, "DELETE FROM people")
    write(installation, "INSERT INTO people SELECT * FROM kept")
    refuses(installation)


def test_rows_of_one_model_are_not_those_of_another(installation: Installation) -> None:
    ready(installation, "small", "other")
    first, second = (
        {row.sha256 for row in _stored(installation, ref)} for ref in ("small", "other")
    )
    assert first.isdisjoint(second)
    assert found(installation, f"email={ANN}", "other").learned == ("r0", "r5")
    write(installation, "UPDATE people SET model_id = 3 - model_id")
    refuses(installation)


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
