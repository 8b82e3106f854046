"""Sign-in at the console with OpenID Connect."""

from typing import Self

from pydantic import Field, SecretStr, model_validator

from app.settings.group import SettingsGroup


class SignInSettings(SettingsGroup):
    """The issuer that people sign in with, and the roles that it gives them."""

    oidc_issuer: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="OpenID Connect issuer for sign-in at the console; empty: tokens.",
    )
    oidc_client_id: str = Field(
        default="", description="The console's client id at that issuer."
    )
    oidc_client_secret: SecretStr = Field(
        default=SecretStr(""), description="Its secret; empty for a public client."
    )
    oidc_roles: str = Field(
        default="",
        pattern=r"^((operator|officer|auditor)=[^,=]+(,(operator|officer|auditor)=[^,=]+)*)?$",
        description="Role of each value: operator=VALUE,officer=VALUE,auditor=VALUE.",
    )
    oidc_role_claim: str = Field(
        default="groups", min_length=1, description="Claim with the values that give roles."
    )
    oidc_name_claim: str = Field(
        default="sub",
        min_length=1,
        description="Claim that names people in the log; its values must never be reused.",
    )

    @model_validator(mode="after")
    def _refuse_half_an_issuer(self) -> Self:
        if self.oidc_issuer and not (self.oidc_client_id and self.oidc_roles):
            raise ValueError(
                "LETHE_OIDC_ISSUER: set LETHE_OIDC_CLIENT_ID and LETHE_OIDC_ROLES too, such as "
                "officer=data-protection"
            )
        return self
