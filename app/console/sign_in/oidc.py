"""Sign in at an OpenID Connect provider: authorization code with PKCE, state and nonce.

OpenID Connect Core 1.0 section 3.1.2, RFC 7636, RFC 9207. The provider supplies a person's
name and groups; settings map groups to roles. Only the name is stored, in the log of decisions.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from app.api.http.deps import ServicesDep
from app.console import session as sessions
from app.console.render import render
from app.console.route import own_page, router
from app.console.session import counted
from app.console.sign_in import provider
from app.console.sign_in.provider import ASK_AGAIN
from app.problems import ForbiddenError, SignInError
from app.reconcile.approval import FROM_OIDC
from app.service.access.roles import ROLES
from app.service.context import Services
from app.settings import Settings
from lethe.signing.errors import SignatureReplayedError

routes = router()
PURPOSE = "console/oidc"
STARTED = "/console/oidc"  # as a keyid, which never has a slash
CALLBACK = "/console/oidc/callback"
LIFE = timedelta(minutes=10)  # of one sign-in
MOST_NAME = 80 - len(FROM_OIDC)  # characters

Text = Annotated[str, Query(max_length=4096)]


@routes.get("/oidc", operation_id="consoleOidc")
def start(
    request: Request,
    services: ServicesDep,
    following: Annotated[str, Query(alias="next", max_length=300)] = "",
) -> Response:
    """Send somebody to the provider.

    Raises OidcMissingError: it is not configured or not installed; SignInError: the provider
    does not answer.
    """
    known = provider.metadata(services.settings)
    said = {
        "state": token_urlsafe(16),
        "nonce": token_urlsafe(16),
        "verifier": token_urlsafe(48),
        "next": own_page(following),
        "until": (datetime.now(UTC) + LIFE).isoformat(),
    }
    with provider.client(services.settings, _callback(request, services)) as client:
        address, _ = client.create_authorization_url(
            provider.endpoint(services.settings, known, "authorization_endpoint"),
            state=said["state"],
            nonce=said["nonce"],
            code_verifier=said["verifier"],
        )
    response = RedirectResponse(address, 303)
    # The provider redirects back from another site, which a strict cookie would not survive.
    sealed = sessions.pack(services, PURPOSE, said)
    sessions.set_cookie(
        services,
        response,
        _cookie(services),
        sealed,
        samesite="lax",
        max_age=int(LIFE.total_seconds()),
    )
    return response


@routes.get("/oidc/callback", operation_id="consoleOidcCallback")
def callback(
    request: Request,
    services: ServicesDep,
    state: Text = "",
    code: Text = "",
    iss: Text = "",
    error: Text = "",
) -> Response:
    """Begin the session of the person named by the provider.

    Raises:
        OidcMissingError: It is not configured or not installed.
        SignInError: The answer is not of a sign-in that this browser started, or is not signed
            by the provider, for this client, now.
        ForbiddenError: The person has none of the roles.
        AttemptsError: Too many sign-ins of this client failed.
    """
    settings = services.settings
    with counted(request, SignInError):
        said = _started(services, request, state)
        known = provider.metadata(services.settings)
        if error or not code:
            raise SignInError(f"the provider signed nobody in: {ASK_AGAIN}")
        if iss and iss != known["issuer"]:  # RFC 9207: a mix-up of providers
            raise SignInError(f"the answer is another provider's: {ASK_AGAIN}")
        own = _callback(request, services)
        token = provider.redeem(settings, known, own, code, said["verifier"])
        claims = provider.claims_of(settings, known, token, said["nonce"])
        _finish(services, said)
        name = _name(settings, claims)
    visitor = sessions.begin(name, _role(settings, claims), issuer=settings.oidc_issuer)
    # A page of this site links on, because a strict cookie is not sent with the provider's
    # redirect.
    response = render(request, "signed_in.html", following=said["next"])
    sessions.write_cookie(services, response, visitor)
    sessions.set_cookie(services, response, _cookie(services), "", samesite="lax", max_age=0)
    return response


def _callback(request: Request, services: Services) -> str:
    # Production requires a public address: a Host header is its sender's choice.
    public = services.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")
    return f"{public}{CALLBACK}"


def _cookie(services: Services) -> str:
    return sessions.cookie_name(services).replace("console", "oidc")


def _started(services: Services, request: Request, state: str) -> Mapping[str, str]:
    """Return the sealed start of this browser's sign-in."""
    said = sessions.unpack(services, PURPOSE, request.cookies.get(_cookie(services), ""))
    if said is None or not compare_digest(said["state"].encode(), state.encode()):
        raise SignInError(f"this browser began no such sign-in: {ASK_AGAIN}")
    if datetime.fromisoformat(said["until"]) < datetime.now(UTC):
        raise SignInError(f"the sign-in took too long: {ASK_AGAIN}")
    return said


def _finish(services: Services, said: Mapping[str, str]) -> None:
    """Spend a sign-in, which can be finished only once.

    Only after the provider accepted its code, so that strangers' sign-ins make no rows.
    """
    until = datetime.fromisoformat(said["until"])
    try:
        services.nonces.spend(sessions.spendable(STARTED, said["state"], until))
    except SignatureReplayedError:
        raise SignInError(f"this sign-in was finished before: {ASK_AGAIN}") from None


def _name(settings: Settings, claims: Mapping[str, Any]) -> str:
    name = claims.get(settings.oidc_name_claim)
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise SignInError(
            f"the claim that names people is missing or not 1 to {MOST_NAME} printable "
            "characters: see LETHE_OIDC_NAME_CLAIM"
        )
    return f"{FROM_OIDC}{name}"


def _role(settings: Settings, claims: Mapping[str, Any]) -> str:
    """Return the most privileged role of the person's groups."""
    given = claims.get(settings.oidc_role_claim)
    groups = {given} if isinstance(given, str) else set(map(str, given or ()))
    pairs = [one.split("=", 1) for one in settings.oidc_roles.split(",")]
    roles = {role for role, value in pairs if value in groups}
    for role in ROLES:
        if role in roles:
            return role
    raise ForbiddenError(
        "none of your groups has a role here: ask an operator, who finds the groups in "
        "LETHE_OIDC_ROLES"
    )
