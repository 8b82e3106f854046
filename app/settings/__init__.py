"""Everything an installation can choose, by subject; `Settings` reads it from `LETHE_*`."""

from app.settings.allowed import Allowed
from app.settings.errors import SettingsError
from app.settings.jobs import MOST_COALESCED
from app.settings.settings import Settings
from app.settings.urls import checked_database_url

__all__ = ["MOST_COALESCED", "Allowed", "Settings", "SettingsError", "checked_database_url"]
