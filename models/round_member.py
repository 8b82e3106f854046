"""Who takes part in a masked round, and what they have sent."""

from sqlalchemy import Text
from sqlmodel import Field, SQLModel

from models.sealed import SealedText


class RoundMember(SQLModel, table=True):
    """A member by its key, and its messages: sealed, shredded when the round has ended."""

    __tablename__ = "round_members"

    round_id: str = Field(primary_key=True, foreign_key="rounds.id", max_length=36)
    keyid: str = Field(
        primary_key=True, foreign_key="requester_keys.keyid", max_length=128, index=True
    )
    client: str = Field(sa_type=SealedText("round_members.client"))
    moved: int = 0  # records that its masked input adds or releases
    # What its peers are shown of that input, signed: counts and digests, no id.
    statement: str | None = Field(default=None, sa_type=Text)
    advertise_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    share_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    masked_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    confirm_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
    reveal_id: str | None = Field(default=None, foreign_key="artifacts.id", max_length=36)
