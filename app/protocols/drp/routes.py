"""/drp: the Data Rights Protocol 1.0, as the endpoint of a Privacy Infrastructure Provider.

The specification describes these routes, and OpenAPI does not.
"""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from app.api.http import problems
from app.api.http.deps import ServicesDep, count_call, counting
from app.counters import REFUSED
from app.ledger.authority import act_for
from app.problems import CallbackTargetError, DrpAgentError, DrpError, NotFoundError
from app.protocols.cases import (
    AgentRequest,
    check_urls,
    follow,
    open_all,
    show_all,
    ticket_of_all,
    withdraw_all,
)
from app.protocols.drp import agents
from app.protocols.drp.envelope import (
    check_claims,
    check_pairing,
    check_withdrawal,
    open_envelope,
)
from app.protocols.drp.wire import (
    PROTOCOL,
    Exercise,
    denial,
    denied,
    people_of,
    status_of,
    ticket_of,
)
from app.schemas.base import format_time
from app.service.context import Services
from lethe.errors import LetheError


class DrpRoute(APIRoute):
    """A route whose errors are DRP's (section 3.06); without a business-id it is off."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            if not request.app.state.services.settings.drp_business_id:
                return problems.answer(
                    NotFoundError("the Data Rights Protocol is not configured here")
                )
            try:
                return await handle(request)
            except LetheError as error:
                return refusal(error)
            except ValidationError as error:
                fields = ", ".join(str(one["loc"][0]) for one in error.errors() if one["loc"])
                return refusal(DrpError(f"these members are not as specified: {fields}"))

        return handled


def refusal(error: LetheError) -> Response:
    """Return DRP's error. fatal: repeating the request would fail again."""
    REFUSED.add(error.slug)
    body: dict[str, Any] = {"code": str(error.status), "message": error.detail}
    if isinstance(error, DrpError):
        body["fatal"] = True
    wait = error.retry_after or (problems.RETRY_AFTER_S if error.status == 503 else None)
    headers = {} if wait is None else {"retry-after": str(wait)}
    return JSONResponse(body, error.status, headers={"cache-control": "no-store", **headers})


router = APIRouter(prefix="/drp/v1", route_class=DrpRoute, include_in_schema=False)


async def read_body(request: Request) -> bytes:
    """Read the envelope."""
    return await request.body()


async def known_agent(
    request: Request,
    services: ServicesDep,
    authorization: Annotated[str | None, Header()] = None,
) -> tuple[str, Ed25519PublicKey]:
    """Return the agent whose token came with the call, and its key; count the call."""

    def read() -> tuple[str, Ed25519PublicKey]:
        with services.reading() as session:
            return agents.agent_of(session, authorization)

    def check(session: Session) -> None:
        if agents.agent_of(session, authorization) != found:
            raise DrpAgentError("the agent's key was replaced meanwhile: send it again")

    found = await run_in_threadpool(read)
    count_call(request, f"token {agents.name_of(found[0])}")
    act_for(check)
    return found


Body = Annotated[bytes, Depends(read_body)]
Agent = Annotated[tuple[str, Ed25519PublicKey], Depends(known_agent)]


@router.post("/agent/{agent_id}")
def pair(agent_id: str, body: Body, request: Request, services: ServicesDep) -> Response:
    """Give an agent a token for a message that its registered key signed (section 2.05).

    Each pairing leaves a row, and a line in the list of revoked tokens, which all processes
    read: it is counted apart from the calls with the token.
    """
    try:
        with services.reading() as session:
            key = agents.key_of(session, agent_id)
        envelope = open_envelope(body, key)
        expires = _checked(services, envelope.said, agent_id)
        check_pairing(envelope.said)
        with counting(request, f"agent {agent_id}"):
            token = agents.pair(services, agent_id, envelope.digest, expires)
    except DrpError as error:  # "403 Forbidden response with no response body"
        REFUSED.add(error.slug)
        return Response(status_code=403)
    return _answer({"agent-id": agent_id, "token": token})


@router.get("/agent/{agent_id}")
def know(agent_id: str, agent_and_key: Agent, services: ServicesDep) -> Response:
    """Confirm that a token is valid (section 2.06)."""
    agent, _ = agent_and_key
    if agent != agent_id:
        return Response(status_code=403)
    return _answer({})


@router.post("/data-rights-request")
@router.post("/data-rights-request/")
def exercise(body: Body, agent_and_key: Agent, services: ServicesDep) -> Response:
    """Open cases for a person's verified identities (section 2.01).

    Sending an envelope again repeats the same request: its id is computed from the hash.
    """
    agent, key = agent_and_key
    envelope = open_envelope(body, key)
    expires = _checked(services, envelope.said, agent)
    wanted = Exercise.model_validate(envelope.said)
    agents.note_exercise(services, agent, envelope.digest, expires)
    people = people_of(wanted)
    if (why := denial(wanted, people)) is not None:
        return _answer(denied(str(uuid4()), wanted, format_time(datetime.now(UTC)), why))
    request = str(UUID(bytes=bytes.fromhex(envelope.digest)[:16], version=4))
    asked = AgentRequest(PROTOCOL, agents.name_of(agent), request)
    urls = [] if wanted.status_callback is None else [wanted.status_callback]
    try:
        check_urls(services, asked, urls)
    except CallbackTargetError as error:
        raise DrpError(f"status_callback: {error.detail}") from None
    open_all(services, asked, people, "ccpa", ticket_of(wanted))
    follow(services, asked, urls)
    return _status(services, asked)


@router.get("/data-rights-request/{request_id}")
def status(request_id: str, agent_and_key: Agent, services: ServicesDep) -> Response:
    """Return the status of an agent's own request (section 2.02)."""
    agent, _ = agent_and_key
    return _status(services, AgentRequest(PROTOCOL, agents.name_of(agent), request_id))


@router.delete("/data-rights-request/{request_id}")
def revoke(
    request_id: str, body: Body, agent_and_key: Agent, services: ServicesDep
) -> Response:
    """Withdraw a request before a worker begins (section 2.04)."""
    agent, key = agent_and_key
    envelope = open_envelope(body, key)  # its reason may name the person, and is not kept
    business = services.settings.drp_business_id
    expires = check_withdrawal(envelope.said, agent, business, datetime.now(UTC))
    if expires is not None:
        agents.spend(services, agent, envelope.digest, expires)
    asked = AgentRequest(PROTOCOL, agents.name_of(agent), request_id)
    try:
        withdraw_all(services, asked)
    except NotFoundError:
        raise _foreign() from None
    return _status(services, asked)


def _checked(services: Services, said: Any, agent: str) -> datetime:
    business = services.settings.drp_business_id
    return check_claims(said, agent, business, datetime.now(UTC))


def _status(services: Services, asked: AgentRequest) -> Response:
    try:
        views = show_all(services, asked)
    except NotFoundError:
        raise _foreign() from None
    return _answer(status_of(asked.request, views, ticket_of_all(services, asked)))


def _foreign() -> DrpAgentError:
    # "If the requesting agent is not responsible …, SHALL respond with a 403 Forbidden".
    return DrpAgentError("this agent has made no request of this id, or it was denied at once")


def _answer(document: dict[str, Any]) -> Response:
    return JSONResponse(document, headers={"cache-control": "no-store"})
