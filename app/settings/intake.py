"""Where requests come from besides the API: the page for people, and other systems."""

from pydantic import Field

from app.settings.group import SettingsGroup


class IntakeSettings(SettingsGroup):
    """The intake page, and protocols of other systems."""

    intake: bool = Field(
        default=False,
        description="Serve /intake, the form for people. It mails addresses that they enter.",
    )
    intake_kinds: str = Field(
        default="",
        pattern=r"^([a-z][a-z0-9_-]{0,31}(,[a-z][a-z0-9_-]{0,31}){0,6})?$",
        description="Identities besides email in /intake, comma-separated: customer,phone.",
    )
    intake_hourly: int = Field(
        default=200,
        gt=0,
        description="Most codes that each API process sends from /intake in an hour, in total.",
    )
    drp_business_id: str = Field(
        default="",
        max_length=128,
        pattern=r"^[A-Za-z0-9._:-]*$",
        description="business-id in the Data Rights Protocol's directory; empty: /drp is off.",
    )
    opendsr_domain: str = Field(
        default="",
        pattern=r"^([a-z0-9-]+(\.[a-z0-9-]+)*)?$",
        description="Domain of OpenDSR's certificate, keys/opendsr.pem; empty: /dsr is off.",
    )
    opendsr_identities: str = Field(
        default="email=email,controller_customer_id=customer",
        pattern=r"^[a-z0-9_]+=[a-z][a-z0-9_-]*(,[a-z0-9_]+=[a-z][a-z0-9_-]*)*$",
        description="Accepted identity types of OpenDSR, each with its kind of identity.",
    )
