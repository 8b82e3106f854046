"""A masked model from its first round to certificates: learning, release, proof."""

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, col, delete, select

from app.service.desk import people
from lethe import canonical
from lethe.identity import parse
from lethe.log.entries import parse_leaf
from lethe.signing.keys import generate_key
from models import (
    Artifact,
    ErasureRequest,
    LogEntry,
    Model,
    PeopleSums,
    Record,
    Round,
    RoundMember,
    Subject,
)
from tests.installation import Installation, head, predicate, state
from tests.small import CLASSES, MODEL
from tests.workers.secure_sum.client.federation import Masked
from workers.data.identities import hashed
from workers.families.masked.case import encode_counts

FOUR = ("c0", "c1", "c2", "c3")


def erase(installation: Installation, scope: dict[str, Any]) -> str:
    answer = installation.caller.erase(scope)
    assert answer.status_code == 202, answer.text
    installation.drain()
    request_id: str = answer.json()["id"]
    assert state(installation, request_id) == "awaiting-round"
    return request_id


def erase_records(installation: Installation, *records: str) -> str:
    return erase(installation, {"level": "sample", "records": list(records)})


def test_a_round_gives_the_head_that_all_rows_give(learned: Masked) -> None:
    outside = set(learned.owned("c4"))
    assert head(learned.installation) == learned.head_without(outside)
    learned.installation.check()


def test_an_erasure_waits_for_a_round_and_is_certified_by_it(learned: Masked) -> None:
    installation = learned.installation
    wanted = learned.owned("c1")[:2]
    request_id = erase_records(installation, *wanted)
    learned.round(*FOUR)
    assert state(installation, request_id) == "certified"
    assert head(installation) == learned.head_without({*wanted, *learned.owned("c4")})
    found = predicate(installation, request_id)
    assert found.result == "PASS"
    assert found.checks[0].name == "masked-rounds-summed"
    statement = found.guarantee.statement
    assert statement.startswith("The rows were not seen, and nothing binds them to their")
    assert not [check for check in found.checks if check.name.startswith("rows-")]
    assert found.method.parameters["data"] == "masked"
    said = found.method.parameters
    assert (said["members"], said["contributors"], said["moved"]) == ("4", "1", "2")
    assert (said["least-contributors"], said["least-rows"]) == ("1", "1")
    assert found.scope.records == 2
    installation.check()


def test_nothing_of_a_round_can_be_opened_after_its_certificate(learned: Masked) -> None:
    installation = learned.installation
    wanted = learned.owned("c1")[:2]
    erase_records(installation, *wanted)
    learned.round(*FOUR)
    with Session(installation.services.engine) as session:
        assert session.exec(select(Round.transcript_id)).all() == [None, None]
        kept = select(Artifact.kind).where(col(Artifact.wrapped_key).is_not(None))
        kinds = list(session.exec(kept))
        assert not set(kinds) & {"round", "round-message", "draft"}
        assert sorted(kinds) == ["counts", "evidence", "head", "state"]
        assert not set(session.exec(select(Record.record))) & set(wanted)
        assert set(session.exec(select(RoundMember.statement))) == {None}


def test_no_certificate_confirms_a_guess_of_label_counts(learned: Masked) -> None:
    """Of few labels all counts can be tried; those of two versions tell an erased label."""
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c1")[0])
    here = [learned.rows.clients[i] in FOUR for i in range(len(learned.rows.clients))]
    counts = np.bincount(learned.rows.labels[here], minlength=CLASSES).tolist()
    guess = sha256(canonical.encode(counts)).hexdigest()
    learned.round(*FOUR)
    assert guess not in predicate(installation, request_id).purged.artifacts
    with Session(installation.services.engine) as session:
        assert guess not in session.exec(select(Artifact.digest)).all()
    # A salt that everybody knows would confirm the guess as none does.
    salts = {canonical.decode(encode_counts(counts))[-1] for _ in range(3)}
    assert [len(bytes.fromhex(salt)) for salt in salts] == [32] * 3


