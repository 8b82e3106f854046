"""Identities of people, by keyed digest, their cases, and the codes of the intake page."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, Index, LargeBinary, column, false, true
from sqlmodel import Field, SQLModel

from models.database.types import (
    LogNumber,
    SealedBytes,
    SealedJSON,
    SealedName,
    SealedText,
    UTCDateTime,
)

LEARNED, HELD_OUT, ERASED = "learned", "held-out", "erased"
_LISTED = column("closed_at").is_(None) & column("answered").is_(true())


class Person(SQLModel, table=True):
    """One identity of one record of a model: a keyed tag for each known digest.

    Once the record is erased, `record` has the tag of its tombstone, or is NULL where it has
    none, and `request_id` names the erasing request: the tags then answer "erased before". If
    the record comes back, the row is linked to it again. The rows of a model add up to a sum in
    the log (`app.service.desk.people`), so changing, adding or omitting a row is detected.
    """

    __tablename__ = "people"
    __table_args__ = tuple(
        Index(f"ix_people_model_id_{name}", "model_id", name)
        for name in ("record", "sha256", "sha1", "md5")
    )

    # Numbered by the service, because the row's MAC covers the number.
    id: int = Field(sa_column=Column(LogNumber, primary_key=True, autoincrement=False))
    model_id: int = Field(foreign_key="models.id")
    state: str = Field(max_length=16)
    record: str | None = Field(default=None, sa_type=SealedName("people.record"))
    sha256: bytes | None = Field(default=None, sa_column=Column(LargeBinary))
    sha1: bytes | None = Field(default=None, sa_column=Column(LargeBinary))
    md5: bytes | None = Field(default=None, sa_column=Column(LargeBinary))
    request_id: str | None = Field(
        default=None, foreign_key="erasure_requests.id", max_length=36
    )
    # The operator who imported the identity (`lethe person import`); None: part of an upload.
    imported_by: str | None = Field(default=None, max_length=80)


class PeopleSums(SQLModel, table=True):
    """Sums over parts of a model's identities, so that a lookup reads one part per digest.

    sums: sealed, as `app.vault.people.Sums` encodes them. They are used only if they add up to
    the sum in the log; without them a lookup reads all rows.
    """

    __tablename__ = "people_sums"

    model_id: int = Field(primary_key=True, foreign_key="models.id")
    sums: bytes = Field(sa_column=Column(SealedBytes("people_sums.sums"), nullable=False))


class Case(SQLModel, table=True):
    """A case opened for one person, in one or all models.

    parts: for each model the result, the request if any, and the log entry that commits to both
    under `key`. `contact` is destroyed when the case is closed; `key`, `ticket` and `checked`
    at the end of its requests' retention. answered: no request of the case is open; only the
    triggers of revision 0011 set it.
    """

    __tablename__ = "cases"
    __table_args__ = (
        # The queue's answered cases, by deadline.
        Index(
            "ix_cases_answered", "due_at", "ref", sqlite_where=_LISTED, postgresql_where=_LISTED
        ),
    )

    ref: str = Field(primary_key=True, max_length=36)
    opened_by: str = Field(max_length=80)  # the name of an operator's token
    regulation: str = Field(max_length=16)
    key: bytes | None = Field(default=None, sa_column=Column(SealedBytes("cases.key")))
    parts: list[dict[str, Any]] = Field(
        sa_column=Column(SealedJSON("cases.parts"), nullable=False)
    )
    ticket: str | None = Field(default=None, sa_type=SealedText("cases.ticket"))
    checked: str | None = Field(default=None, sa_type=SealedText("cases.checked"))
    contact: str | None = Field(default=None, sa_type=SealedText("cases.contact"))
    received_at: datetime = Field(sa_type=UTCDateTime, index=True)
    due_at: datetime = Field(sa_type=UTCDateTime)
    closed_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    answered: bool = Field(default=False, sa_column_kwargs={"server_default": false()})


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
