"""A service in memory, stricter than a real one: it fails the test that sends it nonsense.

It keeps what the contract demands (verified signatures, spent nonces, Idempotency-Key) and
does what it is told about faults. `respond` serves a MockTransport; `serve` a real socket.
"""

import base64
import json
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from email import message_from_bytes
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import http_sf
import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.errors import LetheError
from lethe.log.checkpoint import Checkpoint, sign_checkpoint
from lethe.log.entries import event_leaf
from lethe.log.note import NoteSigner
from lethe.log.proofs import inclusion_proof
from lethe.signing.errors import SignatureReplayedError
from lethe.signing.http import SignedBy
from lethe.signing.keys import Algorithm, PublicKey, algorithm_of, load_public_key
from tests.lethe.log import oracle
from tests.lethe.signing.whole import verify_request

BASE = "http://ledger.test"
TOKEN = "an-operator's-token"
SIGNER = NoteSigner("ledger.test/log", Ed25519PrivateKey.from_private_bytes(bytes(32)))
RECEIVED = "2026-12-02T03:04:05Z"
DUE = "2027-01-02T03:04:05Z"
STATES = ("received", "executing", "verifying", "certified")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """Handle the request, if `handled`, and break the connection."""

    handled: bool
    error: type[httpx2.TransportError] = httpx2.ReadError


@dataclass(frozen=True)
class Seen:
    method: str
    target: str
    headers: httpx2.Headers
    body: bytes


@dataclass
class Stored:
    id: str
    ref: str
    document: dict[str, Any]
    states: deque[str]
    history: list[dict[str, Any]] = field(default_factory=list)


def as_json(status: int, document: object) -> Answer:
    return Answer(status, json.dumps(document).encode(), {"content-type": "application/json"})


def problem(status: int, slug: str, detail: str, **members: object) -> Answer:
    document = {"type": f"urn:lethe:problem:{slug}", "title": slug.title(), "status": status}
    body = json.dumps({**document, "detail": detail, **members}).encode()
    return Answer(status, body, {"content-type": "application/problem+json"})


