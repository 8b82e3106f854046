"""What every group of settings has in common, and the bounds of their durations."""

from pydantic import BaseModel, ConfigDict

# Beyond these a date has no year left, and the first task that computes one would fail, such as
# each retention run. PostgreSQL takes a time-out of 24 days at most.
MOST_DAYS, MOST_SECONDS, DAY_S = 36_500, 31_536_000, 86_400


class SettingsGroup(BaseModel):
    """Settings of one subject, with the checks that concern them.

    `app.settings.settings.Settings` inherits all groups, and alone reads the environment.
    """

    model_config = ConfigDict(defer_build=True)  # built once, in Settings
