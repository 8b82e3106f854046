"""A request and its body, verified together: what the service does one after the other."""

from collections.abc import Mapping
from datetime import datetime

from lethe.signing.http import Resolve, SignedBy, check_body, verify_head


def verify_request(
    method: str,
    target_uri: str,
    headers: Mapping[str, str],
    body: bytes,
    resolve: Resolve,
    *,
    now: datetime,
) -> SignedBy:
    signed = verify_head(method, target_uri, headers, resolve, now=now, has_body=bool(body))
    check_body(headers, body)
    return signed
