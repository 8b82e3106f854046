"""The OpenID Connect provider: its metadata, its tokens, and their signatures.

OpenID Connect Core 1.0 section 3.1.3, Discovery 1.0 section 4. Authlib is imported at the first
sign-in: it is an extra, and takes half a second.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from app.problems import OidcMissingError, SignInError
from app.settings import Settings
from lethe.install import with_extra
from lethe.tls import trusted

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import OAuth2Client

T = TypeVar("T")
TIMEOUT_S = 10  # for each connect, read and write
WHOLE_S = 15.0  # for a call as a whole, besides the time-outs of the system's resolver
AT_ONCE = 8  # calls of a process, of whose threads 40 serve all routes
places = BoundedSemaphore(AT_ONCE)
# Lifetimes of the provider's metadata, and of its failure to answer. Anybody can start a
# sign-in, and each call to a provider that hangs would hold a thread shared by all routes.
FRESH_S, AWAY_S = 300.0, 15.0
AWAY = "the provider does not answer: try later, or use a token"
_described: dict[str, tuple[float, dict[str, Any]]] = {}  # by issuer, and when; {}: no answer
_asking = Lock()
LEEWAY_S = 60  # between the provider's clock and ours
# Only signatures with the provider's private key: HS256 would accept the client's secret, and
# "none" anything.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
ASK_AGAIN = "start the sign-in again from the console"


def client(settings: Settings, callback: str) -> "OAuth2Client":
    """Return the client of a sign-in. callback: the address that the provider redirects to."""
    from authlib.integrations.httpx_client import OAuth2Client

    return OAuth2Client(**_of_client(settings, callback))


def _of_client(settings: Settings, callback: str) -> dict[str, Any]:
    secret = settings.oidc_client_secret.get_secret_value()
    return {
        "client_id": settings.oidc_client_id,
        "client_secret": secret or None,
        "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
        "scope": "openid profile",
        "redirect_uri": callback,
        "code_challenge_method": "S256",
        "timeout": TIMEOUT_S,
        "follow_redirects": False,
        "verify": trusted(),
    }


def require_installed() -> None:
    """Check that what signs people in is installed. Raises OidcMissingError if it is not."""
    try:
        import authlib.integrations.httpx_client  # noqa: F401
    except ImportError:
        raise OidcMissingError(
            f"sign-in by OIDC (LETHE_OIDC_ISSUER) needs Authlib; {with_extra('oidc')}"
        ) from None


def metadata(settings: Settings) -> dict[str, Any]:
    """Return the issuer's metadata.

    Raises OidcMissingError: none is configured, or Authlib is not installed; SignInError: it
    does not answer, or names another issuer.
    """
    issuer = settings.oidc_issuer
    if not issuer:
        raise OidcMissingError("no provider is configured: sign in with a token")
    require_installed()
    at, known = _described.get(issuer, (float("-inf"), {}))
    if time.monotonic() - at < (FRESH_S if known else AWAY_S) or not _asking.acquire(False):
        if not known:  # also while another call is asking, without waiting for it
            raise SignInError(AWAY)
        return known
    try:
        found: Any = {}
        with suppress(SignInError):
            found = fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        good = isinstance(found, dict) and found.get("issuer") == issuer
        _described[issuer] = time.monotonic(), found if good else {}
    finally:
        _asking.release()
    if not good:
        raise SignInError(
            "the provider names itself otherwise than LETHE_OIDC_ISSUER does" if found else AWAY
        )
    return dict(found)


def fetch(address: str) -> Any:
    """Return a JSON document of the provider. Raises SignInError if it does not answer."""
    import httpx2

    async def ask() -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, verify=trusted()) as asking:
            return await asking.get(address)

    try:
        answer = _ask(ask())
        answer.raise_for_status()
        return answer.json()
    except (httpx2.HTTPError, ValueError, RecursionError):
        raise SignInError(AWAY) from None


def _ask(call: Coroutine[Any, Any, T]) -> T:
    """Run a call to the provider, which may hang, or answer a byte now and then.

    Raises SignInError if it takes too long, or AT_ONCE calls are not answered yet: anybody can
    have the provider asked, with a sign-in that they began and a code that they made up.
    """

    async def bounded() -> T:
        async with asyncio.timeout(WHOLE_S):
            return await call

    if not places.acquire(blocking=False):
        call.close()
        raise SignInError(AWAY)
    try:
        return asyncio.run(bounded())
    except TimeoutError:
        raise SignInError(AWAY) from None
    finally:
        places.release()


def endpoint(settings: Settings, provider: Mapping[str, Any], name: str) -> str:
    """Return an address of the provider. Raises SignInError if it lacks the issuer's TLS."""
    address = str(provider.get(name, ""))
    if urlsplit(address).scheme not in ("https", urlsplit(settings.oidc_issuer).scheme):
        raise SignInError(f"the provider's {name} is missing or not https")
    return address


def redeem(
    settings: Settings, provider: Mapping[str, Any], callback: str, code: str, verifier: str
) -> Mapping[str, Any]:
    """Return the tokens for a code. Raises SignInError if the provider refuses."""
    import httpx2
    from authlib.integrations.base_client import OAuthError
    from authlib.integrations.httpx_client import AsyncOAuth2Client

    address = endpoint(settings, provider, "token_endpoint")

    async def ask() -> Mapping[str, Any]:
        async with AsyncOAuth2Client(**_of_client(settings, callback)) as asking:
            token: Mapping[str, Any] = await asking.fetch_token(
                address, code=code, code_verifier=verifier
            )
            return token

    try:
        return _ask(ask())
    except (OAuthError, httpx2.HTTPError, ValueError, RecursionError):
        raise SignInError(f"the provider did not take its own code: {ASK_AGAIN}") from None


def claims_of(
    settings: Settings, provider: Mapping[str, Any], token: Mapping[str, Any], nonce: str
) -> Mapping[str, Any]:
    """Return the claims of the ID token (section 3.1.3.7).

    Raises SignInError unless the provider signed it, for this client, now, with this nonce.
    """
    from authlib.oidc.core import CodeIDToken
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    keys = fetch(endpoint(settings, provider, "jwks_uri"))
    own = settings.oidc_client_id
    wanted = {
        "iss": {"essential": True, "value": provider["issuer"]},
        "aud": {"essential": True, "value": own},
    }
    params = {"nonce": nonce, "client_id": own, "access_token": token.get("access_token")}
    try:
        signed = jwt.decode(
            str(token.get("id_token", "")),
            KeySet.import_key_set(keys),
            algorithms=[*ALGORITHMS],
        )
        claims = CodeIDToken(signed.claims, signed.header, wanted, params)
        claims.validate(leeway=LEEWAY_S)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        raise SignInError(
            "the provider's answer is not signed by it for this client, or not of this sign-in "
            f"and time: {ASK_AGAIN}"
        ) from None
    found: Mapping[str, Any] = claims
    return found
