"""Agents of the Data Rights Protocol: a registered key of role `agent`, and a token for it.

The agent's keyid is its agent-id in the directory. A signed pairing gives it a token, which
replaces the previous one. A message can be used once: messages that pair, exercise or withdraw
are noted in `used_nonces` until they expire.
"""

from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlmodel import Session

from app.ledger.key_rows import believed, key_rows
from app.ledger.transaction import Transaction
from app.problems import DrpAgentError, DrpError, TokenNameError
from app.reconcile.approval import PAIRED
from app.service.access.keys import authorise
from app.service.access.tokens import living_token, mint, revoke_named
from app.service.context import Services
from lethe.signing.keys import load_public_key
from models import RequesterKey, UsedNonce

SCOPE = "drp"
USED = "this message was used before: sign another"
KEPT = timedelta(minutes=11)  # after a message's expiry, as for nonces of signed calls


def key_of(session: Session, agent: str) -> Ed25519PublicKey:
    """Return the key of a registered agent.

    Raises DrpAgentError if no valid key is registered for this agent.
    """
    row = believed(session, RequesterKey, agent)
    if row is not None and row.role == "agent" and row.revoked_at is None:
        key = load_public_key(row.public_key.encode())
        if isinstance(key, Ed25519PublicKey):
            return key
    raise DrpAgentError("the agent is not registered here")


def name_of(agent: str) -> str:
    """Return the name of an agent's token, which no other token can have."""
    return f"{PAIRED}{agent}"


def agent_of(session: Session, header: str | None) -> tuple[str, Ed25519PublicKey]:
    """Return the agent whose token this is, and its key.

    Raises:
        UnauthorizedError: No token, or one that is unknown or was replaced.
        ForbiddenError: A token of another scope.
        DrpAgentError: The agent's key was revoked.
    """
    agent = authorise(session, header, (SCOPE,)).name.removeprefix(name_of(""))
    return agent, key_of(session, agent)


def pair(services: Services, agent: str, digest: str, expires: datetime) -> str:
    """Return a new token for an agent, once for each message; the previous one is revoked.

    Raises DrpError if the message was used before, or the agent's name is too long.
    """

    def effect(tx: Transaction) -> str:
        if not _note(tx.session, agent, digest, expires):
            raise DrpError(USED)
        name, before = name_of(agent), tx.now - timedelta(microseconds=1)
        living = living_token(tx.session, name)
        if living is not None and living.scope == SCOPE:
            revoke_named(tx.session, name)
        made = mint(tx.session, SCOPE, name)
        if living is None:  # its row may have been removed, and be restored later
            key_rows(tx.session).end_named(name, before)
        return made

    try:
        return services.ledger.transact(effect, checkpoint=False)
    except TokenNameError:
        raise DrpError("the agent-id is too long, or another token has its name") from None


def note_exercise(services: Services, agent: str, digest: str, expires: datetime) -> None:
    """Note that a message exercises a right; repeated, it is the same request."""
    services.ledger.transact(
        lambda tx: _note(tx.session, agent, digest, expires), checkpoint=False
    )


def spend(services: Services, agent: str, digest: str, expires: datetime) -> None:
    """Note that a message is used. Raises DrpError if it was used before."""
    if not services.ledger.transact(
        lambda tx: _note(tx.session, agent, digest, expires), checkpoint=False
    ):
        raise DrpError(USED)


def _note(session: Session, agent: str, digest: str, expires: datetime) -> bool:
    """Note a message; return whether it is new."""
    nonce = f"{SCOPE}:{digest}"
    if session.get(UsedNonce, (agent, nonce)) is not None:
        return False
    session.add(UsedNonce(keyid=agent, nonce=nonce, expires_at=expires + KEPT))
    return True
