"""What an installation is: its directory, and the names by which others know it."""

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from app.settings.errors import SettingsError
from app.settings.group import SettingsGroup
from app.settings.urls import checked_public_url


class InstallationSettings(SettingsGroup):
    """Where an installation keeps its files, and the names by which others know it."""

    environment: Literal["development", "production"] = Field(
        default="development",
        description="In production placeholder secrets and planted faults are refused.",
    )
    data_dir: Path = Field(
        default=Path("lethe-data"),
        description="Directory of keys, sealed artifacts, SQLite file and file broker.",
    )
    origin: str = Field(
        default="localhost/lethe",
        pattern=r"^[^\s+\x00-\x20]+$",
        max_length=200,
        description="The log's name: first line of each checkpoint. Never change it.",
    )
    public_url: str = Field(
        default="",
        description="The URL clients see; signatures cover it. Required in production.",
    )
    min_free_bytes: int = Field(
        default=268_435_456,
        ge=0,
        description="/readyz fails if the data directory's disk has less free, in bytes.",
    )
    fault: str = Field(
        default="",
        description="Development only: STEP[@N]=kill|raise|freeze plants a fault at a step.",
    )

    @field_validator("data_dir", mode="before")
    @classmethod
    def _refuse_no_directory(cls, given: object) -> object:
        if isinstance(given, str) and (not given.strip() or given.startswith("~")):
            raise ValueError("must be the path of a directory; ~ is not expanded")
        return given

    @field_validator("public_url")
    @classmethod
    def _refuse_unsignable_address(cls, given: str) -> str:
        return checked_public_url(given) if given else given

    def made_data_dir(self) -> Path:
        """Create the data directory if it is missing, and return it.

        Raises SettingsError: it cannot be created, or as `require_writable`.
        """
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"LETHE_DATA_DIR: the directory cannot be created ({error.strerror}): create "
                "it, for the user that Lethe runs as"
            ) from None
        self.require_writable()
        return self.data_dir

    def require_writable(self) -> None:
        """Check that this process may write in the data directory, if there is one.

        Raises SettingsError: it may not, as where a volume belongs to root.
        """
        if self.data_dir.exists() and not os.access(self.data_dir, os.W_OK | os.X_OK):
            raise SettingsError(
                f"LETHE_DATA_DIR: user {os.geteuid()}, which Lethe runs as, cannot write "
                "there: make that user the owner of the directory, with mode 0700"
            )

    @property
    def keys_dir(self) -> Path:
        """Directory of the log key, the issuer key and the master key."""
        return self.data_dir / "keys"