class FakeService:
    """faults: consumed in order, one for each request, before anything is handled."""

    def __init__(self, base: str = BASE) -> None:
        self.base = base
        self.keys: dict[str, PublicKey] = {}
        self.confirmed: dict[str, str] = {}
        self.faults: deque[Answer | Lost | None] = deque()
        self.seen: list[Seen] = []
        self.signed: list[SignedBy] = []
        self.requests: dict[str, Stored] = {}
        self.registered: list[dict[str, Any]] = []
        self.contributions: list[bytes] = []
        self.warnings: list[str] = []
        self.preview: dict[str, Any] = {
            "records": 1,
            "pairs": 0,
            "needed": 0,
            "warnings": [],
        }
        self.models: list[tuple[dict[str, Any], bytes]] = []
        self.states: tuple[str, ...] = STATES
        self.stream = ""  # of server-sent events; a service without them has none
        self.attempt: dict[str, Any] | None = None
        self.progress: dict[str, Any] | None = None
        self.page_size = 2
        self.shows_ids = True  # not to auditors
        self._nonces: set[tuple[str, str]] = set()
        self._leaves: list[bytes] = [b"an earlier entry", b"another"]
        self._answers: dict[tuple[str, str], tuple[bytes, Answer]] = {}

    # --- transports ---------------------------------------------------------------------
    def respond(self, request: httpx2.Request) -> httpx2.Response:
        seen = Seen(request.method, str(request.url), request.headers, request.content)
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Lost):
            if fault.handled:
                self.handle(seen)
            raise fault.error("lost", request=request)
        answer = fault or self.handle(seen)
        return httpx2.Response(answer.status, content=answer.body, headers=answer.headers)

    # --- the contract -------------------------------------------------------------------
    def handle(self, seen: Seen) -> Answer:
        self.seen.append(seen)
        try:
            return self._route(seen)
        except LetheError as error:
            return problem(error.status, error.slug, error.detail)

    def _route(self, seen: Seen) -> Answer:
        parts = urlsplit(seen.target)
        segments = parts.path.strip("/").split("/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match [seen.method, *segments]:
            case ["POST", "v1", "requests"]:
                return self._once(seen, self._verify(seen))
            case ["POST", "v1", "requests", "preview"]:
                self._verify(seen)
                method = json.loads(seen.body).get("method", "retrain")
                return as_json(200, {**self.preview, "method": method})
            case ["GET", "v1", "requests"]:
                self._authorise(seen)
                return self._requests(query)
            case ["GET", "v1", "requests", request_id]:
                return self._show(self._find(request_id), advance=True)
            case ["DELETE", "v1", "requests", request_id]:
                if "signature" in seen.headers:
                    self._verify(seen)
                else:
                    self._authorise(seen)
                stored = self._find(request_id)
                stored.states = deque(["withdrawn"])
                return self._show(stored, advance=True)
            case ["GET", "v1", "requests", request_id, "events"] if self.stream:
                self._find(request_id)
                return Answer(200, self.stream.encode())
            case ["GET", "v1", "requests", request_id, "certificate"]:
                assert "sigstore.bundle" in seen.headers["accept"]
                self._find(request_id)
                return Answer(200, b"the certificate")
            case ["GET", "v1", "requests", request_id, "evidence"]:
                self._find(request_id)
                return Answer(200, b"the evidence")
            case ["POST", "v1", "models", "digits", "contributions"]:
                self._verify(seen)
                assert seen.headers["content-type"] == "application/x-npz"
                self.contributions.append(seen.body)
                return as_json(202, {"id": "c1", "state": "queued"})
            case ["POST", "v1", "models"]:
                self._authorise(seen)
                self.models.append(parse_form(seen))
                return as_json(201, self.models[-1][0])
            case ["GET", "v1", "models"]:
                self._authorise(seen)
                return self._page([{"ref": f"m{n}"} for n in range(5)], query)
            case ["GET", "v1", "models", ref]:
                self._authorise(seen)
                return as_json(200, {"ref": ref})
            case ["GET", "v1", "models", ref, "versions"]:
                self._authorise(seen)
                return self._page([{"ref": ref, "number": n} for n in range(3)], query)
            case ["GET", "v1", "models", ref, "versions", number, "artifact"]:
                self._authorise(seen)
                return Answer(200, f"{ref} {number}".encode())
            case ["POST", "v1", "keys"]:
                self._authorise(seen)
                return self._register(json.loads(seen.body))
            case ["GET", "v1", "keys"]:
                self._authorise(seen)
                return self._page([self._shown(one) for one in self.registered], query)
            case ["POST", "v1", "keys", keyid, "confirm"]:
                self._authorise(seen)
                return self._confirm(keyid, json.loads(seen.body))
            case ["DELETE", "v1", "keys", keyid]:
                self._authorise(seen)
                if self.keys.pop(keyid, None) is None:
                    return problem(404, "not-found", "no key has this id")
                return as_json(200, {"keyid": keyid, "revoked_at": DUE})
        return problem(404, "not-found", "no such resource")

    def _authorise(self, seen: Seen) -> None:
        assert "signature" not in seen.headers
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            raise DeniedError("the token is missing or not an operator's")

    def _verify(self, seen: Seen) -> SignedBy:
        def resolve(keyid: str) -> tuple[PublicKey, Algorithm] | None:
            key = self.keys.get(keyid)
            return None if key is None else (key, algorithm_of(key))

        assert "authorization" not in seen.headers  # a token is not needed, so not shown
        target = self.base + seen.target.removeprefix(self.base)
        signed = verify_request(
            seen.method, target, seen.headers, seen.body, resolve, now=datetime.now(UTC)
        )
        if (signed.keyid, signed.nonce) in self._nonces:
            raise SignatureReplayedError("this nonce was used before")
        self._nonces.add((signed.keyid, signed.nonce))
        self.signed.append(signed)
        return signed

    def _once(self, seen: Seen, signed: SignedBy) -> Answer:
        key = http_sf.parse(seen.headers["idempotency-key"].encode(), tltype="item")
        assert isinstance(key, tuple)
        assert isinstance(key[0], str)  # the draft's quoted string
        known = self._answers.get((signed.keyid, key[0]))
        if known is None:
            answer = self.accept(json.loads(seen.body))
            self._answers[signed.keyid, key[0]] = (seen.body, answer)
            return answer
        if known[0] != seen.body:
            return problem(422, "idempotency-key-reused", "another body came with this key")
        return known[1]

    def accept(self, wanted: dict[str, Any]) -> Answer:
        if wanted["model"] != "digits":
            return problem(404, "model-unknown", "no model has this reference")
        ref = str(uuid.uuid4())
        stored = Stored(str(uuid.uuid4()), ref, wanted, deque(self.states))
        self.requests[stored.id] = stored
        commitment = sha256(ref.encode()).digest()
        leaf = event_leaf("request.received", ref, commitment, date(2026, 12, 2))
        self._leaves.append(leaf)
        size = len(self._leaves)
        root = oracle.mth(tuple(self._leaves))
        note = sign_checkpoint(Checkpoint(SIGNER.name, size, root), SIGNER)
        hashes = inclusion_proof(size - 1, size, oracle.StrictReader(self._leaves))
        receipt = {
            "log_index": size - 1,
            "tree_size": size,
            "leaf": base64.b64encode(leaf).decode(),
            "hashes": [base64.b64encode(item).decode() for item in hashes],
            "checkpoint": note,
        }
        return as_json(
            202,
            {
                "id": stored.id,
                "ref": ref,
                "state": "received",
                "due_at": DUE,
                "receipt": receipt,
                "warnings": self.warnings,
            },
        )

    def _find(self, request_id: str) -> Stored:
        if request_id not in self.requests:
            raise AbsentError("no request has this id")
        return self.requests[request_id]

    def _show(self, stored: Stored, *, advance: bool) -> Answer:
        state = stored.states[0]
        if advance and len(stored.states) > 1:
            stored.states.popleft()
        names = [event["event"] for event in stored.history]
        if f"request.{state}" not in names:
            event = {"event": f"request.{state}", "at": DUE, "log_index": len(names)}
            stored.history.append(event)
        path = f"/v1/requests/{stored.id}/certificate" if state == "certified" else None
        return as_json(
            200,
            {
                "id": stored.id,
                "ref": stored.ref,
                "state": state,
                "model": stored.document["model"],
                "method": stored.document.get("method", "ridge-exact"),
                "scope": stored.document["scope"],
                "due_at": DUE,
                "reason": "the model is gone" if state == "refused" else None,
                "attempt": self.attempt,
                "progress": self.progress,
                "history": stored.history,
                "certificate": path,
            },
        )

    def _requests(self, query: dict[str, str]) -> Answer:
        wanted = [
            {
                "id": item.id if self.shows_ids else None,
                "ref": item.ref,
                "state": item.states[0],
                "model": "digits",
                "received_at": RECEIVED,
                "due_at": DUE,
            }
            for item in self.requests.values()
            if query.get("state", item.states[0]) == item.states[0]
        ]
        return self._page(wanted, query)

    def _page(self, items: list[dict[str, Any]], query: dict[str, str]) -> Answer:
        start = int(query.get("after", "0"))
        end = start + self.page_size
        more = str(end) if end < len(items) else None
        return as_json(200, {"items": items[start:end], "next": more})

    def _shown(self, one: dict[str, Any]) -> dict[str, Any]:
        free = {"client": None, "subject": None}
        shown = {"created_at": RECEIVED, "revoked_at": None, "registered_by": "ops"}
        return {**free, **one, **shown, "confirmed_by": self.confirmed.get(one["keyid"])}

    def _confirm(self, keyid: str, given: dict[str, Any]) -> Answer:
        one = next((key for key in self.registered if key["keyid"] == keyid), None)
        if one is None or one["public_key"] != given["public_key"]:
            return problem(409, "conflict", "the key is another one")
        self.confirmed[keyid] = "dpo"
        return as_json(200, self._shown(one))

    def _register(self, wanted: dict[str, Any]) -> Answer:
        key = load_public_key(wanted["public_key"].encode())
        assert algorithm_of(key) == wanted["algorithm"]
        self.keys[wanted["keyid"]] = key
        self.registered.append(wanted)
        return as_json(201, wanted)


class DeniedError(LetheError):
    slug, title, status = "token-invalid", "Bearer token missing or invalid", 401


class AbsentError(LetheError):
    slug, title, status = "not-found", "Not found", 404


def parse_form(seen: Seen) -> tuple[dict[str, Any], bytes]:
    """Read a registration with the standard library's MIME parser."""
    head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
    parts = {}
    for part in message_from_bytes(head + seen.body).walk():
        if part.is_multipart():
            continue
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        parts[name] = (part.get_content_type(), part.get_filename(), payload)
    manifest_type, filename, manifest = parts["manifest"]
    data_type, data_name, data = parts["data"]
    assert (manifest_type, filename) == ("application/json", None)
    assert data_type == "application/octet-stream"
    assert data_name is not None
    return json.loads(manifest), data


@contextmanager
def serve(service: FakeService) -> Iterator[str]:
    """Serve on a free port and yield the base URL. A None answer closes the connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            seen = Seen(
                self.command,
                f"http://{self.headers['Host']}{self.path}",
                httpx2.Headers(list(self.headers.items())),
                self.rfile.read(length),
            )
            fault = service.faults.popleft() if service.faults else None
            if isinstance(fault, Lost):
                if fault.handled:
                    service.handle(seen)
                self.close_connection = True
                return
            answer = fault or service.handle(seen)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    service.base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield service.base
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
