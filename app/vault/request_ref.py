"""A request's public reference, computed from its id.

The id is the requester's capability, and is in no certificate; the reference is in the log and
on the certificate. No table maps one to the other, so exchanging rows of the database cannot
give an id the reference of another request.
"""

import hmac
from uuid import UUID

from app.vault.master import RootSecret


def request_ref(root_secret: RootSecret, request_id: str) -> str:
    """Return a request's reference, which without the keys reveals nothing about the id."""
    digest = hmac.digest(root_secret.derive("request/ref"), request_id.encode(), "sha256")
    return str(UUID(bytes=digest[:16], version=4))
