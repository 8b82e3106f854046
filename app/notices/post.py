"""One POST to a webhook, at the checked address. Only the head of the answer is read."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

import lethe
from app.notices import guard
from app.settings import Allowed
from lethe.tls import trusted

WHOLE_S = 15.0  # in total: resolving, connecting, sending, and the head of the answer
STEP_S = 8.0
MOST_ADDRESSES = 3
LONGEST_WAIT_S = 86_400


class UnreachableError(Exception):
    """No answer; the message is a word that may be stored and shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a receiver. retry_after: the seconds it asks for, or 0."""

    status: int
    retry_after: int


def post(allowed: Allowed, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """Send `body` and return the answer's status. Redirects are not followed.

    Raises:
        TargetError: The target may not be called; nothing was sent.
        UnreachableError: There was no answer in time.
    """
    return asyncio.run(_post(allowed, url, headers, body))


def check(allowed: Allowed, url: str) -> None:
    """Raise TargetError unless a notice could be sent to `url` now."""

    async def resolve() -> None:
        target = guard.parse_target(allowed, url)
        async with asyncio.timeout(STEP_S):
            await guard.resolve(allowed, target)

    try:
        asyncio.run(resolve())
    except TimeoutError:
        raise guard.TargetError("the target's host was not resolved in time") from None


async def _post(allowed: Allowed, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
    target = guard.parse_target(allowed, url)
    try:
        async with asyncio.timeout(WHOLE_S):
            addresses = await guard.resolve(allowed, target)
            return await _first(addresses[:MOST_ADDRESSES], target, url, headers, body)
    except TimeoutError:
        raise UnreachableError("timeout") from None


async def _first(
    addresses: list[str],
    target: guard.Target,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Post to the first address that accepts a connection."""
    for address in addresses[:-1]:
        try:
            return await to_address(address, target, url, headers, body)
        except UnreachableError as error:
            if str(error) != "connection":
                raise
    return await to_address(addresses[-1], target, url, headers, body)


async def to_address(
    address: str, target: guard.Target, url: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """Post to a checked address of the target. Raises UnreachableError."""
    import httpx2  # only where something is sent

    parsed = httpx2.URL(url)
    sent = {
        **headers,
        "host": parsed.netloc.decode("ascii"),
        "content-type": "application/json",
        "user-agent": f"lethe/{lethe.__version__}",
    }
    # The certificate is checked against the name, the connection made to the address. No
    # proxy of the environment: it would resolve the name again.
    try:
        client = httpx2.AsyncClient(verify=trusted(), trust_env=False, timeout=STEP_S)
    except OSError:  # SSL_CERT_FILE names no certificates
        raise UnreachableError("tls") from None
    where = parsed.copy_with(host=address)
    asked = client.build_request(
        "POST", where, headers=sent, content=body, extensions={"sni_hostname": target.host}
    )
    try:
        async with client:
            answer = await client.send(asked, stream=True, follow_redirects=False)
            await answer.aclose()
    except httpx2.TimeoutException:
        raise UnreachableError("timeout") from None
    except httpx2.ConnectError as error:
        reason = "tls" if "SSL" in str(error) or "certificate" in str(error) else "connection"
        raise UnreachableError(reason) from None
    except httpx2.HTTPError:
        raise UnreachableError("no-answer") from None
    asked_for = answer.headers.get("retry-after", "")
    seconds = int(asked_for) if re.fullmatch("[0-9]{1,8}", asked_for) else 0
    return Answer(answer.status_code, min(seconds, LONGEST_WAIT_S))
