"""A case for a person over two models: one answer, without other persons' data."""

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.ledger.startup import load_issuer
from app.purge import retention
from app.service.desk import opening
from app.service.desk.pending import read_rounds
from app.settings import Settings
from lethe import canonical
from lethe.certificates.bundle import sign_envelope
from lethe.certificates.case_summary import CasePredicate, build_summary, check_summary
from lethe.certificates.evidence import parse_evidence
from lethe.errors import LetheError
from lethe.identity import digests
from models import Case, Record
from tests.exchanged import exchange_certificates
from tests.installation import Installation, install, make_token, predicate
from tests.small import ROWS
from tests.workers.jobs.desk.test_people import ANN, BOB, EVE, found, named, ready, write

TICKET, CHECKED, CONTACT = "TICKET-4711", "called back on the number we had", "Ann, Main St 1"


def person(email: str) -> dict[str, str]:
    """Return an identity as the command line sends it."""
    found = {name: digest.hex() for name, digest in digests("email", email).items()}
    return {"kind": "email", **found}


def opened(installation: Installation, email: str, **changes: Any) -> Any:
    """Open a case for a person in all models."""
    body = {
        "person": person(email), "ticket": TICKET, "checked": CHECKED, "contact": CONTACT,
        **changes,
    }  # fmt: skip
    return installation.caller.operator("POST", "/v1/cases", json=body)


def shown(installation: Installation, ref: str, part: str = "") -> Any:
    """Return a case as the operator sees it."""
    return installation.caller.operator("GET", f"/v1/cases/{ref}{part}")


