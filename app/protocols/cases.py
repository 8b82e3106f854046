"""Cases of agents: requests of other machines under their own ids, and their callbacks.

An agent's request is one case for each of the person's identities. The refs of the cases are
computed from the agent's name, its id and the number of identities, not looked up in a table.
The log commits to the ref of each case, so write access to the database is not enough to give
an agent another agent's case, or to drop cases of a request. Each case also has a keyed tag of
the whole request's content: all of them are for the same identities.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from sqlmodel import Session, col, select

from app.ledger.transaction import Transaction
from app.notices.callbacks import rows
from app.notices.callbacks.check import check
from app.problems import ConflictError, ForbiddenError, NotFoundError, NotWithdrawableError
from app.reconcile.model_events import signed_leaf
from app.reconcile.people import PeopleChangedError
from app.schemas.people import CaseView, NewCase, PartView, PersonIdentity
from app.schemas.requests import Regulation
from app.service.access.quota import check_limit
from app.service.context import Services
from app.service.desk.cases import show
from app.service.desk.decisions import withdraw
from app.service.desk.opening import open_case
from app.service.parts import UNLIKE, UNLOGGED, parts_of
from lethe import canonical
from lethe.log.entries import ERASURE_EVENT
from models import Case, ErasureRequest, RequestEvent

CONTENT = "content of an agent's request 2"  # purpose of the tag in each case's `checked`
MOST = 10  # identities of a person in one request
LOGGED = ("certified", "refused", "withdrawn")  # final outcomes that are reported to agents
WAITING = ("received", "awaiting-review", "cooling-off", "paused")


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """The identity of an agent's request: the name of its token, and the id that it gave."""

    protocol: str
    agent: str
    request: str

    def ref(self, of: int, number: int) -> str:
        """Return the ref of case `number` of `of`."""
        named = ["case of an agent 1", self.protocol, self.agent, self.request, of, number]
        digest = sha256(canonical.encode(named)).digest()
        return str(UUID(bytes=digest[:16], version=5))


def open_all(
    services: Services,
    asked: AgentRequest,
    people: Sequence[PersonIdentity],
    regulation: Regulation,
    ticket: str,
) -> list[CaseView]:
    """Open the case of each identity; existing ones are left unchanged.

    A call that was killed leaves some cases, and no request. Sent again, it opens the others.

    Raises:
        ConflictError: The id was used for other identities or another regulation.
        UnpublishedError: All is stored, and cannot be signed yet.
        What `open_case` raises.
    """
    # Sorted: however a request is ordered, each identity has its place, and so its case.
    by_text = {canonical.encode(one.model_dump()).decode(): one for one in people}
    named = sorted(by_text)
    content = [asked.protocol, asked.agent, asked.request, regulation, *named]
    tag = services.root_secret.tag(CONTENT, canonical.encode(content).decode())
    with services.reading() as session:
        known = _cases_of(session, asked, tag)
    if asked.ref(len(named), 0) in known:
        # The call before may have failed after its commit: what it logged is not signed yet.
        services.ledger.transact(lambda _: None)
        return show_all(services, asked)

    def check(tx: Transaction, case: Case) -> None:
        _cases_of(tx.session, asked, tag)  # of calls that came in between, too

    # The first one last: a request exists once all of its cases do.
    for number in reversed(range(len(named))):
        wanted = NewCase(
            person=by_text[named[number]],
            regulation=regulation,
            ticket=ticket,
            checked=f"by {asked.agent}, over {asked.protocol}; request {tag}",
        )
        open_case(services, wanted, asked.agent, asked.ref(len(named), number), also=check)
    with services.reading() as session:  # or another call opened them, for other identities
        _cases_of(session, asked, tag)
    return show_all(services, asked)


def show_all(services: Services, asked: AgentRequest) -> list[CaseView]:
    """Return the cases of an agent's request.

    Raises:
        NotFoundError: This agent has made no request of this id.
        ConflictError: Its retention has ended, so it cannot be checked against the log.
        PeopleChangedError: A case is missing, differs from the log or is another request's.
    """
    with services.reading() as session:
        known = _cases(session, asked)
    totals = [total for total in range(1, MOST + 1) if asked.ref(total, 0) in known]
    if not totals:
        raise NotFoundError("you have made no request of this id")
    refs = [asked.ref(totals[0], number) for number in range(totals[0])]
    if len(totals) > 1 or not known.keys() >= set(refs):
        raise PeopleChangedError(UNLOGGED)
    # Write access to the database can end a retention too, and then exchange the parts.
    if any(known[ref].key is None for ref in refs):
        raise ConflictError(
            "the request's retention has ended, and with it what proves its end"
        )
    if len({known[ref].checked for ref in refs}) > 1:
        raise PeopleChangedError(
            "the cases of this request were not opened for the same identities: send it with a "
            "new id"
        )
    views = [show(services, ref) for ref in refs]
    for part in (part for view in views for part in view.parts):
        _confirm(services, part)
    return views


