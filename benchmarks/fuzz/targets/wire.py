"""Of HTTP and other machines: signatures, bodies, callbacks, streams, lists, codes."""

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, create_engine

from app.api.http.pages import parse_form
from app.api.models import _read as read_manifest_of_model
from app.backup import rows
from app.backup.archive import MANIFEST, read_manifest
from app.backup.errors import BackupError
from app.backup.pieces import read_followed
from app.intake.forms import MOST_FIELDS, IntakeFormError
from app.notices.guard import parse_target
from app.protocols.drp.envelope import open_envelope
from app.protocols.drp.wire import Exercise, people_of
from app.schemas.keys import NewKey
from app.schemas.requests import NewRequest
from app.schemas.webhooks import NewWebhook
from app.service.intake.case_code import case_code, read_case_code
from app.service.paging import format_cursor, parse_cursor, parse_number
from app.settings import Allowed
from app.vault.master import RootSecret
from benchmarks.fuzz.mutate import Mutator, as_json, as_json_lines, as_lines, as_zip, plain
from benchmarks.fuzz.target import Target, text
from lethe import identity
from lethe.client.answers import parse_page, parse_problem, parse_receipt, parse_status
from lethe.client.errors import ClientError
from lethe.client.events import EventParser
from lethe.client.notices import PREFIX, verify_callback
from lethe.errors import LetheError
from lethe.protocols.drop_lists import DropError, checked
from lethe.signing.digest import check_content_digest, format_content_digest
from lethe.signing.errors import SignatureError
from lethe.signing.fields import parse_fields
from lethe.signing.http import new_nonce, sign_request
from lethe.signing.keys import generate_key, public_pem
from lethe.signing.plain import parse_plain
from migrations import HEAD
from models.database.types import METADATA
from tests.app.backup.example import example
from tests.app.protocols.test_drp import EXAMPLE as DRP
from tests.lethe.client.test_answers import RECEIPT, STATUS
from tests.lethe.protocols.test_drop_lists import EMAIL, listed
from tests.lethe.protocols.test_drop_lists import archive as drop_archive
from tests.small import manifest

UTF8 = UnicodeDecodeError
JSON: tuple[Mutator, ...] = (as_json, as_json, plain)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
MASTER = RootSecret(bytes(32))
REF = "0b5bbbd2-1d3c-4c3b-8b63-9a4c8f3f8a01"


def _signed_lines() -> Sequence[bytes]:
    found = []
    for kind in ("ed25519", "ecdsa-p256-sha256"):
        headers = {"content-type": "application/json"}
        added = sign_request(
            "POST", "https://x.example/v1/requests", headers, b"{}", generate_key(kind),
            "alice", now=NOW, nonce=new_nonce(),
        )  # fmt: skip
        lines = {name.lower(): value for name, value in added.items()}
        found.append(f"{lines['signature-input']}\n{lines['signature']}".encode())
    return found


def _lines(data: bytes) -> dict[str, list[str]]:
    inputs, _, signature = data.decode("latin-1").partition("\n")
    return {"signature-input": [inputs], "signature": [signature]}


def _intake_form(data: bytes) -> object:
    return parse_form(data, MOST_FIELDS, IntakeFormError, "malformed", "twice")


def _both(data: bytes) -> object:
    """Read a signature's fields both ways: what the quick one reads, the other must read."""
    lines = _lines(data)
    quick = parse_plain(lines)
    fields = parse_fields(lines)
    assert quick is None or asdict(quick.fields) == asdict(fields)
    return fields


def _digest(data: bytes) -> None:
    check_content_digest(data.decode("latin-1"), b"a body")


def _body(wire: type[BaseModel]) -> Callable[[bytes], object]:
    return wire.model_validate_json


def _as_json(*values: object) -> Callable[[], Sequence[bytes]]:
    return lambda: [
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode() for value in values
    ]


