"""/v1/rounds: masked rounds, opened by an operator and run by clients step by step."""

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from app.api.http.deps import (
    After,
    Limit,
    Operator,
    OperatorOrAuditor,
    ServicesDep,
    SignedByClient,
)
from app.api.http.forms import describe_bytes
from app.api.http.parsing import ParsingDep
from app.api.http.strict import StrictRoute
from app.rounds import member, operator
from app.schemas.base import Page
from app.schemas.rounds import NewRound, RoundNotice, RoundView, RoundWork, Step

router = APIRouter(prefix="/v1/rounds", tags=["rounds"], route_class=StrictRoute)


@router.post("", status_code=201, operation_id="openRound", dependencies=[Operator])
def open_round(wanted: NewRound, services: ServicesDep, response: Response) -> RoundView:
    """Open a round; erasure requests that its members can complete are released in it."""
    shown = operator.open_round(services, wanted)
    response.headers["location"] = f"/v1/rounds/{shown.id}"
    return shown


@router.get("", operation_id="listRounds", dependencies=[OperatorOrAuditor])
def list_rounds(
    services: ServicesDep, after: After = None, limit: Limit = 100
) -> Page[RoundView]:
    """List rounds by id."""
    with services.reading() as session:
        return operator.page(session, after, limit)


@router.get("/asked", operation_id="listAskedRounds")
def list_asked(signed: SignedByClient, services: ServicesDep) -> Page[RoundNotice]:
    """List the open rounds that name the signing key, at most 100, oldest first."""
    return Page(items=member.waiting_for(services, signed.by), next=None)


@router.get("/{round_id}", operation_id="getRound", dependencies=[OperatorOrAuditor])
def get_round(round_id: str, services: ServicesDep) -> RoundView:
    """Show a round: its step, who has sent, and why it failed."""
    with services.reading() as session:
        return operator.find_view(session, round_id)


@router.get("/{round_id}/work", operation_id="getRoundWork")
def get_work(round_id: str, signed: SignedByClient, services: ServicesDep) -> RoundWork:
    """Show a member the inputs of its next message; signed with the member's key."""
    return member.work(services, signed.by, round_id)


@router.put(
    "/{round_id}/messages/{step}",
    operation_id="sendRoundMessage",
    openapi_extra=describe_bytes("application/json"),
)
async def send(
    round_id: str, step: Step, signed: SignedByClient, services: ServicesDep, turns: ParsingDep
) -> dict[str, str]:
    """Send the signing member's message for a step; the same again is answered the same."""
    message = await turns.parse(
        lambda: member.read(services, signed.by, round_id, step, signed.body)
    )
    state = await run_in_threadpool(member.send, services, signed.by, round_id, step, message)
    return {"state": state}


@router.post("/{round_id}/abort", operation_id="abortRound", dependencies=[Operator])
def abort(round_id: str, services: ServicesDep) -> RoundView:
    """End a round that was opened by mistake; nothing of the model was changed."""
    return operator.abort(services, round_id)
