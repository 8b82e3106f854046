"""Which targets a webhook or callback may have: public addresses, over HTTPS.

A target is chosen by a holder of an operator's token (for a callback, of a requester's key),
and by whoever controls its DNS name. Unchecked, it could make the service call what only the
service can reach: a database, a cloud's metadata, the operator's own network (OWASP,
"Server-Side Request Forgery Prevention"). A name is resolved once and the connection goes to
the checked address (`app.notices.post`), so DNS rebinding gains nothing.
"""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from app.settings import Allowed
from lethe.errors import LetheError

MAX_URL = 2000
FREE_PORTS = 1024  # below are mail, SSH and other servers
NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052
# Addresses that embed another address, which no public receiver has: 6to4, Teredo, NAT64 of
# a local network, IPv4-compatible; site-local ones, deprecated by RFC 3879; and what Python
# 3.11 has as public: documentation, 6to4 relays, IETF's protocols and a cloud's wire server.
REFUSED = tuple(
    ipaddress.ip_network(one)
    for one in (
        "2002::/16", "2001::/32", "64:ff9b:1::/48", "::/96", "fec0::/10", "3fff::/20",
        "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32",
    )
)  # fmt: skip
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TargetError(LetheError):
    """This service may not call the target of a webhook."""

    slug, title, status = "webhook-target", "Webhook target refused", 422


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a parsed URL.

    usual: HTTPS on port 443 or from FREE_PORTS up. allowed: the operator named its
    host, in LETHE_WEBHOOK_ALLOW or LETHE_CALLBACK_ALLOW.
    """

    host: str
    port: int
    usual: bool
    allowed: bool


def parse_target(allowed: Allowed, url: str) -> Target:
    """Read a URL.

    Raises TargetError if it is malformed or too long, or has credentials or a fragment.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise TargetError("the target is no URL: give https://HOST/PATH") from None
    plain = url.isascii() and url.isprintable() and " " not in url and "\\" not in url
    if parts.scheme not in ("https", "http") or not parts.hostname or not plain:
        raise TargetError("the target must be a URL such as https://hooks.example.org/lethe")
    if len(url) > MAX_URL:
        raise TargetError(f"the target's URL has more than {MAX_URL} characters")
    if "@" in parts.netloc:
        raise TargetError("the target's URL has credentials: signatures authenticate notices")
    if "#" in url:
        raise TargetError("the target's URL has a fragment, which is never sent: leave it out")
    port = port or (443 if parts.scheme == "https" else 80)
    usual = parts.scheme == "https" and (port == 443 or port >= FREE_PORTS)
    return Target(parts.hostname, port, usual, parts.hostname in allowed.hosts)


async def resolve(allowed: Allowed, target: Target) -> list[str]:
    """Return the addresses of a target, all of which may be connected to.

    Raises TargetError if one of them is not public and not allowed, there is none, or it is not
    HTTPS at a usual port and not allowed.
    """
    try:
        found = await lookup(target.host, target.port)
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise TargetError("the target's host has no address: check its name")
    if target.allowed:
        return found
    inside = [_in_allowed(allowed, one) for one in found]
    if not target.usual and not all(inside):
        raise TargetError(
            f"the target must be https:// at port 443 or from {FREE_PORTS} on, or the operator "
            "name its host or network in LETHE_WEBHOOK_ALLOW"
        )
    if not all(own or is_public(one) for own, one in zip(inside, found, strict=True)):
        raise TargetError(
            "the target has an address of this machine or a private network: use a public one, "
            "or have the operator name the host or network in LETHE_WEBHOOK_ALLOW"
        )
    return found


async def lookup(host: str, port: int) -> list[str]:
    """Return the addresses of a host by the system's resolver, without duplicates.

    The resolver cannot be interrupted. It runs in a thread of its own, which is abandoned when
    the caller times out: `asyncio.run` would wait for a thread of the loop's executor.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()

    def tell(say: Callable[[Any], None], said: object) -> None:
        if not answer.done():
            say(said)

    def ask() -> None:
        say: Callable[[Any], None]
        said: object
        try:
            say, said = (
                answer.set_result,
                socket.getaddrinfo(host, port, type=socket.SOCK_STREAM),
            )
        except Exception as error:  # the caller's to handle
            say, said = answer.set_exception, error
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(tell, say, said)

    threading.Thread(target=ask, daemon=True, name="resolver").start()
    found = await answer
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def is_public(text: str) -> bool:
    """Return whether an address is globally reachable and of no private network."""
    try:
        return _is_public(ipaddress.ip_address(text))
    except ValueError:
        return False


def _is_public(address: Address) -> bool:
    if any(address in one for one in REFUSED if one.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        if address.ipv4_mapped is not None:
            return _is_public(address.ipv4_mapped)
        if address in NAT64:
            return _is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address.is_global and not address.is_multicast and not address.is_reserved


def _in_allowed(allowed: Allowed, text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(address in one for one in allowed.networks if one.version == address.version)
