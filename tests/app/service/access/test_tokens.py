"""Names of tokens: which are reserved, and which are never given again."""

import pytest
from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.problems import TokenNameError
from app.service.access.tokens import mint, revoke_named


@pytest.mark.parametrize(
    "name", ["drp:ACME", "DRP:x", "lethe: notice", "Lethe:x", "\uff44rp:x"]
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
