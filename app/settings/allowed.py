"""The allow-list of hosts and networks that are not public."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple

HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f.]*:[0-9a-f:.]*:[0-9a-f:.]*")  # or an IPv6 address


class Allowed(NamedTuple):
    """Non-public hosts and networks that notices may reach."""

    hosts: tuple[str, ...]
    networks: tuple[IPv4Network | IPv6Network, ...]

    @classmethod
    def parse(cls, text: str) -> "Allowed":
        """Read a comma-separated list. Raises ValueError for a malformed network or host."""
        entries = listed(text)
        hosts = tuple(one.lower() for one in entries if "/" not in one)
        if not all(HOST.fullmatch(one) for one in hosts):  # it would allow nothing
            raise ValueError("a host has no port and no pattern")
        return cls(hosts, tuple(ip_network(one) for one in entries if "/" in one))


def listed(text: str) -> list[str]:
    """Return the entries of a comma-separated list, without spaces and empty ones."""
    return [one.strip() for one in text.split(",") if one.strip()]
