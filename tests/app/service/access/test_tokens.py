"""Names of tokens: which are reserved, and which are never given again."""

import pytest
from sqlmodel import Session, func, select

from app.ledger.key_rows import key_rows
from app.ledger.lock import LOCK
from app.ledger.sequencer import Ledger
from app.problems import TokenNameError
from app.service.access.tokens import mint, revoke_named
from models import BearerToken


@pytest.mark.parametrize(
    "name",
    [
        "drp:ACME",
        "DRP:x",
        "lethe: notice",
        "Lethe:x",
        "\uff44rp:x",
        " lethe: notice",
        "le\u034fthe:x",
        "\uffa0drp:x",
    ],
)
def test_names_that_the_service_uses_are_reserved(ledger: Ledger, name: str) -> None:
    with Session(ledger.engine) as session:
        for scope in ("officer", "operator", "agent"):
            with pytest.raises(TokenNameError, match="reserved"):
                mint(session, scope, name)


def test_only_pairing_makes_names_of_paired_agents(ledger: Ledger) -> None:
    with Session(ledger.engine) as session:
        mint(session, "drp", "drp:ACME")
        with pytest.raises(TokenNameError, match="reserved"):
            mint(session, "drp", "lethe: notice")


def test_an_agents_name_is_never_given_to_another_agent(ledger: Ledger) -> None:
    with Session(ledger.engine) as session:
        for scope in ("agent", "officer"):
            mint(session, scope, scope)
            revoke_named(session, scope)
        with pytest.raises(TokenNameError, match="requests"):
            mint(session, "agent", "agent")
        mint(session, "officer", "officer")  # others have no requests by their name


def test_an_agents_name_is_not_given_to_another_while_its_token_is_being_revoked(
    ledger: Ledger,
) -> None:
    """Its row is not marked yet, or never: whoever revoked it was killed after the list."""
    with Session(ledger.engine) as session:
        mint(session, "agent", "broker")
        session.commit()
        key_rows(session).revoke(session.exec(select(BearerToken)).one())
        with pytest.raises(TokenNameError, match="requests"):
            mint(session, "agent", "broker")


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("change", ["mint", "revoke"])
def test_names_are_given_and_taken_one_after_the_other(change: str, ledger: Ledger) -> None:
    """Otherwise two commands at once give one name to two agents."""
    with Session(ledger.engine) as session:
        mint(session, "agent", "broker")
        session.commit()
    with Session(ledger.engine) as session, Session(ledger.engine) as other:
        if change == "mint":
            mint(session, "agent", "another")
        else:
            revoke_named(session, "broker")
        free = select(func.pg_try_advisory_xact_lock(LOCK))
        assert not other.exec(free).one(), "others wait for the end of this transaction"
