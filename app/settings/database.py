"""The database and the broker: which server, and how long to wait for it."""

from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from app.settings.group import DAY_S
from app.settings.installation import InstallationSettings
from app.settings.urls import checked_broker_url, checked_database_url


class DatabaseSettings(InstallationSettings):
    """Where the database and the broker are, and how long is waited for them."""

    database_url: str = Field(
        default="", description="SQLAlchemy URL; empty means SQLite in the data directory."
    )
    database_password: SecretStr = Field(
        default=SecretStr(""),
        description="Replaces the password of database_url, so that the URL can be public.",
    )
    stall_seconds: int = Field(
        default=60,
        ge=2,
        le=DAY_S,
        description="PostgreSQL ends a write transaction idle for this long, in seconds.",
    )
    start_seconds: int = Field(
        default=60,
        ge=0,
        le=DAY_S,
        description="How long a starting process waits for PostgreSQL, in seconds.",
    )
    broker_url: str = Field(
        default="filesystem://",
        description="Celery broker; filesystem:// needs no server, redis://… needs one.",
    )

    @field_validator("database_url")
    @classmethod
    def _refuse_other_databases(cls, given: str) -> str:
        return checked_database_url(given) if given else given

    @field_validator("broker_url")
    @classmethod
    def _refuse_other_brokers(cls, given: str) -> str:
        return checked_broker_url(given)

    @model_validator(mode="after")
    def _refuse_password_of_a_file(self) -> Self:
        secret = self.database_password.get_secret_value()
        if secret and not self.database_url.startswith("postgresql"):
            raise ValueError(
                "LETHE_DATABASE_PASSWORD is set, but SQLite, the default, takes no password: "
                "set LETHE_DATABASE_URL to the server, or unset the password"
            )
        return self

    @property
    def resolved_database_url(self) -> str:
        """The database URL with the default and the password filled in."""
        from sqlalchemy.engine import make_url

        url = make_url(self.database_url or f"sqlite:///{self.data_dir / 'lethe.db'}")
        if url.drivername == "postgresql":  # the driver that the server extra installs
            url = url.set(drivername="postgresql+psycopg")
        if password := self.database_password.get_secret_value():
            url = url.set(password=password)
        return url.render_as_string(hide_password=False)
