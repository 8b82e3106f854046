"""Callbacks of agents: the requests that they follow, sent through the outbox of notices."""

import asyncio
from collections.abc import Sequence

from app.notices.callbacks import rows
from app.notices.callbacks.check import check
from app.protocols.cases import AgentRequest
from app.schemas.people import CaseView
from app.service.callbacks import check_limit
from app.service.context import Services


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


def follow(
    services: Services, asked: AgentRequest, urls: Sequence[str], views: Sequence[CaseView]
) -> None:
    """Send addresses the status of a request, now and at each change.

    Raises CallbackLimitError if the agent has reached its limit of callbacks.
    """
    if not urls:
        return
    refs = [part.request_ref for view in views for part in view.parts if part.request_ref]
    rows.follow(services, asked.protocol, asked.agent, asked.request, urls, refs)
