"""The intake page: who is asked for a code, codes of operators, and how a case began there."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column
from sqlmodel import Field, SQLModel

from models.database.sealed import SealedBytes, SealedJSON, SealedText
from models.database.types import UTCDateTime


class IntakeChallenge(SQLModel, table=True):
    """Somebody named an identity and has to prove it by a code.

    mac: of the identity, the code, the browser's session, the end, and once it is proven of the
    case (`app.service.intake.challenge`). `asked` is destroyed once it is proven or expired.
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
    """A code that an operator gave to a person whose identity they checked; used once.

    tag: keyed, of the identity and the code. Neither is in the database. issued_by: the name of
    that operator's token.
    """

    __tablename__ = "intake_codes"

    tag: str = Field(primary_key=True, max_length=64)
    checked: str = Field(sa_type=SealedText("intake_codes.checked"))
    issued_by: str = Field(sa_type=SealedText("intake_codes.issued_by"))
    expires_at: datetime = Field(sa_type=UTCDateTime, index=True)
    mac: str = Field(max_length=64)  # of all the others


class IntakeProof(SQLModel, table=True):
    """How the identity of a case was proven: what the log's entry `case.intake` commits to.

    key: opens the commitment. issued_by: who issued the code, if an operator did; the entry
    commits to it under the key of the case. All are destroyed when its retention ends.
    """

    __tablename__ = "intake_proofs"

    case_ref: str = Field(primary_key=True, max_length=36)
    record: dict[str, Any] | None = Field(
        default=None, sa_column=Column(SealedJSON("intake_proofs.record"))
    )
    issued_by: str | None = Field(default=None, sa_type=SealedText("intake_proofs.issued_by"))
    key: bytes | None = Field(default=None, sa_column=Column(SealedBytes("intake_proofs.key")))
    log_index: int
