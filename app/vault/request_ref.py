"""A request's public reference, computed from its id.

The id is the capability of whoever asked, and is in no certificate; the reference is in the log
and on the certificate. No table says which belongs to which: who exchanges rows of the database
gives no id the reference of another request.
"""

import hmac
from uuid import UUID

from app.vault.master import RootSecret


def request_ref(root_secret: RootSecret, request_id: str) -> str:
    """Return the reference of the request of an id; without the keys it tells nothing of it."""
    digest = hmac.digest(root_secret.derive("request/ref"), request_id.encode(), "sha256")
    return str(UUID(bytes=digest[:16], version=4))
