"""Whom the service tells: mail to people and officers, webhooks and callbacks."""

import re
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from app.settings.allowed import Allowed, listed
from app.settings.installation import InstallationSettings
from app.settings.urls import ENCODED

SMTP_SCHEMES = ("smtp", "smtps", "smtp+plain")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class NoticeSettings(InstallationSettings):
    """The mail server, and the addresses that notices go to."""

    smtp_url: SecretStr = Field(
        default=SecretStr(""),
        description="smtp:// (STARTTLS) or smtps://USER:PASSWORD@HOST:PORT; empty: no mail.",
    )
    mail_from: str = Field(
        default="",
        pattern=r"^([^\s@<>,]+@[^\s@<>,]+)?$",
        max_length=254,
        description="Address that mail is sent from; required with LETHE_SMTP_URL.",
    )
    notice_mail: str = Field(
        default="",
        description="Comma-separated addresses of officers for the daily digest and alarms.",
    )
    notice_language: Literal["en", "de", "fr"] = Field(
        default="en", description="Language of mail to persons and officers."
    )
    webhook_allow: str = Field(
        default="",
        description="Non-public hosts and networks that webhooks may reach, comma-separated.",
    )
    callback_allow: str = Field(
        default="", description="The same for callbacks, whose addresses requesters choose."
    )
    callbacks_each: int = Field(
        default=1000,
        ge=0,
        description="Callbacks of open requests that one key or agent may have; 0: none.",
    )

    @model_validator(mode="after")
    def _refuse_unsafe_mail(self) -> Self:
        if not (text := self.smtp_url.get_secret_value()):
            return self
        try:
            url = urlsplit(text)
            usable = url.scheme in SMTP_SCHEMES and bool(url.hostname) and url.port != 0
        except ValueError:
            usable = False
        # Behind one of these in a password, its host would be cut off.
        if not usable or url.path.strip("/") or url.query or url.fragment:
            raise ValueError(
                "LETHE_SMTP_URL must be smtp://, smtps:// or "
                f"smtp+plain://USER:PASSWORD@HOST:PORT; {ENCODED}"
            )
        plain = url.scheme == "smtp+plain" and url.hostname not in LOOPBACK
        if plain and self.environment == "production":
            raise ValueError(
                "LETHE_SMTP_URL: smtp+plain:// sends addresses and the password unencrypted; "
                "in production only to 127.0.0.1. Use smtp:// (STARTTLS) or smtps://"
            )
        if not self.mail_from:
            raise ValueError("LETHE_MAIL_FROM: set the address that mail is sent from")
        return self

    @model_validator(mode="after")
    def _refuse_unreadable_notices(self) -> Self:
        for name, text in (("WEBHOOK", self.webhook_allow), ("CALLBACK", self.callback_allow)):
            try:
                Allowed.parse(text)
            except ValueError:
                raise ValueError(
                    f"LETHE_{name}_ALLOW: no network or host; write 10.1.0.0/16, or a host's "
                    "name without port and asterisk"
                ) from None
        if any(not re.fullmatch(r"[^\s@<>]+@[^\s@<>]+", one) for one in self.officers):
            raise ValueError("LETHE_NOTICE_MAIL: separate bare e-mail addresses by commas")
        if self.officers and not self.smtp_url.get_secret_value():
            raise ValueError("LETHE_NOTICE_MAIL needs a mail server: set LETHE_SMTP_URL")
        return self

    @property
    def officers(self) -> list[str]:
        """The addresses of LETHE_NOTICE_MAIL."""
        return listed(self.notice_mail)

    @property
    def webhook_allowed(self) -> Allowed:
        """LETHE_WEBHOOK_ALLOW, parsed."""
        return Allowed.parse(self.webhook_allow)

    @property
    def callback_allowed(self) -> Allowed:
        """LETHE_CALLBACK_ALLOW, parsed."""
        return Allowed.parse(self.callback_allow)
