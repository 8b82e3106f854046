"""Uploads that end early, are refused late or fail at the commit: nothing of them is stored."""

import asyncio
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import numpy as np
import pytest
from sqlmodel import Session, select

from app import steps
from app.uploads import npz
from app.uploads.spool import CHUNK
from lethe.signing.http import new_nonce, sign_request
from models import Artifact
from tests.app.api.test_models import stored
from tests.app.api.test_requests import problem
from tests.installation import Installation
from tests.small import DIMENSION, MODEL, Caller, manifest, pack, rows

COUNT = 3 * CHUNK // (4 * DIMENSION)  # rows of several chunks


def files(installation: Installation) -> int:
    return sum(path.is_file() for path in installation.settings.data_dir.glob("artifacts/*"))


def many(**changes: Any) -> bytes:
    arrays = {
        "features": np.ones((COUNT, DIMENSION), np.float32),
        "labels": np.zeros(COUNT, np.int64),
        "clients": np.array(["c"] * COUNT),
        "records": np.arange(COUNT),
    }
    return pack({**arrays, **changes})


def register(installation: Installation, data: bytes) -> httpx2.Response:
    files = {"data": ("rows.npz", data)}
    wanted = {"manifest": json.dumps(manifest())}
    return installation.caller.operator("POST", "/v1/models", files=files, data=wanted)


def form(data: bytes) -> tuple[bytes, str]:
    parts: Any = {
        "manifest": (None, json.dumps(manifest()).encode(), "application/json"),
        "data": ("data.npz", data, "application/octet-stream"),
    }
    request = httpx2.Request("POST", "http://encoder.invalid", files=parts)
    return request.read(), request.headers["content-type"]


def test_a_bad_row_at_the_very_end_leaves_nothing(installation: Installation) -> None:
    features = np.ones((COUNT, DIMENSION), np.float32)
    features[-1, -1] = np.nan
    records = np.arange(COUNT)
    records[-1] = 0
    before = stored(installation), files(installation)
    for data in (many(features=features), many(records=records)):
        problem(register(installation, data), 422, "upload-invalid")
        assert (stored(installation), files(installation)) == before


def cut(installation: Installation, path: str, headers: dict[str, str], body: bytes) -> None:
    """Send half of a body and lose the connection."""
    halves = [
        {"type": "http.request", "body": body[start : start + 65_536], "more_body": True}
        for start in range(0, len(body) // 2, 65_536)
    ]
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return halves.pop(0) if halves else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "http",
        "server": ("testserver", 80),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(installation.caller.http.app(scope, receive, send))  # type: ignore[arg-type]
    assert not halves
    assert not any(one.get("status", 500) < 400 for one in answers)


def test_a_registration_that_is_cut_leaves_nothing(installation: Installation) -> None:
    before = stored(installation), files(installation)
    body, content_type = form(many())
    headers = {
        "host": "testserver",
        "authorization": f"Bearer {installation.caller.token}",
        "content-type": content_type,
        "content-length": str(len(body)),
    }
    cut(installation, "/v1/models", headers, body)
    assert (stored(installation), files(installation)) == before


def contributor(ready: Installation) -> Caller:
    caller = Caller(ready.caller.http, ready.caller.token, keyid="contributor")
    assert caller.register_key(role="client").status_code == 201
    return caller


PATH = f"/v1/models/{MODEL}/contributions"


def signed(caller: Caller, body: bytes) -> dict[str, str]:
    headers = {"Content-Type": "application/x-npz"}
    url = f"http://testserver{PATH}"
    return headers | sign_request(
        "POST",
        url,
        headers,
        body,
        caller.key,
        "contributor",
        now=datetime.now(UTC),
        nonce=new_nonce(),
    )


def test_a_contribution_that_is_cut_leaves_nothing(ready: Installation) -> None:
    caller, body = contributor(ready), many(records=np.arange(10**6, 10**6 + COUNT))
    before = stored(ready), files(ready)
    headers = {"host": "testserver", **signed(caller, body), "content-length": str(len(body))}
    cut(ready, PATH, headers, body)
    assert (stored(ready), files(ready)) == before


def test_nobody_reads_a_body_that_is_another_than_was_signed(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, body = contributor(ready), many(records=np.arange(10**6, 10**6 + COUNT))
    before = stored(ready), files(ready)
    monkeypatch.setattr(
        "app.api.models.parse_contribution", lambda *_: pytest.fail("the body was read")
    )
    for other in (body[:-1] + b"?", body[:-1], body + b"?"):
        headers = signed(caller, body)
        answer = caller.http.post(PATH, content=other, headers=headers)
        problem(answer, 400, "digest-mismatch")
        assert (stored(ready), files(ready)) == before


def test_a_refused_contribution_leaves_no_file(ready: Installation) -> None:
    caller, before = contributor(ready), files(ready)
    again = pack(rows(count=2))  # records that the model has
    for _ in range(2):
        headers = signed(caller, again)
        problem(caller.http.post(PATH, content=again, headers=headers), 409, "conflict")
    assert files(ready) == before


def test_a_repeated_registration_leaves_no_second_file(installation: Installation) -> None:
    assert installation.caller.register_model().status_code == 201
    before = stored(installation), files(installation)
    assert installation.caller.register_model().status_code == 201
    assert (stored(installation), files(installation)) == before


def test_a_commit_that_fails_leaves_what_the_sweep_removes(installation: Installation) -> None:
    before = stored(installation), files(installation)

    def fail(step: str) -> None:
        if step == "ledger.appended":
            raise OSError(28, "No space left on device")

    steps.install(fail)
    try:
        problem(installation.caller.register_model(), 500, "internal")
    finally:
        steps.install(None)
    assert stored(installation) == before[0]
    services = installation.services
    services.artifacts.unlink_orphans(services.engine, timedelta(seconds=-1))
    assert files(installation) == before[1]
    assert installation.caller.register_model().status_code == 201


def test_rows_are_never_whole_in_memory_nor_in_the_clear(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest, read = 0, npz.read_blocks

    def noted(*arguments: Any) -> Any:
        nonlocal largest
        for block in read(*arguments):
            largest = max(largest, block.nbytes)
            yield block

    monkeypatch.setattr(npz, "read_blocks", noted)
    assert register(installation, many()).status_code == 201
    assert 0 < largest <= npz.BLOCK
    ones = np.ones(64, np.float32).tobytes()
    for path in installation.settings.data_dir.glob("artifacts/*"):
        assert ones not in path.read_bytes()
    (upload,) = _uploads(installation)
    with np.load(io.BytesIO(upload)) as kept:
        assert kept["features"].shape == (COUNT, DIMENSION)


def _uploads(installation: Installation) -> list[bytes]:
    with Session(installation.services.engine) as session:
        found = session.exec(select(Artifact).where(Artifact.kind == "upload")).all()
        return [installation.services.artifacts.get(session, one.id) for one in found]