def outcomes(case: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of each part by its model."""
    return {part["model"]: part["outcome"] for part in case["parts"]}


def test_one_request_covers_two_models_and_gets_one_signed_answer(
    installation: Installation,
) -> None:
    ready(installation, "one", "two", r99=EVE)
    answer = opened(installation, ANN)
    assert answer.status_code == 201, answer.text
    case = answer.json()
    assert answer.headers["location"] == f"/v1/cases/{case['ref']}"
    assert case["state"] == "open"
    assert outcomes(case) == {"one": "in progress", "two": "in progress"}
    assert shown(installation, case["ref"], "/summary").status_code == 409
    installation.drain()
    done = shown(installation, case["ref"]).json()
    assert done["state"] == "answered"
    assert outcomes(done) == {"one": "certified", "two": "certified"}
    assert [part["records"] for part in done["parts"]] == [2, 2]
    assert done["due_at"] == case["due_at"]
    indices = [item["log_index"] for item in done["timeline"]]
    assert indices == sorted(indices)
    for model in ("one", "two"):
        events = [item["event"] for item in done["timeline"] if item["model"] == model]
        assert {"case.opened", "request.on-behalf", "request.certified"} <= set(events)
    signed = shown(installation, case["ref"], "/summary")
    assert signed.status_code == 200, signed.text
    files = [
        installation.caller.http.get(part["certificate"]).content for part in done["parts"]
    ]
    key, _ = load_issuer(installation.services.settings)
    statement = check_summary(signed.content, key.public_key(), files)
    assert [part.outcome for part in statement.predicate.parts] == ["certified", "certified"]
    assert len(statement.subject) == 2
    other = installation.caller.http.get(done["parts"][0]["certificate"]).content + b" "
    with pytest.raises(LetheError, match="file 1 is not a certificate"):
        check_summary(signed.content, key.public_key(), [other])
    swapped = swap_certificates(installation, statement.predicate)
    with pytest.raises(LetheError, match="file 1 is a certificate about another model"):
        check_summary(swapped, key.public_key(), files)
    forged = signed.content.replace(b'"sig":"', b'"sig":"AA')
    with pytest.raises(LetheError):
        check_summary(forged, key.public_key())
    installation.check()


def swap_certificates(installation: Installation, answer: CasePredicate) -> bytes:
    """Return what a dishonest service signs: each part with the certificate of the other."""
    first, second = answer.parts
    parts = (
        replace(first, certificate=second.certificate),
        replace(second, certificate=first.certificate),
    )
    key, keyid = load_issuer(installation.services.settings)
    payload = build_summary(replace(answer, parts=parts))
    return canonical.encode(sign_envelope(payload, key, keyid))


def test_each_kind_of_nothing_gets_its_own_answer(installation: Installation) -> None:
    ready(installation, "one", r99=EVE)
    assert outcomes(opened(installation, EVE).json()) == {"one": "held out only"}
    assert outcomes(opened(installation, "x@y.z").json()) == {"one": "nothing found"}
    first = opened(installation, ANN).json()
    installation.drain()
    again = opened(installation, ANN).json()
    assert outcomes(again) == {"one": "erased before"}
    assert (
        again["parts"][0]["certificate"]
        == (shown(installation, first["ref"]).json()["parts"][0]["certificate"])
    )
    for case in (again, opened(installation, EVE).json()):
        answer = shown(installation, case["ref"], "/summary")
        assert answer.status_code == 200, answer.text
    assert shown(installation, "0" * 8).status_code == 404
    installation.check()


def test_a_second_case_follows_the_request_of_the_first(installation: Installation) -> None:
    ready(installation, "one")
    first = opened(installation, ANN).json()
    second = opened(installation, ANN).json()
    assert second["parts"][0]["request"] == first["parts"][0]["request"]
    installation.drain()
    assert outcomes(shown(installation, second["ref"]).json()) == {"one": "certified"}
    assert shown(installation, second["ref"], "/summary").status_code == 200


def test_a_case_erases_more_records_than_a_body_may_name(
    settings: Settings, ledger: Ledger
) -> None:
    """Whoever puts a person's identity on more rows does not prevent their erasure."""
    few = settings.model_copy(update={"max_scope_records": 1})
    with install(few) as made:
        ready(made, "one")
        named_in_body = made.caller.erase_records("r0", "r5", fields={"model": "one"})
        assert named_in_body.status_code == 413
        assert named_in_body.json()["type"] == "urn:lethe:problem:scope-too-large"
        answer = opened(made, ANN)
        assert answer.status_code == 201, answer.text
        case, following = answer.json(), opened(made, ANN).json()
        [part] = case["parts"]
        assert [one["request"] for one in following["parts"]] == [part["request"]]
        made.drain()
        for before in (case, following):
            done = shown(made, before["ref"]).json()
            assert (done["state"], outcomes(done)) == ("answered", {"one": "certified"})
            assert done["due_at"] == before["due_at"]
        evidence = made.caller.http.get(f"/v1/requests/{part['request']}/evidence").content
        removal = parse_evidence(evidence).removal
        assert sorted(one.record for one in removal.records) == ["r0", "r5"]
        certificate = made.caller.http.get(f"/v1/requests/{part['request']}/certificate")
        assert predicate(made, part["request"]).scope.records == 2
        key, _ = load_issuer(few)
        signed = shown(made, case["ref"], "/summary").content
        check_summary(signed, key.public_key(), [certificate.content])
        ann = found(made, f"email={ANN}", "one")
        assert (ann.learned, ann.erased, ann.erased_by) == ((), 2, (part["request"],))
        with made.services.reading() as session:
            left = set(session.exec(select(Record.record)))
        assert left == {f"r{number}" for number in range(ROWS)} - {"r0", "r5"}
        made.check()


def test_the_request_says_who_acts_and_what_was_checked(installation: Installation) -> None:
    ready(installation, "one")
    case = opened(installation, ANN).json()
    request = case["parts"][0]["request"]
    with Session(installation.services.engine) as session:
        from sqlmodel import select

        from models import RequestEvent

        event = session.exec(
            select(RequestEvent).where(
                RequestEvent.request_id == request, RequestEvent.event == "request.on-behalf"
            )
        ).one()
    assert event.payload["case"] == case["ref"]
    assert event.payload["by"] == case["opened_by"]
    assert event.payload["checked"] == CHECKED
    assert TICKET not in json.dumps(event.payload)


def test_a_contact_is_opened_with_a_log_entry_and_destroyed(installation: Installation) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    assert CONTACT not in shown(installation, ref).text
    size = installation.services.ledger.latest().size
    seen = installation.caller.operator("POST", f"/v1/cases/{ref}/contact")
    assert seen.json() == {"contact": CONTACT, "log_index": size}
    close = f"/v1/cases/{ref}/close"
    assert installation.caller.operator("POST", close).status_code == 409
    installation.drain()
    assert installation.caller.operator("POST", close).json()["state"] == "closed"
    assert installation.caller.operator("POST", close).json()["state"] == "closed"
    assert installation.caller.operator("POST", f"/v1/cases/{ref}/contact").status_code == 404
    assert shown(installation, ref, "/summary").status_code == 200
    installation.check()


def test_only_operators_look_people_up(installation: Installation) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    query = {"person": person(ANN)}
    for token in (make_token(installation.services, "auditor"), "nobody"):
        headers = {"authorization": f"Bearer {token}"}
        for method, path in (
            ("POST", "/v1/people/find"),
            ("POST", "/v1/cases"),
            ("GET", f"/v1/cases/{ref}"),
            ("POST", f"/v1/cases/{ref}/contact"),
        ):
            answer = installation.caller.http.request(
                method, path, headers=headers, json=query if method == "POST" else None
            )
            assert answer.status_code in (401, 403), path


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE people SET record = (SELECT record FROM people WHERE id = 2) WHERE id = 1",
        "DELETE FROM people",
        "UPDATE people SET state = 'held-out'",
    ],
)
def test_no_case_is_opened_over_rows_that_were_written_by_another(
    installation: Installation, statement: str
) -> None:
    ready(installation, "one")
    write(installation, statement)
    size = installation.services.ledger.latest().size
    answer = opened(installation, ANN)
    assert (answer.status_code, answer.json()["type"]) == (
        500,
        "urn:lethe:problem:people-changed",
    )
    assert installation.services.ledger.latest().size == size


