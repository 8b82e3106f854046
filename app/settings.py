"""One frozen settings object, read from the environment (`LETHE_*`) at start-up."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PLACEHOLDERS = ("changeme", "change-me", "secret", "password", "example", "lethe")


class Settings(BaseSettings):
    """Everything an installation can choose. Each field names its unit and its default."""

    model_config = SettingsConfigDict(env_prefix="LETHE_", frozen=True, extra="ignore")

    environment: Literal["development", "production"] = Field(
        default="development",
        description="In production placeholder secrets and planted faults are refused.",
    )
    data_dir: Path = Field(
        default=Path("lethe-data"),
        description="Directory of keys, sealed artifacts, SQLite file and file broker.",
    )
    database_url: str = Field(
        default="",
        description="SQLAlchemy URL; empty means SQLite in the data directory.",
    )
    broker_url: str = Field(
        default="filesystem://",
        description="Celery broker; filesystem:// needs no server, redis://… needs one.",
    )
    origin: str = Field(
        default="localhost/lethe",
        pattern=r"^[^\s+\x00-\x20]+$",
        max_length=200,
        description="The log's name: first line of each checkpoint. Never change it.",
    )
    public_url: str = Field(
        default="",
        description="The URL clients see, if a proxy rewrites it; signatures cover it.",
    )
    issuer_keyid: str = Field(
        default="issuer-1",
        pattern=r"^[A-Za-z0-9._-]{1,80}$",
        description="Name of the certificate issuer's key.",
    )
    master_key: SecretStr = Field(
        default=SecretStr(""),
        description="Base64 of 32 bytes sealing all data keys; empty: keys/master.key.",
    )
    database_password: SecretStr = Field(
        default=SecretStr(""),
        description="Replaces the password of database_url, so that the URL can be public.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto",
        description="Where methods compute; ridge methods always use the CPU.",
    )
    max_body_bytes: int = Field(
        default=1_048_576, gt=0, description="Largest JSON request body, in bytes."
    )
    max_upload_bytes: int = Field(
        default=1_073_741_824,
        gt=0,
        description="Largest registration or contribution, in bytes, also once unpacked.",
    )
    max_scope_records: int = Field(
        default=10_000, gt=0, description="Most records that one erasure request may name."
    )
    lease_seconds: int = Field(
        default=120,
        gt=0,
        description="How long a worker may hold a job unless it renews, in seconds.",
    )
    sweep_seconds: int = Field(
        default=5, gt=0, description="How often stuck jobs are looked for, in seconds."
    )
    max_attempts: int = Field(
        default=5, gt=0, description="Attempts at one stage of a job before it is failed."
    )
    fault: str = Field(
        default="",
        description="Development only: STEP[@N]=kill|raise plants a fault at a named step.",
    )

    @model_validator(mode="after")
    def _refuse_unsafe_production(self) -> Self:
        if self.environment == "development":
            return self
        for name in ("master_key", "database_password"):
            value = getattr(self, name).get_secret_value()
            if value and value.lower() in PLACEHOLDERS:
                raise ValueError(f"LETHE_{name.upper()} is a placeholder: set a real secret")
        if self.fault:
            raise ValueError("LETHE_FAULT is for development only: unset it")
        if self.origin.startswith("localhost"):
            raise ValueError("LETHE_ORIGIN still names localhost: choose the log's public name")
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

    @property
    def keys_dir(self) -> Path:
        """Where the log key, the issuer key and the master key lie."""
        return self.data_dir / "keys"