def _envelope(data: bytes) -> object:
    """Open a message that an agent signed, whatever it says, and read it."""
    envelope = open_envelope(b64encode(KEY.sign(data) + data), KEY.public_key())
    return people_of(Exercise.model_validate(envelope.said))


def _opened(data: bytes) -> object:
    return open_envelope(data, KEY.public_key())


STAMP = str(int(NOW.timestamp()))
SERVICE = (
    PREFIX + b64encode(KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
)
CALLBACK_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")


def _callback_values(body: bytes) -> list[str]:
    signed = f"id.{STAMP}.".encode() + body
    return ["id", STAMP, f"v1a,{b64encode(KEY.sign(signed)).decode()}"]


def _callback(data: bytes) -> object:
    """Read a callback that a service signed, whatever is in it."""
    headers = dict(zip(CALLBACK_HEADERS, _callback_values(data), strict=True))
    return verify_callback(SERVICE, headers, data, now=NOW)


def _callback_headers(data: bytes) -> object:
    values = data.decode("latin-1").split("\n")
    headers = dict(zip(CALLBACK_HEADERS, values, strict=False))
    return verify_callback(SERVICE, headers, b"{}", now=NOW)


def _stream(data: bytes) -> object:
    return list(EventParser().feed(data.decode("utf-8", "replace")))


def _answer(parse: Callable[[httpx2.Response], object]) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        return parse(httpx2.Response(200, content=data))

    return read


def _problem(data: bytes) -> object:
    return parse_problem(httpx2.Response(409, content=data))


def _drop(data: bytes) -> object:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "x.zip"
        path.write_bytes(data)
        with checked(path) as lists:
            return [list(lists.rows(name)) for name in lists.types]


def _drop_seeds() -> Sequence[bytes]:
    with TemporaryDirectory() as folder:
        removed = listed("b").replace(b"ID,Hash", b"ID,Hash,ListType").rstrip() + b",Email\n"
        members = (EMAIL, listed("a", "b", "c")), ("20260801_4821_Removed.csv", removed)
        return [drop_archive(Path(folder) / "x.zip", *members).read_bytes()]


def _backup(data: bytes) -> object:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / MANIFEST).write_bytes(data)
        return read_manifest(Path(folder))


def _followed(data: bytes) -> object:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / MANIFEST).write_bytes(data)
        return read_followed(Path(folder))


def _rows(data: bytes) -> object:
    """Load the rows of a backup into an empty database, and take them back."""
    connection = _empty()
    try:
        return rows.load(connection, iter(data.splitlines(keepends=True)))
    finally:
        connection.rollback()


@cache
def _empty() -> Connection:
    connection = create_engine("sqlite://").connect()  # in memory
    connection.exec_driver_sql("PRAGMA foreign_keys=ON")
    METADATA.create_all(connection)
    connection.commit()
    return connection


def _dumped() -> Sequence[bytes]:
    with create_engine("sqlite://").connect() as connection:
        METADATA.create_all(connection)
        return [example(connection)]


BACKUP = {
    "at": "2026-11-27T00:00:00+00:00", "files": {}, "origin": "x.example", "root": "AAAA",
    "rows": 1, "schema": HEAD, "size": 1,
}  # fmt: skip
BACKUP_NAMES = {**BACKUP, "files": {"database.jsonl": "00" * 32, "artifacts/a": "00" * 32}}
FOLLOWED = {
    "at": "2026-11-27T00:00:00+00:00", "files": {"artifacts/a": "00" * 32},
    "origin": "x.example", "pieces": ["00" * 32], "root": "AAAA", "schema": HEAD, "size": 1,
}  # fmt: skip
SCOPE = {"level": "sample", "records": ["r1", "r2"]}
REQUEST = {"model": "small", "scope": SCOPE, "reason": "x", "method": "ridge-exact"}
NEW_KEY = {
    "keyid": "alice", "algorithm": "ed25519", "public_key": public_pem(KEY.public_key()),
    "role": "requester",
}  # fmt: skip