def test_no_answer_is_signed_with_another_persons_parts(installation: Installation) -> None:
    ready(installation, "one")
    ann, bob = (opened(installation, email).json()["ref"] for email in (ANN, BOB))
    installation.drain()
    write(
        installation,
        f"UPDATE cases SET parts = (SELECT parts FROM cases WHERE ref = '{bob}') "
        f"WHERE ref = '{ann}'",
    )
    for part in ("", "/summary"):
        answer = shown(installation, ann, part)
        assert answer.json()["type"] == "urn:lethe:problem:people-changed"
    assert shown(installation, bob, "/summary").status_code == 200


def test_no_answer_names_the_certificate_of_another_request(installation: Installation) -> None:
    ready(installation, "one")
    ann, bob = (opened(installation, email).json() for email in (ANN, BOB))
    installation.drain()
    signed = shown(installation, ann["ref"], "/summary")
    assert signed.status_code == 200, signed.text
    one, other = (case["parts"][0]["request"] for case in (ann, bob))
    exchange_certificates(installation.services.engine, one, other)
    for case in (ann, bob):
        answer = shown(installation, case["ref"], "/summary")
        assert answer.json()["type"] == "urn:lethe:problem:certificate-changed"
    exchange_certificates(installation.services.engine, one, other)
    assert shown(installation, ann["ref"], "/summary").status_code == 200


def test_no_answer_is_signed_of_a_request_that_only_the_database_has_as_ended(
    installation: Installation,
) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    for state in ("certified", "refused"):
        write(installation, f"UPDATE erasure_requests SET state = '{state}'")
        answer = shown(installation, ref, "/summary")
        assert answer.json()["type"] == "urn:lethe:problem:people-changed"


@pytest.mark.parametrize("name", ["approved", "other"])
def test_no_answer_is_signed_with_a_decision_under_another_name(
    installation: Installation, name: str
) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    note = {"text": "asked for a copy first"}
    path = f"/v1/cases/{ref}/note"
    assert installation.caller.operator("POST", path, json=note).status_code == 200
    installation.drain()
    assert shown(installation, ref, "/summary").status_code == 200
    write(
        installation,
        f"UPDATE request_events SET event = 'request.{name}' WHERE event = 'request.noted'",
    )
    answer = shown(installation, ref, "/summary")
    assert answer.json()["type"] == "urn:lethe:problem:people-changed"


