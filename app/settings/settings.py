"""One frozen settings object, read from the environment (`LETHE_*`) at start-up."""

import os
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.settings.callers import CallerSettings
from app.settings.database import DatabaseSettings
from app.settings.decisions import DecisionSettings
from app.settings.errors import SettingsError, refusal
from app.settings.installation import InstallationSettings
from app.settings.intake import IntakeSettings
from app.settings.jobs import JobSettings
from app.settings.keys import KeySettings
from app.settings.misspelt import misspelt
from app.settings.notices import NoticeSettings
from app.settings.observability import ObservabilitySettings
from app.settings.production import ProductionSettings
from app.settings.sign_in import SignInSettings
from app.settings.silos import SiloSettings
from app.settings.witnesses import WitnessSettings


# pydantic collects fields and checks from the last base to the first: whether the settings suit
# production is asked last.
class Settings(
    ProductionSettings,
    JobSettings,
    SiloSettings,
    SignInSettings,
    NoticeSettings,
    IntakeSettings,
    ObservabilitySettings,
    CallerSettings,
    DecisionSettings,
    WitnessSettings,
    KeySettings,
    DatabaseSettings,
    InstallationSettings,
    BaseSettings,
):
    """Everything an installation can choose. Each field names its unit and its default.

    Raises SettingsError if a variable is refused; the message names it and never its value.
    """

    model_config = SettingsConfigDict(
        env_prefix="LETHE_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    def __init__(self, **values: Any) -> None:
        # First: a default would be refused in its place.
        if complaint := misspelt(os.environ, Settings.model_fields):
            raise SettingsError(complaint)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refusal(error, Settings.model_fields) from None
