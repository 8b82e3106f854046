"""The intake page: challenges, codes from operators, and the proofs of cases opened there."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column
from sqlmodel import Field, SQLModel

from models.database.sealed import SealedBytes, SealedJSON, SealedText
from models.database.types import UTCDateTime


class IntakeChallenge(SQLModel, table=True):
    """A claimed identity that must be proven by a code.

    mac: of the identity, the code, the browser's session, the expiry, and, once proven, the
    case (`app.service.intake.challenge`). `asked` is destroyed when it is proven or expires.
    """

    __tablename__ = "intake_challenges"

    ref: str = Field(primary_key=True, max_length=32)  # the nonce of the form
    asked: dict[str, Any] | None = Field(
        default=None, sa_column=Column(SealedJSON("intake_challenges.asked"))
    )
    mac: str = Field(max_length=64)
    tries: int = Field(default=0)
    case_ref: str | None = Field(default=None, max_length=36)
    expires_at: datetime = Field(sa_type=UTCDateTime, index=True)


class IntakeCode(SQLModel, table=True):
    """A single-use code that an operator gave to a person after checking their identity.

    tag: a keyed tag of identity and code, neither of which is in the database. issued_by: the
    name of the operator's token.
    """

    __tablename__ = "intake_codes"

    tag: str = Field(primary_key=True, max_length=64)
    checked: str = Field(sa_type=SealedText("intake_codes.checked"))
    issued_by: str = Field(sa_type=SealedText("intake_codes.issued_by"))
    expires_at: datetime = Field(sa_type=UTCDateTime, index=True)
    mac: str = Field(max_length=64)  # of all other columns


class IntakeProof(SQLModel, table=True):
    """The proof of a case's identity, to which the log's entry `case.intake` commits.

    key: opens the commitment. issued_by: the operator who issued the code, if any; the entry
    commits to it under the case's key. All are destroyed at the end of retention.
    """

    __tablename__ = "intake_proofs"

    case_ref: str = Field(primary_key=True, max_length=36)
    record: dict[str, Any] | None = Field(
        default=None, sa_column=Column(SealedJSON("intake_proofs.record"))
    )
    issued_by: str | None = Field(default=None, sa_type=SealedText("intake_proofs.issued_by"))
    key: bytes | None = Field(default=None, sa_column=Column(SealedBytes("intake_proofs.key")))
    log_index: int
