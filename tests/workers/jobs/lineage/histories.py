"""What happens to the small model: contributions, and erasures with how they end."""

from tests.installation import Installation, shown
from tests.small import MODEL, Caller, pack, rows


def contribute(at: Installation, seed: int, count: int = 2) -> None:
    """Send rows of a client of its own, and learn them."""
    client = Caller(at.caller.http, at.caller.token, keyid=f"client{seed}")
    client.register_key(role="client")
    more = pack(rows(seed=seed, count=count, first=100 * seed))
    path = f"/v1/models/{MODEL}/contributions"
    sent = client.signed("POST", path, more, content_type="application/x-npz")
    assert sent.status_code == 202, sent.text
    at.drain()


def outcome(at: Installation, *records: str) -> tuple[str, str]:
    """Erase records; return the request's state and the reason."""
    request = at.caller.erase_records(*records).json()["id"]
    at.drain()
    found = shown(at, request)
    return found["state"], found.get("reason") or ""
