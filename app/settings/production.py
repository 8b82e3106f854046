"""What only development may have: placeholder secrets, faults, local names."""

import base64
import binascii
from typing import Self
from urllib.parse import urlsplit

from pydantic import model_validator

from app.settings.database import DatabaseSettings
from app.settings.keys import KeySettings
from app.settings.notices import NoticeSettings
from app.settings.sign_in import SignInSettings

PLACEHOLDERS = ("changeme", "change-me", "secret", "password", "example", "lethe")
MASTER_KEY_BYTES = 32


class ProductionSettings(SignInSettings, NoticeSettings, KeySettings, DatabaseSettings):
    """The check of settings of several groups, once `environment` says production."""

    @model_validator(mode="after")
    def _refuse_unsafe_production(self) -> Self:
        if self.environment == "development":
            return self
        secrets = {
            "LETHE_MASTER_KEY": self.master_key.get_secret_value(),
            "LETHE_MASTER_KEY_NEXT": self.master_key_next.get_secret_value(),
            "LETHE_PKCS11_PIN": self.pkcs11_pin.get_secret_value(),
            "LETHE_DATABASE_PASSWORD": self.database_password.get_secret_value(),
            "LETHE_OIDC_CLIENT_SECRET": self.oidc_client_secret.get_secret_value(),
            "the password in LETHE_DATABASE_URL": _password(self.database_url),
            "the password in LETHE_BROKER_URL": _password(self.broker_url),
            "the password in LETHE_SMTP_URL": _password(self.smtp_url.get_secret_value()),
        }
        for name, value in secrets.items():
            if value.lower() in PLACEHOLDERS:
                raise ValueError(f"{name} is a placeholder: set a real secret")
        if secrets["LETHE_MASTER_KEY"] and not _is_key(secrets["LETHE_MASTER_KEY"]):
            raise ValueError(
                f"LETHE_MASTER_KEY must be base64 of {MASTER_KEY_BYTES} random bytes: "
                "`openssl rand -base64 32`"
            )
        if self.oidc_issuer.startswith("http://"):
            raise ValueError(
                "LETHE_OIDC_ISSUER: use https, or anybody on the network can sign in"
            )
        if self.fault:
            raise ValueError("LETHE_FAULT is for development only: unset it")
        if self.origin.startswith("localhost"):
            raise ValueError("LETHE_ORIGIN still names localhost: choose the log's public name")
        if not self.public_url:
            raise ValueError(
                "LETHE_PUBLIC_URL must be the http(s) URL that clients see: signatures cover "
                "it, and a Host header is whatever its sender wants it to be"
            )
        if not self.data_dir.is_absolute():
            raise ValueError(
                "LETHE_DATA_DIR must be an absolute path: a process that is started elsewhere "
                "would find no log there, or begin another one"
            )
        return self


def _password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:  # connecting to it reports what is wrong
        return ""


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == MASTER_KEY_BYTES
    except (binascii.Error, ValueError):
        return False
