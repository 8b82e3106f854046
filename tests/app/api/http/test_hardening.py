"""What a hostile caller sends, and what nobody may be shown or keep."""

import base64
import io
import json
import re
import zipfile
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select
from starlette.formparsers import MultiPartParser

from app.api.http import parsing
from app.api.http.strict import StrictRoute
from app.main import ROUTES
from app.service.paging import format_cursor
from lethe.signing.http import new_nonce, sign_request
from models import Record
from tests.app.api.test_requests import EMAIL, problem, stored
from tests.installation import Installation, answer_errors, make_token, taken
from tests.small import MODEL, Caller, manifest, pack, rows

HUGE = 10**23
BYTES = "application/x-npz"


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


# Each of these was an Internal Server Error on one of the two databases.
BAD_TARGETS: list[tuple[str, str, int, str]] = [
    ("log cursor too large", f"/v1/log/entries?after={HUGE}", 400, "query-invalid"),
    ("log cursor in other digits", "/v1/log/entries?after=%D9%A3", 400, "query-invalid"),
    ("day in other digits", "/v1/log/entries?since=%D9%A2%D9%A0%D9%A2%D9%A6-11-01", 422, "body-invalid"),
    ("index too large", f"/v1/log/proof/inclusion?index={HUGE}", 422, "body-invalid"),
    ("size too large", f"/v1/log/proof/inclusion?index=0&size={HUGE}", 422, "body-invalid"),
    ("old too large", f"/v1/log/proof/consistency?old={HUGE}", 422, "body-invalid"),
    ("new too large", f"/v1/log/proof/consistency?old=1&new={HUGE}", 422, "body-invalid"),
    ("NUL in a filter", "/v1/log/entries?ref=%00", 400, "query-invalid"),
    ("NUL in a filter's name", "/v1/log/entries?%00=1", 400, "query-invalid"),
    ("NUL in an id", "/v1/requests/%00", 400, "query-invalid"),
    ("NUL in an id, below it", "/v1/requests/a%00b/certificate", 400, "query-invalid"),
    ("NUL in a list's filter", f"/v1/requests?ref=%00{EMAIL}", 400, "query-invalid"),
    ("NUL in a model's name", "/v1/models/%00", 400, "query-invalid"),
    ("NUL in a contribution", f"/v1/models/{MODEL}/contributions/%00", 400, "query-invalid"),
    ("line feed", "/v1/requests?state=%0A", 400, "query-invalid"),
    ("version cursor too large", f"/v1/models/{MODEL}/versions?after={HUGE}", 400, "query-invalid"),
    ("version too large", f"/v1/models/{MODEL}/versions/{HUGE}", 422, "body-invalid"),
    ("version below one", f"/v1/models/{MODEL}/versions/-1/artifact", 422, "body-invalid"),
    ("before the first day", "/v1/requests?since=0001-01-01T00:00:00%2B23:59", 400, "query-invalid"),
    ("after the last day", "/v1/requests?until=9999-12-31T23:59:59-23:59", 400, "query-invalid"),
    ("cursor before the first day", f"/v1/requests?after={cursor('0001-01-01T00:00:00+23:59|x')}", 400, "query-invalid"),
    ("cursor with a NUL", f"/v1/requests?after={cursor('2026-01-01T00:00:00+00:00|' + chr(0))}", 400, "query-invalid"),
    ("cursor in another spelling", f"/v1/requests?after={cursor('2026-01-01|x')}", 400, "query-invalid"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "status", "slug"), [case[1:] for case in BAD_TARGETS], ids=[case[0] for case in BAD_TARGETS])  # fmt: skip
def test_a_target_out_of_range_is_a_named_problem(
    installation: Installation, path: str, status: int, slug: str
) -> None:
    http = installation.caller.http
    answer_errors(http)
    body = problem(installation.caller.operator("GET", path), status, slug)
    assert EMAIL not in json.dumps(body)


def test_a_cursor_of_ours_is_taken(installation: Installation) -> None:
    after = format_cursor(datetime(2026, 1, 1, tzinfo=UTC), "0" * 36)
    assert installation.caller.operator("GET", f"/v1/requests?after={after}").status_code == 200


@pytest.mark.parametrize("key", ["", '""', "k" * 256, "a\x00b", "\u00fc"])
def test_an_idempotency_key_that_cannot_be_kept_is_refused(
    ready: Installation, key: str
) -> None:
    before = stored(ready)
    sent = {b"Content-Type": b"application/json", b"Idempotency-Key": key.encode("latin-1")}
    response = ready.caller.http.post("/v1/requests", content=b"{}", headers=sent)
    problem(response, 400, "idempotency-key-invalid")
    assert stored(ready) == before


