"""The service's own keys: the master key, the issuer's name, keys in an HSM."""

from pydantic import Field, SecretStr

from app.settings.group import SettingsGroup


class KeySettings(SettingsGroup):
    """Where the service's own keys are and how they are opened."""

    master_key: SecretStr = Field(
        default=SecretStr(""),
        description="Base64 of 32 bytes; opens the root secret. Empty: keys/master.key.",
    )
    master_key_next: SecretStr = Field(
        default=SecretStr(""),
        description="The next master key; only `lethe service-key rotate master` reads it.",
    )
    issuer_keyid: str = Field(
        default="issuer-1",
        pattern=r"^[A-Za-z0-9._-]{1,80}$",
        description="Name of the issuer's first key; later ones are named by the log.",
    )
    pkcs11_module: str = Field(
        default="",
        pattern=r"^(/.+)?$",
        description="Path of the PKCS#11 library, if key files name keys in an HSM.",
    )
    pkcs11_pin: SecretStr = Field(
        default=SecretStr(""),
        description="PIN of the HSM's token; empty: the file that a key's pin-source names.",
    )