def _confirm(services: Services, part: PartView) -> None:
    """Check a part's outcome against the log, because answers with it are signed.

    Raises PeopleChangedError if no signed entry of its request says so.
    """
    if part.outcome not in LOGGED or part.request is None:
        return
    event = f"request.{part.outcome}"
    query = select(RequestEvent.log_index).where(
        RequestEvent.request_id == part.request, RequestEvent.event == event
    )
    with services.reading() as session:
        places = list(session.exec(query))
    for index in places:
        leaf = signed_leaf(services.ledger, index)
        if (leaf.kind, leaf.event, leaf.ref) == (ERASURE_EVENT, event, part.request_ref):
            return
    raise PeopleChangedError(UNLIKE)


def is_waiting(views: Sequence[CaseView]) -> bool:
    """Return whether requests are in progress, and no worker has begun any of them."""
    states = [
        part.state for view in views for part in view.parts if part.outcome == "in progress"
    ]
    waits = bool(states) and all(state in WAITING for state in states)
    return waits and "certified" not in outcomes(views)


def withdraw_all(services: Services, asked: AgentRequest) -> list[CaseView]:
    """Withdraw an agent's request.

    Raises:
        NotFoundError: This agent has made no request of this id.
        NotWithdrawableError: A worker has begun, or everything has ended.
        UnpublishedError: All is stored, and cannot be signed yet.
        ForbiddenError: The records are being erased by another request.
    """
    services.ledger.transact(lambda _: None)  # as in `open_all`
    views = show_all(services, asked)
    if not is_waiting(views):
        if outcomes(views) & {"withdrawn"}:  # sent again: the first answer may be lost
            return views
        raise NotWithdrawableError("execution has begun or the request is closed")
    # Where two identities have the same records, one case follows the other's request, and has
    # one of its own once that is withdrawn.
    while is_waiting(views):
        for request in _in_progress(services, views):
            withdraw(services, request, asked.agent)
        views = show_all(services, asked)
    return views


def _in_progress(services: Services, views: Sequence[CaseView]) -> set[str]:
    """Return the requests of cases that are in progress.

    Raises ForbiddenError if one was submitted with a case of another request, which would end
    with it.
    """
    parts = [part for view in views for part in view.parts if part.outcome == "in progress"]
    found = {part.request for part in parts if part.request is not None}
    cases = {view.ref for view in views}
    with services.reading() as session:
        for one in found:
            if session.get_one(ErasureRequest, one).case_ref not in cases:
                raise ForbiddenError(
                    "an earlier request is erasing these records: it is withdrawn by its own id"
                )
    return found


def ticket_of_all(services: Services, asked: AgentRequest) -> str | None:
    """Return the ticket of an agent's request, None at the end of its retention."""
    with services.reading() as session:
        return next((case.ticket for case in _cases(session, asked).values()), None)


def outcomes(views: Sequence[CaseView]) -> set[str]:
    """Return the outcomes of the parts of cases."""
    return {part.outcome for view in views for part in view.parts}


def is_left_at_source(views: Sequence[CaseView]) -> bool:
    """Return whether a model has held-out rows that were never stored here, so still exist."""
    return any(
        part.outcome == "held out only" and part.held_out_removed < part.records
        for view in views
        for part in view.parts
    )


def _cases_of(session: Session, asked: AgentRequest, tag: str) -> dict[str, Case]:
    """Return the cases of a request. Raises ConflictError if one is not of this content."""
    known = _cases(session, asked)
    if not all((case.checked or "").endswith(tag) for case in known.values()):
        raise ConflictError("this id was used for a request of other content: use a new id")
    return known


def _cases(session: Session, asked: AgentRequest) -> dict[str, Case]:
    """Return the cases of a request by their refs, whatever its number of identities."""
    refs = [asked.ref(of, at) for of in range(1, MOST + 1) for at in range(of)]
    found = session.exec(select(Case).where(col(Case.ref).in_(refs)))
    return {case.ref: case for case in found}


def check_urls(services: Services, asked: AgentRequest, urls: Sequence[str]) -> None:
    """Check that these addresses may be called back, before anything is stored.

    Raises:
        CallbackTargetError: One may not.
        CallbackLimitError: The agent has reached its limit of callbacks.
        BusyError: As many addresses of the agent are being looked up as may be.
    """
    if not urls:
        return
    with services.reading() as session:
        check_limit(services, session, asked.protocol, asked.agent, len(set(urls)) - 1)
    asyncio.run(check(services, f"{asked.protocol} {asked.agent}", *urls))


def follow(services: Services, asked: AgentRequest, urls: Sequence[str]) -> None:
    """Send addresses the status of a request, now and at each change.

    Raises CallbackLimitError if the agent has reached its limit of callbacks.
    """
    if not urls:
        return

    def refs(session: Session) -> list[str]:
        found = _cases(session, asked).values()
        parts = (part for case in found for part in parts_of(services, case))
        return [part.request_ref for part in parts if part.request_ref is not None]

    rows.follow(services, asked.protocol, asked.agent, asked.request, urls, refs)
