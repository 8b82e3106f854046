"""Each call as a value: the request before it is signed."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import http_sf
import httpx2

from lethe import canonical
from lethe.client.bodies import Form
from lethe.client.errors import ScopeError
from lethe.identity import Identity
from lethe.signing.keys import PrivateKey, PublicKey, algorithm_of, fingerprint, public_pem

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
JSON = "application/json"
NPZ = "application/x-npz"
ANSWER = 32 * 2**20  # bytes; a page of 1,000 items has about one million
FILE = 2 * 2**30  # bytes; evidence, scores and models grow with the training set
Auth = Literal["none", "signature", "token", "either"]
Query = Mapping[str, str | int | bool | None]


@dataclass(frozen=True, slots=True)
class Call:
    """path is below the base URL and percent-encoded; body is sent as it is, or streamed.

    A retry sends the same body and Idempotency-Key under a new signature. once: the service
    would do it a second time, so it is retried only if it was not done.
    """

    method: str
    path: str
    auth: Auth = "none"
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Form = b""
    most: int = ANSWER  # maximum bytes read of a successful answer
    once: bool = False


def submit(
    model: str,
    scope: Mapping[str, Any],
    method: str | None,
    regulation: str,
    idempotency_key: str | None,
    callback: str | None = None,
) -> Call:
    """POST an erasure request."""
    body = _request(model, scope, method, regulation, callback)
    return _post("/v1/requests", body, JSON, "signature", idempotency_key)


def preview(model: str, scope: Mapping[str, Any], method: str | None) -> Call:
    """POST an erasure request for a preview."""
    body = _request(model, scope, method, "gdpr")
    return _post("/v1/requests/preview", body, JSON, "signature", None)


def _request(
    model: str,
    scope: Mapping[str, Any],
    method: str | None,
    regulation: str,
    callback: str | None = None,
) -> bytes:
    wanted: dict[str, Any] = {"model": model, "scope": scope, "regulation": regulation}
    if method is not None:
        wanted["method"] = method
    if callback is not None:
        wanted["callback"] = callback
    return canonical.encode(wanted)


def scope_of(
    records: Sequence[str] | None, client: str | None, subject: str | None
) -> dict[str, Any]:
    """Return the scope that names exactly one of records, a client or a subject.

    Raises ScopeError: none or several are given, or no record.
    """
    named = [part is not None for part in (records, client, subject)]
    if sum(named) != 1:
        raise ScopeError("name records, a client or a subject: exactly one of them")
    if isinstance(records, str):
        raise ScopeError("records is a list of ids: put a single id into a list")
    if records is not None:
        if not records:
            raise ScopeError("name at least one record")
        return {"level": "sample", "records": list(records)}
    if client is not None:
        return {"level": "client", "client": client}
    return {"level": "subject", "subject": subject}


def request(request_id: str, part: str = "", accept: str = JSON, most: int = ANSWER) -> Call:
    """GET a request or a part of it, such as "/certificate"."""
    path = _path("v1", "requests", request_id) + part
    return Call("GET", path, headers={"Accept": accept}, most=most)


def follow(request_id: str, after: int | None) -> Call:
    """GET the stream of a request's events, those after a log index."""
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    return Call("GET", _path("v1", "requests", request_id) + "/events", headers=headers)


def withdraw(request_id: str) -> Call:
    """DELETE a request, signed if there is a key, otherwise with the operator's token."""
    return Call("DELETE", _path("v1", "requests", request_id), "either")


def contribute(model: str, npz: bytes, add_back: bool = False) -> Call:
    """POST rows to a model; with add_back, they may include erased records."""
    path = _path("v1", "models", model, "contributions")
    call = _post(path, npz, NPZ, "signature", None)
    return replace(call, query=(("add_back", "true"),)) if add_back else call


def signed_get(*segments: str) -> Call:
    """GET data for the client that signs."""
    return Call("GET", _path("v1", *segments), "signature")


def answer_release(release: str, npz: bytes) -> Call:
    """POST the statistics of the records of a release."""
    path = _path("v1", "releases", release, "answer")
    return _post(path, npz, NPZ, "signature", None)


def digests_of(person: Identity) -> dict[str, str]:
    """Return the digests of an identity in the service's format."""
    return {"kind": person.kind, **{name: one.hex() for name, one in person.digests.items()}}


def of_person(person: Identity, models: Sequence[str] | None) -> dict[str, Any]:
    """Return the fields that name a person and, unless all are meant, models."""
    found: dict[str, Any] = {"person": digests_of(person)}
    return found if models is None else {**found, "models": list(models)}


def act(method: str, *segments: str, once: bool = False) -> Call:
    """POST or DELETE a path as an operator, without a body."""
    return Call(method, _path("v1", *segments), "token", headers={"Accept": JSON}, once=once)


def post_as_operator(wanted: Mapping[str, Any], *segments: str, once: bool = False) -> Call:
    """POST an operator's request as JSON."""
    body = canonical.encode(dict(wanted))
    return replace(_post(_path("v1", *segments), body, JSON, "token", None), once=once)


def register_model(manifest: Mapping[str, Any], npz: bytes | Path | None) -> Call:
    """POST a model as a form: its manifest and, unless the clients keep the rows, its rows.

    Raises OSError: the file of the rows cannot be read.
    """
    files: dict[str, Any] = {
        # Without a file name it is a form field, as the service expects it.
        "manifest": (None, canonical.encode(dict(manifest)), JSON)
    }
    if npz is not None:
        files["data"] = ("data.npz", b"", "application/octet-stream")
    encoder = httpx2.Request("POST", "http://encoder.invalid", files=files)
    body = encoder.read() if npz is None else Form.around(encoder, npz)
    return _post("/v1/models", body, encoder.headers["content-type"], "token", None)


def register_key(
    key: PublicKey | PrivateKey,
    role: str,
    keyid: str | None,
    client: str | None,
    subject: str | None,
) -> tuple[str, Call]:
    """POST the public half of a key; returns its keyid too."""
    chosen = keyid if keyid is not None else fingerprint(key)
    document = {
        "keyid": chosen,
        "algorithm": algorithm_of(key),
        "public_key": public_pem(key),
        "role": role,
    }
    for name, value in (("client", client), ("subject", subject)):
        if value is not None:
            document[name] = value
    return chosen, _post("/v1/keys", canonical.encode(document), JSON, "token", None)


def revoke_key(keyid: str) -> Call:
    """DELETE a key."""
    return Call("DELETE", _path("v1", "keys", keyid), "token")


def operator_get(
    *segments: str, query: Query | None = None, accept: str = JSON, most: int = ANSWER
) -> Call:
    """GET data that only an operator or auditor may read. A None in the query is left out."""
    pairs = tuple(
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in (query or {}).items()
        if value is not None
    )
    return Call("GET", _path("v1", *segments), "token", pairs, {"Accept": accept}, most=most)


def _post(
    path: str, body: bytes | Form, content_type: str, auth: Auth, idempotency_key: str | None
) -> Call:
    # draft-ietf-httpapi-idempotency-key-header section 2.1: a structured-field string.
    key = http_sf.ser(str(uuid.uuid4()) if idempotency_key is None else idempotency_key)
    headers = {"Content-Type": content_type, "Accept": JSON, "Idempotency-Key": key}
    return Call("POST", path, auth, headers=headers, body=body)


def _path(*segments: str) -> str:
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)