def test_erased_and_added_in_one_round(learned: Masked) -> None:
    """The certificate's link begins at the set that grew, whose root the log holds."""
    installation = learned.installation
    wanted = learned.owned("c0")[:1]
    request_id = erase_records(installation, *wanted)
    learned.round("c0", "c1", "c2", "c4")
    assert state(installation, request_id) == "certified"
    assert head(installation) == learned.head_without(set(wanted))
    found = predicate(installation, request_id)
    assert found.retained_set.before.count == 40
    assert found.retained_set.after.count == 39
    with Session(installation.services.engine) as session:
        leaves = [parse_leaf(row.leaf) for row in session.exec(select(LogEntry))]
    roots = {digest for leaf in leaves for digest in leaf.digests.values()}
    assert {found.retained_set.before.root.hex(), found.retained_set.after.root.hex()} <= roots
    installation.check()


def test_people_of_added_records_are_found_and_erased_with_them(learned: Masked) -> None:
    """c4 adds its rows with the addresses of their people while a row of c0 is erased."""
    installation = learned.installation
    rows = learned.local("c4")
    emails = np.array(
        ["ann@x.org", "", "bob@x.org", *[""] * (len(rows.records) - 4), "ann@x.org"]
    )
    rows = replace(rows, identities={"email": hashed("email", emails)})
    wanted = learned.owned("c0")[:1]
    listed = [(wanted[0], parse("email=cay@x.org"))]
    assert people.import_identities(installation.services, MODEL, listed, "desk") == 1
    with Session(installation.services.engine) as session:  # a change and a second one add up
        session.exec(delete(PeopleSums))
        session.commit()
    request_id = erase_records(installation, *wanted)
    opened = learned.open("c0", "c1", "c2", "c4").json()["id"]
    joining = [learned.joining(opened, client) for client in ("c0", "c1", "c2")]
    joining.append(learned.joining(opened, "c4", rows=rows))
    learned.take(joining)
    installation.drain()
    assert state(installation, request_id) == "certified"
    with installation.services.reading() as session:
        model = session.exec(select(Model)).one()

    def found(email: str) -> tuple[tuple[str, ...], int]:
        one = people.find(installation.services, model, parse(f"email={email}"))
        return one.learned, one.erased

    own = rows.records
    assert found("Ann@X.org") == (tuple(sorted((own[0], own[-1]))), 0)
    assert found("bob@x.org") == ((own[2],), 0)
    assert found("cay@x.org") == ((), 1)
    erase_records(installation, own[0])
    learned.round("c1", "c2", "c4")
    assert found("ann@x.org") == ((own[-1],), 1)
    installation.check()


def test_several_requests_are_completed_by_one_round(learned: Masked) -> None:
    installation = learned.installation
    one = erase_records(installation, learned.owned("c0")[0], learned.owned("c2")[0])
    two = erase(installation, {"level": "client", "client": "c3"})
    three = erase_records(installation, learned.owned("c1")[4])
    learned.round(*FOUR)
    gone = {learned.owned("c0")[0], learned.owned("c2")[0], learned.owned("c1")[4]}
    gone |= {*learned.owned("c3"), *learned.owned("c4")}
    assert head(installation) == learned.head_without(gone)
    found = [predicate(installation, request) for request in (one, two, three)]
    assert [each.result for each in found] == ["PASS"] * 3
    assert [each.method.parameters["batch"] for each in found] == ["3"] * 3
    chain = [(each.retained_set.before, each.retained_set.after) for each in found]
    assert chain[0][1] == chain[1][0]
    assert chain[1][1] == chain[2][0]
    installation.check()


