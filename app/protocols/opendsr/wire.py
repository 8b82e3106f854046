"""OpenDSR's request, with identities in the form of 2.0 or of 3.0, and its status.

2.0: a list of {identity_type, identity_value, identity_format}. 3.0: an object of
{value, encoding} by identity type. Raw values are hashed here, and not kept.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AwareDatetime, Field, StringConstraints

from app.problems import OpenDsrError
from app.protocols.cases import is_left_at_source, is_waiting, outcomes
from app.schemas.base import Wire, format_time
from app.schemas.people import CaseView, PersonIdentity
from app.schemas.requests import Regulation
from lethe.identity import IdentityError, digests, is_one_mailbox, parse_digest

Form = Literal["raw", "sha256", "sha1", "md5"]
FORMS: tuple[Form, ...] = get_args(Form)
PROTOCOL = "OpenDSR"
ERASURE = "erasure"
# "Global Unique Identifiers MUST be lowercase and v4 format" (section 1.1).
_UUID4 = r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
UUID4 = re.compile(_UUID4)
MOST_URLS = 5
Url = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Value = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class DsrIdentity(Wire):
    """An identity of 2.0."""

    identity_type: Annotated[str, StringConstraints(max_length=64)]
    identity_value: Value
    identity_format: Form


class DsrValue(Wire):
    """An identity of 3.0; its type is the key in the object."""

    value: Value
    encoding: Form


class NewDsrRequest(Wire):
    """The body of POST /requests. group_id, skip_waiting_period: of 3.0, without effect."""

    regulation: Regulation
    subject_request_id: Annotated[str, StringConstraints(pattern=_UUID4)]
    subject_request_type: Literal["erasure", "portability", "access"]
    submitted_time: AwareDatetime
    subject_identities: (
        Annotated[list[DsrIdentity], Field(min_length=1, max_length=10)]
        | Annotated[dict[str, DsrValue], Field(min_length=1, max_length=10)]
    )
    api_version: Annotated[str, StringConstraints(pattern=r"^[23]\.[0-9]+$")] | None = None
    status_callback_urls: list[Url] = Field(default=[], max_length=MOST_URLS)
    extensions: dict[str, Any] = Field(default={})
    group_id: str | None = None
    skip_waiting_period: bool | None = None


def people_of(wanted: NewDsrRequest, kinds: Mapping[str, str]) -> list[PersonIdentity]:
    """Return the identities for a look-up, each once.

    Raises OpenDsrError if a type is not accepted, or a value is invalid for its type.
    """
    sent = wanted.subject_identities
    if isinstance(sent, list):
        named = [(one.identity_type, one.identity_value, one.identity_format) for one in sent]
    else:
        named = [(name, one.value, one.encoding) for name, one in sent.items()]
    found: list[PersonIdentity] = []
    for name, value, form in named:
        if (kind := kinds.get(name)) is None:
            raise OpenDsrError(
                f"subject_identities: the identity types that are taken are {', '.join(kinds)}",
                reason="UnsupportedIdentityType",
            )
        try:
            person = {"kind": kind} | _digests(kind, value, form)
        except IdentityError as error:
            raise OpenDsrError(
                f"subject_identities: {error.detail}", reason="InvalidIdentity"
            ) from None
        identity = PersonIdentity.model_validate(person)
        if identity not in found:
            found.append(identity)
    return found


def _digests(kind: str, value: str, form: Form) -> dict[str, str]:
    if form == "raw":
        if not is_one_mailbox(kind, value):
            raise IdentityError(
                "an address has letters that ignoring case makes another address of: write its "
                "domain as xn--, or send a digest"
            )
        return {name: digest.hex() for name, digest in digests(kind, value).items()}
    return {form: parse_digest(form, value).hex()}


FINAL = ("completed", "cancelled")


def status_of(views: Sequence[CaseView]) -> str:
    """Return a request's status (section 8).

    Refused is cancelled, as are rows that only their source can delete: no other term fits.
    """
    found = outcomes(views)
    if found & {"in progress", "failed"}:  # an operator still has to decide on failed requests
        return "pending" if is_waiting(views) and "failed" not in found else "in_progress"
    if found & {"refused", "withdrawn"} or is_left_at_source(views):
        return "cancelled"
    return "completed"


def due_of(views: Sequence[CaseView]) -> datetime:
    """Return the latest deadline of the cases."""
    return max(view.due_at for view in views)


def times_of(views: Sequence[CaseView]) -> dict[str, str]:
    """Return when a request was received, and when it is expected to be completed."""
    return {
        "expected_completion_time": format_time(due_of(views)),
        "received_time": format_time(min(view.received_at for view in views)),
    }