def test_no_answer_hides_decisions_behind_the_end_of_anothers_retention(
    installation: Installation,
) -> None:
    ready(installation, "one")
    ann = opened(installation, ANN).json()["parts"][0]["request"]
    installation.drain()
    late = replace(
        installation.services,
        settings=installation.settings.model_copy(update={"request_retention_days": 0}),
    )
    retention.run(late)
    bob = opened(installation, BOB).json()
    path, note = f"/v1/cases/{bob['ref']}/note", {"text": "asked for a copy first"}
    assert installation.caller.operator("POST", path, json=note).status_code == 200
    installation.drain()
    assert shown(installation, bob["ref"], "/summary").status_code == 200
    write(
        installation,
        f"UPDATE erasure_requests SET event_key = (SELECT event_key FROM erasure_requests "
        f"WHERE id = '{ann}') WHERE id = '{bob['parts'][0]['request']}'",
    )
    answer = shown(installation, bob["ref"], "/summary")
    assert answer.json()["type"] == "urn:lethe:problem:people-changed"


@pytest.mark.parametrize(
    "change",
    [
        "due_at = '2099-01-01 00:00:00'",
        "received_at = '2020-01-01 00:00:00'",
        "regulation = 'ccpa'",
        "model_id = (SELECT id FROM models WHERE ref = 'two')",
        "log_index = (SELECT max(log_index) FROM request_events "
        "WHERE event = 'request.received')",
    ],
)
def test_no_answer_is_signed_of_a_request_alone_that_was_logged_otherwise(
    installation: Installation, change: str
) -> None:
    ready(installation, "one", "two")
    one = {"model": "one"}
    ref = installation.caller.erase_records("r1", fields=one).json()["ref"]
    assert installation.caller.erase_records("r2", "r3", fields=one).status_code == 202
    installation.drain()
    signed = shown(installation, ref, "/summary")
    assert signed.status_code == 200, signed.text
    write(installation, f"UPDATE erasure_requests SET {change} WHERE ref = '{ref}'")
    answer = shown(installation, ref, "/summary")
    assert answer.json()["type"] == "urn:lethe:problem:people-changed"