def test_the_longest_idempotency_key_is_kept(ready: Installation) -> None:
    headers = {"Idempotency-Key": "k" * 254}
    first = ready.caller.erase_records("r1", headers=headers)
    assert first.status_code == 202
    assert ready.caller.erase_records("r1", headers=headers).json() == first.json()


def test_an_idempotency_key_added_on_the_way_is_not_the_signers_own(
    ready: Installation,
) -> None:
    before = stored(ready)
    scope = {"level": "sample", "records": ["r1"]}
    body = json.dumps({"model": MODEL, "scope": scope}).encode()
    sent = {"Content-Type": "application/json"}
    sent |= sign_request(
        "POST",
        f"{ready.caller.http.base_url}/v1/requests",
        sent,
        body,
        ready.caller.key,
        ready.caller.keyid,
        now=datetime.now(UTC),
        nonce=new_nonce(),
    )
    added = {**sent, "Idempotency-Key": "k1"}
    response = ready.caller.http.post("/v1/requests", content=body, headers=added)
    assert response.status_code == 202  # clients need not cover it
    # The signer's own "k1", with another body, is not taken for a repetition.
    mine = ready.caller.erase_records("r2", headers={"Idempotency-Key": "k1"})
    assert mine.status_code == 202, mine.text
    assert mine.json()["id"] != response.json()["id"]
    assert stored(ready) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"extractor": {"id": "identity", "digest": "0" * 64, "parameters": {EMAIL: 5}}},
        {
            "extractor": {
                "id": "identity",
                "digest": "0" * 64,
                "parameters": {EMAIL + "\0": "5"},
            }
        },
        {"extractor": {"id": "identity", "digest": "0" * 64, EMAIL: 5}},
        {"classes": ["a\x00", "b", "c"]},
    ],
)
def test_a_refused_place_is_named_in_the_schemas_words(
    installation: Installation, changes: dict[str, Any]
) -> None:
    body = problem(installation.caller.register_model(**changes), 422, "body-invalid")
    assert EMAIL not in json.dumps(body)
    places = [error["place"] for error in body["errors"]]
    assert places
    assert places[0].startswith(next(iter(changes)))
    for place in places:
        assert re.fullmatch(
            r"(extractor|parameters|classes|\d+|\(unknown field\)|\(key\)|\.)+", place
        )


