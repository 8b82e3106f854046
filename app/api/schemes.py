"""How calls are authenticated, as OpenAPI names it. The checks are in `app.api.deps`."""

from fastapi.openapi.models import APIKey, APIKeyIn, HTTPBase, SecurityBase
from fastapi.security.base import SecurityBase as Dependency


class Scheme(Dependency):
    """A dependency that checks nothing: it has OpenAPI name the scheme at its operations."""

    def __init__(self, name: str, model: SecurityBase) -> None:
        self.scheme_name = name
        self.model = model

    async def __call__(self) -> None:
        """Do nothing."""


BEARER = Scheme(
    "bearer",
    HTTPBase(scheme="bearer", description="A token of `lethe token new`: operator or auditor."),
)
SIGNATURE = Scheme(
    "httpSignature",
    # OpenAPI has no type for RFC 9421, and no authentication scheme is registered for it.
    APIKey.model_validate(
        {
            "in": APIKeyIn.header,
            "name": "Signature",
            "description": (
                "RFC 9421, with `Signature-Input` and, of a body, `Content-Digest` (RFC 9530): "
                "tag lethe-erasure, keyid, nonce, created and expires, over @method, "
                "@target-uri, content-type, content-digest and, if sent, idempotency-key. "
                "The nonce is spent once the signature verifies."
            ),
        }
    ),
)
