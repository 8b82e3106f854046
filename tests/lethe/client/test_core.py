"""Conversations played by hand: no socket, no clock, no pause."""

import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from lethe.client import calls
from lethe.client.calls import Call
from lethe.client.core import Conversation, Core
from lethe.client.errors import (
    AnswerError,
    CredentialsError,
    ProblemError,
    UnreachableError,
)
from lethe.client.operations import Operations
from lethe.client.retry import RetryPolicy
from lethe.identity import Identity
from lethe.signing.http import sign_request
from tests.lethe.client.service import BASE
from tests.lethe.client.stage import LOST, Stage, answer
from tests.lethe.signing.signer import ED25519

GET = Call("GET", "/v1/requests/1")
SUBMIT = calls.submit("digits", {"level": "client", "client": "c"}, None, "gdpr", None)


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("slow"),
        httpx2.RemoteProtocolError("cut off"),
        httpx2.WriteError("reset"),
        httpx2.ProxyError("proxy"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_lost_connection_is_tried_again(error: Exception) -> None:
    stage = Stage(error, answer(200))
    assert stage.play(stage.operations().exchange(GET)).status_code == 200
    assert stage.pauses == [1.0]


def test_tries_are_bounded_and_pauses_double() -> None:
    stage = Stage(LOST, LOST, LOST, LOST)
    with pytest.raises(UnreachableError, match=r"after 4 tries \(ReadError\): check --url"):
        stage.play(stage.operations(tries=4).exchange(GET))
    assert stage.pauses == [1.0, 2.0, 4.0]


def _chained(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


REFUSED = _chained(httpx2.ConnectError("x"), _chained(OSError("y"), ConnectionRefusedError()))
CAUSES = [
    (REFUSED, "connection refused"),
    (_chained(httpx2.ConnectError("x"), socket.gaierror()), "the host's name is not known"),
    (_chained(httpx2.ConnectError("x"), ssl.SSLError()), "TLS failed"),
    (httpx2.ReadTimeout("r-1041"), "timed out"),
    (httpx2.DecodingError("r-1041"), "DecodingError"),
]


@pytest.mark.parametrize(("error", "words"), CAUSES, ids=[words for _, words in CAUSES])
def test_no_answer_names_host_port_and_cause_and_no_more(error: Exception, words: str) -> None:
    core = Core("https://me:secret@x.test:81/tenant", None, None, None, None, RetryPolicy(1))
    with pytest.raises(UnreachableError) as raised:
        Stage(error).play(core.exchange(calls.request("0190-a-capability")))
    assert raised.value.detail == (
        f"no answer from https://x.test:81 after 1 tried ({words}): "
        "check --url, and that the service runs"
    )


def test_the_last_refusal_is_what_the_caller_sees() -> None:
    stage = Stage(answer(503), LOST, answer(502))
    with pytest.raises(ProblemError) as error:
        stage.play(stage.operations().exchange(GET))
    assert error.value.status == 502


def test_too_many_requests_waits_as_long_as_told() -> None:
    stage = Stage(answer(429, retry_after="5"), answer(200))
    stage.play(stage.operations().exchange(GET))
    assert stage.pauses == [5.0]


@pytest.mark.parametrize("status", [301, 400, 401, 404, 409, 422, 429, 500])
def test_other_refusals_are_final(status: int) -> None:
    stage = Stage(answer(status))
    with pytest.raises(ProblemError) as error:
        stage.play(stage.operations().exchange(GET))
    assert error.value.status == status
    assert stage.pauses == []


def test_what_no_try_can_mend_is_not_tried_again() -> None:
    stage = Stage(httpx2.UnsupportedProtocol("gopher"))
    with pytest.raises(UnreachableError):
        stage.play(stage.operations().exchange(GET))
    assert stage.pauses == []


ONCE: list[Callable[[Operations], Conversation[Any]]] = [
    lambda core: core.open_case(Identity("email", {}), "ticket"),
    lambda core: core.add_webhook({}),
    lambda core: core.act_on_webhook("wh_1", "rotate"),
    lambda core: core.place_hold("ref", "why"),
]


@pytest.mark.parametrize("call", ONCE, ids=["case", "webhook", "secret", "hold"])
def test_what_a_second_call_would_double_is_sent_again_only_if_it_did_not_arrive(
    call: Callable[[Operations], Conversation[Any]],
) -> None:
    not_sent = httpx2.ConnectError("x"), httpx2.ConnectTimeout("x")
    stage = Stage(*not_sent, answer(429, retry_after="1"), answer(200))
    stage.play(call(stage.operations(tries=5, token="t")))
    for lost in (LOST, httpx2.ReadTimeout("x"), httpx2.RemoteProtocolError("x")):
        stage = Stage(lost, answer(200))
        with pytest.raises(UnreachableError, match="may have been done"):
            stage.play(call(stage.operations(token="t")))
    for status in (502, 503, 504):  # 503 also where it is stored, and has no checkpoint yet
        stage = Stage(answer(status, retry_after="1"), answer(200))
        with pytest.raises(ProblemError):
            stage.play(call(stage.operations(token="t")))


def test_sent_again_is_the_same_request_under_a_new_signature() -> None:
    stage = Stage(LOST, answer(503), answer(200))
    stage.play(stage.operations().exchange(SUBMIT))
    assert len({request.content for request in stage.sent}) == 1
    assert len({request.headers["idempotency-key"] for request in stage.sent}) == 1
    assert len({request.headers["signature-input"] for request in stage.sent}) == 3


def test_each_submission_has_its_own_idempotency_key() -> None:
    keys = {
        calls.submit("m", {}, None, "gdpr", None).headers["Idempotency-Key"] for _ in range(10)
    }
    assert len(keys) == 10
    named = calls.submit("m", {}, None, "gdpr", 'my "key"')
    assert named.headers["Idempotency-Key"] == r'"my \"key\""'


def test_what_is_signed_is_the_url_as_it_is_sent() -> None:
    core = Core("HTTP://LEDGER.test:80/under/", "k", ED25519, None, None, RetryPolicy())
    request = core.build(calls.withdraw("a/b c"))
    assert str(request.url) == "http://ledger.test/under/v1/requests/a%2Fb%20c"
    assert request.headers["host"] == "ledger.test"
    assert "content-length" not in request.headers
    assert "content-digest" not in request.headers
    created = request.headers["signature-input"].split("created=")[1].split(";")[0]
    nonce = request.headers["signature-input"].split('nonce="')[1].split('"')[0]
    again = sign_request(
        "DELETE",
        "http://ledger.test/under/v1/requests/a%2Fb%20c",
        {},
        b"",
        ED25519,
        "k",
        now=datetime.fromtimestamp(int(created), UTC),
        nonce=nonce,
    )
    assert request.headers["signature"] == again["Signature"]


def test_credentials_are_asked_for_before_anything_is_sent() -> None:
    core = Core(BASE, None, None, None, None, RetryPolicy())
    with pytest.raises(CredentialsError, match="private key"):
        next(core.exchange(SUBMIT))
    with pytest.raises(CredentialsError, match="token"):
        next(core.exchange(calls.revoke_key("k")))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ledger.test",
        "ftp://ledger.test",
        "http://",
        "http://h/?a=1",
        "http://h/#f",
        "http://\x00",
    ],
)
def test_an_unusable_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(UnreachableError, match="must look like"):
        Core(url, None, None, None, None, RetryPolicy())


def test_a_list_that_leads_to_itself_is_refused() -> None:
    page = {"items": [], "next": "c"}
    stage = Stage(httpx2.Response(200, json=page), httpx2.Response(200, json=page))
    core = stage.operations(token="t")
    _, following = stage.play(core.page(calls.operator_get("models")))
    assert following is not None
    assert following.query == (("after", "c"),)
    with pytest.raises(AnswerError, match="leads to itself"):
        stage.play(core.page(following))
