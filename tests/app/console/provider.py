"""A small OpenID Connect provider on loopback: real HTTP, real signatures, faults on demand."""

import json
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

CLIENT, SECRET = "lethe-console", "a-real-secret-of-a-test"


@dataclass
class Provider:
    """Whom it signs in, and what it does wrong. `change` edits claims before they are signed."""

    issuer: str = ""
    key: ECKey = field(default_factory=lambda: ECKey.generate_key("P-256"))
    claims: dict[str, Any] = field(
        default_factory=lambda: {"sub": "u-17", "email": "maria@example.org", "groups": ["dpo"]}
    )
    change: Callable[[dict[str, Any]], None] = lambda claims: None
    sign: Callable[["Provider", dict[str, Any]], str] = lambda self, claims: self.signed(claims)
    metadata: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    careless: bool = False  # it takes a code again
    slow: str = ""  # the path that it answers byte by byte
    raw: bytes = b""  # what it answers to everything
    hold: Event | None = None  # no code is redeemed before this is set

    def signed(self, claims: dict[str, Any], key: ECKey | None = None) -> str:
        return jwt.encode({"alg": "ES256"}, claims, key or self.key)

    def described(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            **self.metadata,
        }

    def authorise(self, asked: dict[str, str]) -> str:
        """Return where the browser goes next; the person is signed in already."""
        assert asked["client_id"] == CLIENT
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = token_urlsafe(16)
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": self.issuer}
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def redeem(self, sent: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """Return tokens for a code, once, to whom it was given; None for anybody else."""
        if authorization != f"{CLIENT}:{SECRET}":
            return None
        code = sent.get("code", "")
        asked = self.codes.get(code) if self.careless else self.codes.pop(code, None)
        if asked is None or sent.get("redirect_uri") != asked["redirect_uri"]:
            return None
        challenge = urlsafe_b64encode(sha256(sent.get("code_verifier", "").encode()).digest())
        if challenge.rstrip(b"=").decode() != asked["code_challenge"]:
            return None
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.claims,
        }
        self.change(claims)
        token = self.sign(self, claims)
        return {"access_token": "x", "token_type": "Bearer", "id_token": token}


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, provider: Provider, *given: Any) -> None:
        self.provider = provider
        super().__init__(*given)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self.provider.asked.append(address.path)
        if address.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(address.query).items()}
            self.send_response(302)
            self.send_header("location", self.provider.authorise(asked))
            self.end_headers()
            return
        bodies = {
            "/.well-known/openid-configuration": self.provider.described(),
            "/jwks": {"keys": [self.provider.key.as_dict(private=False)]},
        }
        self._send(200 if address.path in bodies else 404, bodies.get(address.path, {}))

    def do_POST(self) -> None:
        self.provider.asked.append(self.path)
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        kind, _, value = self.headers.get("authorization", "").partition(" ")
        user = b64decode(value).decode() if kind == "Basic" else ""
        sent = {name: values[0] for name, values in parse_qs(body).items()}
        if self.provider.hold is not None:
            assert self.provider.hold.wait(30)
        found = self.provider.redeem(sent, user)
        self._send(200 if found else 400, found or {"error": "invalid_grant"})

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = self.provider.raw or json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if urlsplit(self.path).path != self.provider.slow:
            self.wfile.write(data)
            return
        with suppress(OSError):  # nobody waits for the rest
            for one in data:
                self.wfile.write(bytes([one]))
                time.sleep(0.02)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider that listens."""
    made = Provider()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, made)) as server:
        made.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(
            target=server.serve_forever, args=(0.02,)
        )  # seconds until it sees its end
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def signed_by_secret(self: Provider, claims: dict[str, Any]) -> str:
    """HS256 under the client's secret, which the client could have signed too."""
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET * 2))


def unsigned(self: Provider, claims: dict[str, Any]) -> str:
    """Algorithm none."""
    parts = [json.dumps(one).encode() for one in ({"alg": "none"}, claims)]
    return ".".join(urlsafe_b64encode(one).rstrip(b"=").decode() for one in parts) + "."
