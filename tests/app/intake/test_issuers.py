"""Who issued a code is a submitter: the log has their name, and they approve nothing of it."""

from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app.reconcile.fsck.approvals import OWN
from app.reconcile.fsck.intake import UNLOGGED
from app.reconcile.fsck.run import fsck
from app.service.desk import people
from app.service.intake.codes import issue
from lethe.identity import WIDTH, Identity, digests, pack
from models import Case, IntakeCode, IntakeProof, RequestEvent
from tests.app.intake.people import Page, Visitor
from tests.installation import Installation, named
from tests.small import rows
from tests.workers.jobs.desk.test_fsck_approvals import executed, plant
from tests.workers.jobs.desk.test_people import checks, write
from tests.workers.jobs.desk.test_review import decide, other


@pytest.fixture
def customers(site: Installation) -> Installation:
    """One whose model knows customer 77 by r0 and customer 78 by r1."""
    arrays = rows()
    given = [pack(digests("customer", one)) for one in ("77", "78")]
    packed = [*given, *[bytes(WIDTH)] * (len(arrays["records"]) - 2)]
    arrays["identity_customer"] = np.array([np.frombuffer(row, np.uint8) for row in packed])
    assert site.caller.register_model(arrays).status_code == 201
    site.drain()
    return site


def code(installation: Installation, by: str, customer: str = "77") -> str:
    """Issue a code."""
    with Session(installation.services.engine) as session:
        made = issue(
            session, installation.services.root_secret, "customer", customer, "passport", by
        )
        session.commit()
    return made


def opened(installation: Installation, visitor: Visitor, by: str, customer: str = "77") -> str:
    """Open a case with a code of this issuer; return its ref."""
    given = code(installation, by, customer)
    form = visitor.ask(customer, kind="customer", proof="operator")
    assert "review it first" in Page(visitor.confirm(form, given)).text
    with Session(installation.services.engine) as session:
        return session.exec(select(Case.ref)).one()


def part(installation: Installation, ref: str) -> dict[str, Any]:
    """Return the part of a case."""
    shown: dict[str, Any] = installation.caller.operator("GET", f"/v1/cases/{ref}").json()
    (only,) = shown["parts"]
    found: dict[str, Any] = only
    return found


@pytest.mark.parametrize(
    ("issuer", "approver"),
    [
        ("desk", "desk"),
        ("Desk", "dESK"),
        ("sso:Desk", "desk"),
        ("sso:Jos\u00e9", "jose\u0301"),  # NFC and NFD
        ("\u212bsa", "a\u030asa"),  # the sign of the unit, and the letter
    ],
)
def test_who_issued_the_code_does_not_approve(
    customers: Installation, visitor: Visitor, issuer: str, approver: str
) -> None:
    ref = opened(customers, visitor, issuer)
    same = named(customers, approver, "officer")
    refused = decide(same, ref, "approve")
    assert refused.status_code == 403
    assert issuer not in refused.text
    # The log has who it was, whatever the tables say.
    write(customers, "UPDATE intake_proofs SET issued_by = NULL")
    assert decide(same, ref, "approve").status_code == 403
    assert [one.detail for one in fsck(customers.services.ledger).findings] == [UNLOGGED]
    assert decide(other(customers), ref, "approve").status_code == 200
    customers.drain()
    assert part(customers, ref)["outcome"] == "certified"


def test_the_case_of_a_code_is_clean_and_the_receipt_has_no_name(
    customers: Installation, visitor: Visitor
) -> None:
    ref = opened(customers, visitor, "desk")
    customers.check()
    shown = customers.caller.operator("GET", f"/v1/cases/{ref}").json()
    assert {"issued_by": "desk"} in [one["detail"] for one in shown["timeline"]]
    with Session(customers.services.engine) as session:
        proof = session.exec(select(IntakeProof)).one()
        assert proof.issued_by == "desk"
        assert "desk" not in str(proof.record)
        query = select(RequestEvent).where(RequestEvent.event == "request.on-behalf")
        assert session.exec(query).one().payload["issued_by"] == "desk"


def test_an_issuer_who_approved_and_executed_all_the_same_is_found(
    customers: Installation, visitor: Visitor
) -> None:
    ref = part(customers, opened(customers, visitor, "desk"))["request_ref"]
    index = plant(customers, ref, "request.approved", by="sso:DESK")
    executed(customers, ref)
    found = [one for one in fsck(customers.services.ledger).findings if one.detail == OWN]
    assert [(one.check, one.log_index) for one in found] == [("approval", index)]


def test_an_issuer_exchanged_in_the_database_makes_the_code_none(
    customers: Installation, visitor: Visitor
) -> None:
    given = code(customers, "desk")
    code(customers, "somebody", "78")
    with Session(customers.services.engine) as session:
        mine = next(one for one in session.exec(select(IntakeCode)) if one.issued_by == "desk")
    write(
        customers,
        "UPDATE intake_codes SET issued_by = (SELECT issued_by FROM intake_codes "
        f"WHERE tag <> '{mine.tag}')",
    )
    form = visitor.ask("77", kind="customer", proof="operator")
    assert visitor.confirm(form, given).status_code == 422
    with Session(customers.services.engine) as session:
        assert session.exec(select(Case)).all() == []


def test_who_imported_the_identity_does_not_approve(
    customers: Installation, visitor: Visitor
) -> None:
    """Their own number, given to somebody else's record: asked for by code, approved alone."""
    mine = Identity("customer", digests("customer", "666"))
    people.import_identities(customers.services, "small", [("r1", mine)], "Desk")
    ref = opened(customers, visitor, "another", "666")
    desk = named(customers, "desk", "officer")
    assert decide(desk, ref, "approve").status_code == 403
    shown = customers.caller.operator("GET", f"/v1/cases/{ref}").json()
    assert {"imported_by": "Desk", "issued_by": "another"} in [
        one["detail"] for one in shown["timeline"]
    ]
    request = part(customers, ref)["request_ref"]
    plant(customers, request, "request.approved", by="desk")
    executed(customers, request)
    assert OWN in [one.detail for one in fsck(customers.services.ledger).findings]


def test_an_importer_who_is_taken_out_of_the_table_is_missed(
    customers: Installation, visitor: Visitor
) -> None:
    mine = Identity("customer", digests("customer", "666"))
    people.import_identities(customers.services, "small", [("r1", mine)], "desk")
    write(customers, "UPDATE people SET imported_by = NULL")
    given = code(customers, "another", "666")
    form = visitor.ask("666", kind="customer", proof="operator")
    assert visitor.confirm(form, given).status_code == 500
    assert "people" in checks(customers)