def compressed(method: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, array in rows().items():
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(f"{name}.npy", member.getvalue())
    return stream.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_compression_is_a_refused_upload(
    installation: Installation, method: int
) -> None:
    good = compressed(method)
    caller = installation.caller
    data = {"manifest": json.dumps(manifest())}
    # The first member begins after its header of 30 bytes and its name.
    for start in range(50, 150, 7):
        bad = bytearray(good)
        bad[start : start + 30] = bytes(byte ^ 0xFF for byte in bad[start : start + 30])
        answer = caller.operator("POST", "/v1/models", files={"data": bytes(bad)}, data=data)
        problem(answer, 422, "upload-invalid")
    answer = caller.operator("POST", "/v1/models", files={"data": good}, data=data)
    if method == zipfile.ZIP_DEFLATED:
        assert answer.status_code == 201
    else:  # numpy writes neither, and a few bytes of them unpack to megabytes in one step
        problem(answer, 422, "upload-invalid")


@pytest.mark.parametrize("name", ["clients", "records", "subjects"])
def test_half_a_character_is_no_id(installation: Installation, name: str) -> None:
    arrays = {**rows(count=4), name: np.array(["\ud800a", "b", "c", "d"])}
    problem(installation.caller.register_model(arrays), 422, "upload-invalid")


def test_strangers_bodies_are_not_read(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(parser: MultiPartParser) -> None:
        raise AssertionError("the form of a stranger was parsed")

    monkeypatch.setattr(MultiPartParser, "parse", never)
    http = ready.caller.http
    form: dict[str, Any] = {"files": {"data": b"x" * 10}, "data": {"manifest": "{}"}}
    problem(http.post("/v1/models", **form), 401, "token-invalid")
    auditor = Caller(http, make_token(ready.services, "auditor"))
    problem(auditor.operator("POST", "/v1/models", **form), 403, "scope-insufficient")

    path = f"/v1/models/{MODEL}/contributions"
    stranger = Caller(http, "", keyid="mallory")
    named = {"Content-Type": BYTES, "Content-Length": str(100 * 65_536)}
    signed = sign_request(
        "POST",
        f"{http.base_url}{path}",
        named,
        b"x",
        stranger.key,
        "mallory",
        now=datetime.now(UTC),
        nonce=new_nonce(),
    )
    for headers, slug in ((named, "signature-missing"), ({**named, **signed}, "key-unknown")):
        read = count_reads(ready, "POST", path, headers)
        assert read.slug == slug
        assert read.messages == 0


class Read:
    """How much of a body the application asked for, and the problem it answered."""

    def __init__(self) -> None:
        self.messages = 0
        self.slug = ""


def count_reads(
    installation: Installation, method: str, path: str, headers: dict[str, str]
) -> Read:
    """Call the application itself: a test client sends its body whether or not it is read."""
    read = Read()

    async def receive() -> dict[str, Any]:
        read.messages += 1
        return {"type": "http.request", "body": b"x" * 65_536, "more_body": read.messages < 100}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            read.slug = json.loads(message["body"])["type"].rpartition(":")[2]

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        "scheme": "http",
        "server": ("testserver", 80),
    }

    async def call() -> None:
        await installation.caller.http.app(scope, receive, send)  # type: ignore[arg-type]

    portal = installation.caller.http.portal
    assert portal is not None
    portal.call(call)
    return read


LIMITS = [
    ("GET", "/v1/models", "max_body_bytes"),
    ("POST", "/v1/models/small/versions", "max_body_bytes"),
    ("POST", "/v1/models-and-more", "max_body_bytes"),
    ("POST", "/v1/models/small/contributions/x", "max_body_bytes"),
    ("POST", "/v1/models/small/contributions", "max_upload_bytes"),
    ("POST", "/v1/models", "max_upload_bytes"),
    ("POST", "/v1/certificates/verify", "max_verify_bytes"),
]


@pytest.mark.parametrize(("method", "path", "setting"), LIMITS)
def test_each_route_has_its_own_limit(
    installation: Installation, method: str, path: str, setting: str
) -> None:
    limit = getattr(installation.settings, setting)
    over = count_reads(installation, method, path, {"Content-Length": str(limit + 1)})
    assert (over.slug, over.messages) == ("body-too-large", 0)
    if setting != "max_verify_bytes":  # which reads: anybody may call it
        within = count_reads(installation, method, path, {"Content-Length": str(limit)})
        assert within.slug != "body-too-large"


def test_a_chunked_json_body_over_the_limit_is_named(installation: Installation) -> None:
    token = installation.caller.token
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    assert count_reads(installation, "POST", "/v1/keys", headers).slug == "body-too-large"


def test_a_form_that_is_none_is_named(installation: Installation) -> None:
    caller = installation.caller
    multipart = {"content-type": "multipart/form-data; boundary=x"}
    for arguments in (
        {"content": b"{}", "headers": {"content-type": "application/json"}},
        {"content": b"nothing", "headers": multipart},
        {"content": b"{}", "headers": {"content-type": "multipart/form-data"}},
        {"files": {"data": b"x"}},
        {"files": {EMAIL: b"x"}, "data": {EMAIL: "x"}},
    ):
        for path in ("/v1/models", "/v1/certificates/verify"):
            body = problem(caller.operator("POST", path, **arguments), 422, "body-invalid")
            assert EMAIL not in json.dumps(body)


def test_an_auditor_gets_no_capability(ready: Installation) -> None:
    accepted = [ready.caller.erase_records(f"r{i}").json() for i in range(3)]
    ready.drain()
    auditor = Caller(ready.caller.http, make_token(ready.services, "auditor"))
    refs: list[str] = []
    query = "limit=1"
    while True:
        page = auditor.operator("GET", f"/v1/requests?{query}")
        for request in accepted:
            assert request["id"] not in page.text
        (item,) = page.json()["items"]
        assert item["id"] is None
        assert item["certificate"] is None
        refs.append(item["ref"])
        if page.json()["next"] is None:
            break
        following = page.json()["next"]
        for request in accepted:
            assert request["id"].encode() not in base64.urlsafe_b64decode(following)
        query = f"limit=1&after={following}"
    assert refs == [request["ref"] for request in accepted]
    items = ready.caller.operator("GET", "/v1/requests").json()["items"]
    assert [item["id"] for item in items] == [request["id"] for request in accepted]
    assert all(item["certificate"] for item in items)


def test_what_is_shredded_one_day_is_kept_by_no_cache(ready: Installation) -> None:
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    shown = ready.caller.http.get(f"/v1/requests/{request}")
    assert shown.json()["scope"]["records"] == ["r1"]
    assert shown.headers["cache-control"] == "no-store"
    evidence = ready.caller.http.get(f"/v1/requests/{request}/evidence")
    assert evidence.headers.get_list("cache-control") == ["no-store"]
    assert "etag" not in evidence.headers
    path = f"/v1/models/{MODEL}/versions/2/artifact"
    head = ready.caller.operator("GET", path)
    assert head.headers["cache-control"] == "private, no-cache"
    known = {"if-none-match": head.headers["etag"]}
    assert ready.caller.operator("GET", path, headers=known).status_code == 304
    ready.caller.erase_records("r2")
    ready.drain()
    problem(ready.caller.operator("GET", path, headers=known), 410, "shredded")
    certificate = ready.caller.http.get(f"/v1/requests/{request}/certificate")
    assert "immutable" in certificate.headers["cache-control"]


def test_a_bound_key_contributes_only_its_own_rows(ready: Installation) -> None:
    def send(bound: dict[str, str], client: str, subject: str | None, first: int) -> Any:
        caller = Caller(ready.caller.http, ready.caller.token, keyid=f"key-{first}")
        assert caller.register_key(role="client", **bound).status_code == 201
        arrays = {**rows(seed=9, count=4, first=first), "clients": np.array([client] * 4)}
        if subject is not None:
            arrays["subjects"] = np.array([subject] * 4)
        path = f"/v1/models/{MODEL}/contributions"
        return caller.signed("POST", path, pack(arrays), content_type=BYTES)

    slug = "key-not-entitled"
    problem(send({"subject": "jane"}, "c1", "victim", 100), 403, slug)
    problem(send({"subject": "jane"}, "c1", None, 200), 403, slug)  # a client is not jane
    problem(send({"client": "c1"}, "c2", "jane", 300), 403, slug)
    problem(send({"client": "c1", "subject": "jane"}, "c1", "victim", 400), 403, slug)
    problem(send({"client": "c1", "subject": "jane"}, "c2", "jane", 500), 403, slug)
    assert send({"subject": "jane"}, "c9", "jane", 600).status_code == 202
    assert send({"client": "c1", "subject": "jane"}, "c1", "jane", 700).status_code == 202
    ready.drain()
    with Session(ready.services.engine) as session:
        held = set(session.exec(select(Record.record)))
    assert {name for name in held if len(name) == 4} == {
        *(f"r{number}" for number in (*range(600, 604), *range(700, 704)))
    }


def test_every_json_body_that_the_framework_reads_needs_a_token() -> None:
    routes = [route for module in ROUTES for route in module.router.routes]
    found = [one for one in routes if getattr(one, "body_field", None) is not None]
    assert len(found) > 15
    for route in found:
        assert isinstance(route, StrictRoute), route.path
        assert "bearer" in security_of(route.dependant), route.path


def security_of(dependant: Any) -> set[str]:
    names = {getattr(dependant.call, "scheme_name", "")}
    return names.union(*(security_of(one) for one in dependant.dependencies))


@pytest.mark.parametrize("path", ["/v1/cases", "/v1/keys", "/v1/requests/x/decision"])
@pytest.mark.parametrize("token", [None, "Bearer nobody", "Basic eDp5"])
def test_a_strangers_json_is_not_read(
    installation: Installation, path: str, token: str | None
) -> None:
    """100 bodies of 1 MiB without a token kept /healthz waiting for 20 s."""
    headers = {"content-type": "application/json", "content-length": "65536"}
    if token is not None:
        headers["authorization"] = token
    read = count_reads(installation, "POST", path, headers)
    assert (read.slug, read.messages) == ("token-invalid", 0)


def test_large_json_of_known_senders_waits_for_its_turn(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "WAIT", 0.05)
    caller = ready.caller
    large = json.dumps({"model": MODEL, "more": ["x"] * parsing.SMALL}).encode()

    def send() -> tuple[Any, Any, Any]:
        kind = {"content-type": "application/json"}
        form: dict[str, Any] = {"files": {"manifest": large}}
        return (
            caller.operator("POST", "/v1/audits", content=large, headers=kind),
            caller.operator("POST", "/v1/models", **form),
            caller.signed("POST", "/v1/requests", large),
        )

    for answer in send():
        problem(answer, 422, "body-invalid")
    with taken(ready, "parsing", ready.settings.max_parsed_at_once):
        for answer in send():
            problem(answer, 503, "busy")
            assert answer.headers["retry-after"] == "5"
        scope = {"level": "sample", "records": ["r1"]}
        small = json.dumps({"model": MODEL, "scope": scope}).encode()
        assert caller.signed("POST", "/v1/requests", small).status_code == 202