def test_a_request_whose_clients_are_not_all_members_waits_on(learned: Masked) -> None:
    installation = learned.installation
    inside = erase_records(installation, learned.owned("c0")[0])
    across = erase_records(installation, learned.owned("c0")[1], learned.owned("c3")[0])
    opened = learned.open("c0", "c1", "c2").json()
    assert opened["requests"] == 1
    assert "1 waiting erasure requests concern clients" in opened["warnings"][0]
    learned.take([learned.joining(opened["id"], client) for client in ("c0", "c1", "c2")])
    installation.drain()
    assert state(installation, inside) == "certified"
    assert state(installation, across) == "awaiting-round"
    learned.round(*FOUR, add=False)  # c0's data still holds what is erased
    assert state(installation, across) == "certified"


def test_an_earlier_request_that_took_all_leaves_nothing_to_a_later_one(
    learned: Masked,
) -> None:
    installation = learned.installation
    first = erase(installation, {"level": "client", "client": "c3"})
    second = installation.caller.erase({"level": "subject", "subject": "c3"})
    assert second.status_code == 409, "it claims nothing: told so at once"
    learned.round(*FOUR)
    assert state(installation, first) == "certified"


def test_all_records_of_a_model(learned: Masked) -> None:
    """Nothing is left: the head of no rows is zero, and certified."""
    installation = learned.installation
    requests = [erase(installation, {"level": "client", "client": client}) for client in FOUR]
    learned.round(*FOUR)
    assert {state(installation, request) for request in requests} == {"certified"}


@pytest.mark.parametrize("method", ["ridge-woodbury", "acu", "ridge-sketched"])
def test_methods_that_track_an_inverse_are_summed_too(
    installation: Installation, method: str
) -> None:
    masked = Masked(installation, method=method)
    masked.round(*FOUR)
    request_id = erase_records(installation, masked.owned("c2")[0])
    masked.round(*FOUR)
    found = predicate(installation, request_id)
    assert (found.result, found.method.id) == ("PASS", method)


def test_silence_until_the_deadline_goes_to_a_person(learned: Masked) -> None:
    installation = learned.installation
    request_id = erase_records(installation, learned.owned("c0")[0])
    with Session(installation.services.engine) as session:
        request = session.get_one(ErasureRequest, request_id)
        request.due_at = request.received_at
        session.commit()
    installation.dispatcher.sweep(installation.services)
    assert state(installation, request_id) == "escalated"
    learned.round(*FOUR)
    assert state(installation, request_id) == "certified"


def test_the_database_holds_no_message_in_the_clear(learned: Masked) -> None:
    """While a round runs its messages are sealed artifacts; the rows name only them."""
    opened = learned.open(*FOUR).json()["id"]
    learned.take([learned.joining(opened, client) for client in FOUR], steps=3)
    with Session(learned.installation.services.engine) as session:
        rows = session.exec(select(RoundMember).where(RoundMember.round_id == opened)).all()
        text = json.dumps([row.model_dump() for row in rows])
        sealed = session.get_one(Artifact, rows[0].masked_id)
    assert "vector" not in text
    assert sealed.wrapped_key is not None


def test_a_bound_key_releases_its_clients_rows_only(learned: Masked) -> None:
    installation = learned.installation
    bound = replace(installation.caller, keyid="only-c1", key=generate_key("ed25519"))
    assert bound.register_key(client="c1").status_code == 201
    answer = bound.erase({"level": "subject", "subject": "c1"})
    assert answer.status_code == 202, answer.text
    installation.drain()
    foreign = replace(learned.local("c4"), subjects=["c1"] * len(learned.owned("c4")))
    opened = learned.open("c2", "c3", "c4").json()["id"]
    joining = [learned.joining(opened, client) for client in ("c2", "c3")]
    learned.take([*joining, learned.joining(opened, "c4", rows=foreign)])
    installation.drain()
    learned.round("c0", "c1", "c2", "c3")
    assert state(installation, answer.json()["id"]) == "certified"
    with Session(installation.services.engine) as session:
        kept = session.exec(
            select(Record.record).join(Subject).where(Subject.subject_tag == "c1")
        ).all()
    assert sorted(kept) == sorted(learned.owned("c4"))
