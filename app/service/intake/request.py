"""A person's request on the intake page: their identity, the regulation, and the proof."""

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from app.schemas.requests import Regulation
from app.vault.master import RootSecret
from lethe.certificates.intake_receipt import (
    STATEMENT_TYPE,
    IntakeStatement,
    Proven,
    person_digest,
)

BY_MAIL: Final = "code by e-mail"
BY_OPERATOR: Final = "code of an operator"
EMAIL = "email"
LIFE = timedelta(minutes=15)  # lifetime of a code that was sent


@dataclass(frozen=True, slots=True, repr=False)
class IntakeRequest:
    """A request on the intake page. It has no repr, so that no traceback prints the value."""

    kind: str
    value: str
    regulation: Regulation
    proven: Proven

    def as_json(self) -> dict[str, str]:
        """Return the JSON document that is sealed."""
        return {
            "kind": self.kind,
            "value": self.value,
            "regulation": self.regulation,
            "proven": self.proven,
        }


def request_of(document: dict[str, Any]) -> IntakeRequest:
    """Return the request of a document that `as_json` made."""
    return IntakeRequest(
        document["kind"],
        document["value"],
        cast(Regulation, document["regulation"]),
        cast(Proven, document["proven"]),
    )


def salt_of(root_secret: RootSecret, ref: str) -> bytes:
    """Return the salt of a statement's person digest; the receipt contains it."""
    return hmac.digest(root_secret.derive("intake/salt"), ref.encode(), "sha256")


def statement_of(
    root_secret: RootSecret, ref: str, asked: IntakeRequest, expires: datetime, service: str
) -> IntakeStatement:
    """Return the statement that the browser's key signs. service: the page's site."""
    return IntakeStatement(
        STATEMENT_TYPE,
        "erasure",
        service,
        person_digest(salt_of(root_secret, ref), asked.kind, asked.value),
        asked.regulation,
        (expires - LIFE).replace(microsecond=0),
        ref,
    )