def _example(wire: type[BaseModel], *values: object) -> Target:
    name = wire.__name__.removeprefix("New").lower()
    return Target(f"body-{name}", _body(wire), _as_json(*values), (ValidationError,), JSON)


def _families() -> Sequence[bytes]:
    return _as_json(manifest(), {**manifest(), "family": "recipe"}, {"family": "script"})()


TARGETS = (
    Target("http-signature", _both, _signed_lines, (SignatureError,)),
    Target(
        "content-digest",
        _digest,
        lambda: [format_content_digest(b"a body").encode()],
        (SignatureError,),
    ),
    _example(
        NewRequest,
        {"model": "small", "scope": SCOPE},
        {"model": "small", "scope": {"level": "client", "client": "c1"}},
    ),
    _example(NewKey, NEW_KEY),
    _example(NewWebhook, {"url": "https://x.example/", "events": ["request.certified"]}),
    Target(
        "model-manifest",
        read_manifest_of_model,
        lambda: _as_json(manifest())(),
        (ValidationError,),
        JSON,
    ),
    Target(
        "drp-envelope", _opened, lambda: [b64encode(KEY.sign(b"{}") + b"{}")], (LetheError,)
    ),
    Target("drp-message", _envelope, _as_json(DRP), (LetheError, ValidationError), JSON),
    Target(
        "callback",
        _callback,
        _as_json({"type": "x", "data": {"log_index": 1}}),
        (ClientError,),
        JSON,
    ),
    Target(
        "callback-headers",
        _callback_headers,
        lambda: ["\n".join(_callback_values(b"{}")).encode()],
        (ClientError,),
        (as_lines, plain),
    ),
    Target(
        "event-stream",
        _stream,
        lambda: [b'id: 3\nevent: history\ndata: {"a": [1]}\n\n'],
        (ClientError,),
        (as_lines, plain),
    ),
    Target("answer-receipt", _answer(parse_receipt), _as_json(RECEIPT), (ClientError,), JSON),
    Target("answer-status", _answer(parse_status), _as_json(STATUS), (ClientError,), JSON),
    Target(
        "answer-page",
        _answer(parse_page),
        _as_json({"items": [{"a": 1}], "next": None}),
        (ClientError,),
        JSON,
    ),
    Target(
        "answer-problem",
        _problem,
        _as_json({"type": "urn:x", "title": "t", "status": 409, "detail": "d"}),
        (ClientError,),
        JSON,
    ),
    Target("drop-lists", _drop, _drop_seeds, (DropError,), (as_zip, as_zip, plain)),
    Target("backup-manifest", _backup, _as_json(BACKUP), (BackupError,), JSON),
    Target("backup-followed", _followed, _as_json(FOLLOWED), (BackupError,), JSON),
    Target("backup-rows", _rows, _dumped, (ValueError,), (as_json_lines, as_lines, plain)),
    Target(
        "list-cursor",
        text(parse_cursor),
        lambda: [format_cursor(NOW, REF).encode()],
        (LetheError, UTF8),
    ),
    Target("number-cursor", text(parse_number), lambda: [b"12"], (LetheError, UTF8)),
    Target(
        "callback-url",
        text(lambda url: parse_target(Allowed((), ()), url)),
        lambda: [b"https://x.example:8443/a?b=c"],
        (LetheError, UTF8),
    ),
    Target("intake-form", _intake_form, lambda: [b"a=1&b=%C3%A9&c=+x"], (LetheError,)),
    Target(
        "case-code",
        text(lambda code: read_case_code(MASTER, code)),
        lambda: [case_code(MASTER, REF).encode()],
        (LetheError, UTF8),
    ),
    Target(
        "identity",
        text(identity.parse),
        lambda: [
            b"email=Ann@Example.ORG",
            f"email:sha256={'ab' * 32}".encode(),
            b"phone=0049 (30) 1-2",
        ],
        (identity.IdentityError, UTF8),
    ),
)
