"""Checks callback addresses when a request is submitted, before anything is stored.

The host is resolved then, and again before every delivery. A requester learns only that an
address is refused, not whether a name exists in the operator's network.
"""

import asyncio
import threading
from collections import Counter
from functools import partial

from app.notices import guard
from app.problems import BusyError, CallbackLimitError, CallbackTargetError
from app.service.context import Services
from app.settings import Allowed

LOOKUP_S = 3.0
AT_ONCE = 4  # lookups of one owner in a process, also of names that never resolve
REFUSED = (
    "an address to call back must be https:// on port 443 or from "
    f"{guard.FREE_PORTS} up, without credentials and fragment, at most {guard.MAX_URL} "
    "characters long, and its host must have public addresses only"
)

asking: Counter[str] = Counter()
_counting = threading.Lock()


async def check(services: Services, owner: str, *urls: str) -> None:
    """Check that these addresses may be called back for an owner.

    Raises:
        CallbackTargetError: One may not.
        CallbackLimitError: Callbacks are off.
        BusyError: As many addresses of this owner are being looked up as may be.
    """
    if urls and services.settings.callbacks_each == 0:
        raise CallbackLimitError("this service sends no callbacks: ask for the status instead")
    allowed = services.settings.callback_allowed
    try:
        targets = [guard.parse_target(allowed, url) for url in urls]
        for target in targets:
            await _look_up(owner, allowed, target)
    except (guard.TargetError, TimeoutError):
        raise CallbackTargetError(REFUSED) from None


async def _look_up(owner: str, allowed: Allowed, target: guard.Target) -> None:
    """Resolve a target. Raises TargetError, TimeoutError; BusyError: as `check`."""
    with _counting:
        if asking[owner] >= AT_ONCE:
            raise BusyError("too many callback addresses are being looked up: try again")
        asking[owner] += 1
    lookup = asyncio.ensure_future(guard.resolve(allowed, target))
    # Whoever waits gives up, or hangs up; the resolver's thread goes on, and has its place.
    lookup.add_done_callback(partial(_ended, owner))
    done, _ = await asyncio.wait([lookup], timeout=LOOKUP_S)
    if not done:
        raise TimeoutError
    lookup.result()


def _ended(owner: str, lookup: "asyncio.Future[list[str]]") -> None:
    with _counting:
        asking[owner] -= 1
        if not asking[owner]:
            del asking[owner]
    if not lookup.cancelled():
        lookup.exception()  # after the time-out nobody else asks for it