def test_a_case_leaves_no_text_behind(
    installation: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    installation.caller.operator("POST", f"/v1/cases/{ref}/contact")
    installation.drain()
    installation.caller.operator("POST", f"/v1/cases/{ref}/close")
    bad = installation.caller.operator(
        "POST", "/v1/people/find", json={"person": {"kind": "email", "sha256": ANN}}
    )
    assert bad.status_code == 422
    assert ANN not in bad.text
    secret = [ANN, TICKET, CHECKED, CONTACT, *person(ANN).values()][:-1]
    with Session(installation.services.engine) as session:
        leaves = session.connection().execute(text("SELECT leaf FROM log_entries")).all()
    stored = [bytes(leaf[0]) for leaf in leaves]
    stored += [
        path.read_bytes()
        for path in installation.settings.data_dir.rglob("*")
        if path.is_file()
    ]
    for needle in (ANN, TICKET, CHECKED, CONTACT, person(ANN)["sha256"]):
        assert needle in secret or needle
        assert not any(needle.encode() in data for data in stored), needle
        assert needle not in caplog.text


def test_cases_need_a_model_and_learned_rows(installation: Installation) -> None:
    assert opened(installation, ANN).status_code == 409
    assert installation.caller.register_model(named(), ref="one").status_code == 201
    assert opened(installation, ANN).json()["type"] == "urn:lethe:problem:contribution-pending"
    assert opened(installation, ANN, models=["other"]).status_code == 404


def test_a_forgotten_case_keeps_numbers_alone(installation: Installation) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    installation.drain()
    assert not retention.run(installation.services).removed
    late = replace(
        installation.services,
        settings=installation.settings.model_copy(update={"request_retention_days": 0}),
    )
    assert retention.run(late).removed == {"evidence": 1, "scope": 1, "case": 1}
    assert not retention.run(late).removed
    with Session(installation.services.engine) as session:
        case = session.get_one(Case, ref)
        assert (case.ticket, case.checked, case.contact, case.key) == (None,) * 4
    assert outcomes(shown(installation, ref).json()) == {"one": "certified"}
    installation.check()


def test_a_contact_is_destroyed_after_the_deadline(installation: Installation) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    # Its deadline is signed, so it cannot be moved: the contact expires before it.
    periods = {"contact_retention_days": -400}
    late = replace(
        installation.services, settings=installation.settings.model_copy(update=periods)
    )
    assert not retention.run(late).removed  # its request is open: the person must be told
    installation.drain()
    assert retention.run(late).removed == {"contact": 1}
    with Session(installation.services.engine) as session:
        case = session.get_one(Case, ref)
        assert (case.contact, case.ticket) == (None, TICKET)


def test_no_answer_is_signed_of_a_case_whose_key_the_database_lost(
    installation: Installation,
) -> None:
    ready(installation, "one")
    ann, bob = (opened(installation, email).json()["ref"] for email in (ANN, BOB))
    installation.drain()
    write(
        installation,
        f"UPDATE cases SET key = NULL, parts = (SELECT parts FROM cases WHERE ref = '{bob}') "
        f"WHERE ref = '{ann}'",
    )
    answer = shown(installation, ann, "/summary")
    assert answer.json()["type"] == "urn:lethe:problem:conflict"


@pytest.mark.parametrize("ended", [False, True])
def test_no_case_follows_a_request_whose_logged_scope_is_another(
    installation: Installation, ended: bool
) -> None:
    ready(installation, "one")
    other = opened(installation, BOB).json()["parts"][0]["request"]
    if ended:
        installation.drain()
    write(
        installation,
        f"UPDATE records SET claimed_by = '{other}' WHERE record IN "
        "(SELECT record FROM records WHERE claimed_by IS NULL)",
    )
    answer = opened(installation, ANN)
    kind = "conflict" if ended else "people-changed"
    assert answer.json()["type"] == f"urn:lethe:problem:{kind}"


@pytest.mark.parametrize("column", ["received_at", "due_at"])
def test_no_answer_is_signed_with_other_times(installation: Installation, column: str) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    installation.drain()
    write(installation, f"UPDATE cases SET {column} = '2020-01-01 00:00:00'")
    answer = shown(installation, ref, "/summary")
    assert answer.json()["type"] == "urn:lethe:problem:people-changed"


def test_the_contact_of_another_case_is_not_opened(installation: Installation) -> None:
    ready(installation, "one")
    ann = opened(installation, ANN).json()["ref"]
    eve = opened(installation, EVE, contact="Eve").json()["ref"]
    write(
        installation,
        f"UPDATE cases SET contact = (SELECT contact FROM cases WHERE ref = '{eve}') "
        f"WHERE ref = '{ann}'",
    )
    answer = installation.caller.operator("POST", f"/v1/cases/{ann}/contact")
    assert answer.json()["type"] == "urn:lethe:problem:people-changed"


def test_a_held_case_keeps_its_contact_and_is_not_closed(installation: Installation) -> None:
    ready(installation, "one")
    ref = opened(installation, ANN).json()["ref"]
    installation.drain()
    placed = installation.caller.operator(
        "POST", "/v1/holds", json={"ref": ref, "reason": "a lawsuit"}
    ).json()
    assert [one["id"] for one in shown(installation, ref).json()["holds"]] == [placed["id"]]
    # Its deadline is signed, so it cannot be moved: the contact expires before it.
    periods = {"request_retention_days": 0, "contact_retention_days": -400}
    late = replace(
        installation.services, settings=installation.settings.model_copy(update=periods)
    )
    done = retention.run(late)
    assert done.removed == {}
    assert done.held == {"evidence": 1, "scope": 1, "contact": 1, "case": 1}
    refused = installation.caller.operator("POST", f"/v1/cases/{ref}/close")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:lethe:problem:held")
    officer = {"authorization": f"Bearer {make_token(installation.services, 'officer')}"}
    path = f"/v1/holds/{placed['id']}/release"
    assert installation.caller.http.post(path, headers=officer).status_code == 200
    ended = retention.run(late).removed
    assert ended == {"evidence": 1, "scope": 1, "contact": 1, "case": 1, "hold": 1}
    installation.check()


def test_a_model_registered_since_the_lookup_is_looked_up_too(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(installation, "one")
    honest = read_rounds

    def beside(*given: Any) -> Any:
        found = honest(*given)
        assert installation.caller.register_model(named(), ref="two").status_code == 201
        return found

    with monkeypatch.context() as patch:
        patch.setattr(opening, "read_rounds", beside)
        refused = opened(installation, ANN)
    assert refused.json()["type"] == "urn:lethe:problem:scope-changed", refused.text
    with installation.services.reading() as session:
        assert session.exec(select(Case)).first() is None
    installation.drain()
    assert outcomes(opened(installation, ANN).json()) == {
        "one": "in progress",
        "two": "in progress",
    }
    installation.drain()
    installation.check()
