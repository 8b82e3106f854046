"""Both clients against the same service: every call, every fault, the same results."""

import asyncio
import inspect
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, get_origin

import httpx2
import pytest

from lethe.client import (
    AsyncClient,
    ChangedFileError,
    Client,
    CredentialsError,
    ProblemError,
    ReceiptError,
    RetryPolicy,
    ScopeError,
    UnreachableError,
    calls,
)
from lethe.client.answers import Receipt, RequestStatus, RequestSummary
from lethe.client.core import Core
from lethe.client.operations import Operations
from lethe.log.note import NoteVerifier
from lethe.signing.errors import SignatureError
from lethe.signing.keys import fingerprint, generate_key, public_of
from tests.lethe.client.service import SIGNER, TOKEN, Answer, FakeService, Lost, problem, serve
from tests.lethe.client.test_receipts import STRANGER
from tests.lethe.signing.signer import ED25519, P256

QUICK = RetryPolicy(tries=3, first_s=0.001, longest_s=0.01)
Do = Callable[..., Any]


def make_do(kind: type[Client] | type[AsyncClient], service: FakeService, **options: Any) -> Do:
    """Return a function that makes one call by name, blocking, lists collected."""
    arguments: dict[str, Any] = {
        "keyid": "k1",
        "private_key": ED25519,
        "token": TOKEN,
        "log": SIGNER.verifier,
        "retry": QUICK,
        "transport": httpx2.MockTransport(service.respond),
    } | options

    def do_sync(name: str, *args: Any, **kwargs: Any) -> Any:
        with Client(service.base, **arguments) as client:
            result = getattr(client, name)(*args, **kwargs)
            return list(result) if isinstance(result, Iterator) else result

    def do_async(name: str, *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            async with AsyncClient(service.base, **arguments) as client:
                result = getattr(client, name)(*args, **kwargs)
                if isinstance(result, AsyncIterator):
                    return [item async for item in result]
                return await result

        return asyncio.run(run())

    return do_sync if kind is Client else do_async


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    service.keys = {"k1": public_of(ED25519), "k2": public_of(P256)}
    return service


@pytest.fixture(params=[Client, AsyncClient])
def kind(request: pytest.FixtureRequest) -> type[Client] | type[AsyncClient]:
    chosen: type[Client] | type[AsyncClient] = request.param
    return chosen


@pytest.fixture
def do(kind: type[Client] | type[AsyncClient], service: FakeService) -> Do:
    return make_do(kind, service)


def test_both_have_the_same_calls() -> None:
    def signatures(kind: type) -> dict[str, list[str]]:
        return {
            name: [str(p).split(" =")[0] for p in inspect.signature(f).parameters.values()]
            for name, f in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert signatures(Client) == signatures(AsyncClient)
    written = {name for name in vars(Operations) if not name.startswith("_")}
    assert written == signatures(Client).keys() - {
        "close",
        "events",
    }  # a stream is no conversation


def test_help_shows_what_a_call_takes_and_returns() -> None:
    for name in (name for name in vars(Operations) if not name.startswith("_")):
        blocking, awaited = getattr(Client, name), getattr(AsyncClient, name)
        assert blocking.__doc__ == awaited.__doc__ == getattr(Operations, name).__doc__
        listed = not inspect.iscoroutinefunction(awaited)
        for method, kind in ((blocking, Iterator), (awaited, AsyncIterator)):
            returns = inspect.signature(method).return_annotation
            assert (get_origin(returns) is kind) == listed
    assert inspect.signature(Client.status).return_annotation is RequestStatus
    assert (
        inspect.signature(AsyncClient.requests).return_annotation
        == (AsyncIterator[RequestSummary])
    )


# --- requests -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("named", "scope"),
    [
        ({"records": ["r1", "é"]}, {"level": "sample", "records": ["r1", "é"]}),
        ({"client": "c1"}, {"level": "client", "client": "c1"}),
        ({"subject": "s1"}, {"level": "subject", "subject": "s1"}),
    ],
    ids=["records", "client", "subject"],
)
def test_a_submission_says_what_was_meant(
    do: Do, service: FakeService, named: dict[str, Any], scope: dict[str, Any]
) -> None:
    receipt = do("submit_erasure", "digits", **named, method="ridge-exact", regulation="ccpa")
    assert isinstance(receipt, Receipt)
    assert service.requests[receipt.id].ref == receipt.ref
    assert service.requests[receipt.id].document == {
        "model": "digits",
        "scope": scope,
        "method": "ridge-exact",
        "regulation": "ccpa",
    }
    assert service.signed[0].keyid == "k1"


def test_an_ecdsa_key_signs_too(
    kind: type[Client] | type[AsyncClient], service: FakeService
) -> None:
    do = make_do(kind, service, keyid="k2", private_key=P256)
    do("submit_erasure", "digits", client="c")
    assert service.signed[0].keyid == "k2"


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"records": []},
        {"records": "r1"},
        {"records": ["r1"], "client": "c"},
        {"client": "c", "subject": "s"},
    ],
    ids=["nothing", "no record", "a string", "records and client", "client and subject"],
)
def test_an_unclear_scope_is_never_sent(
    do: Do, service: FakeService, named: dict[str, Any]
) -> None:
    with pytest.raises(ScopeError):
        do("submit_erasure", "digits", **named)
    assert service.seen == []


FAULTS = [
    ("lost before", Lost(handled=False)),
    ("lost after", Lost(handled=True)),
    ("refused connection", Lost(handled=False, error=httpx2.ConnectError)),
    ("timeout, handled", Lost(handled=True, error=httpx2.ReadTimeout)),
    ("unavailable", Answer(503)),
    ("too many", Answer(429, headers={"retry-after": "0"})),
    ("bad gateway", Answer(502, b"<h1>nginx</h1>")),
]


@pytest.mark.parametrize("fault", [f for _, f in FAULTS], ids=[n for n, _ in FAULTS])
def test_a_fault_neither_loses_nor_doubles_a_submission(
    do: Do, service: FakeService, fault: Answer | Lost
) -> None:
    service.faults = deque([fault, fault])
    receipt = do("submit_erasure", "digits", client="c")
    assert list(service.requests) == [receipt.id]
    # Handled twice or once, always under a signature of its own.
    assert len({signed.nonce for signed in service.signed}) == len(service.signed)


def test_the_callers_own_idempotency_key_repeats_across_clients(
    do: Do, service: FakeService
) -> None:
    first = do("submit_erasure", "digits", client="c", idempotency_key="order-1")
    again = do("submit_erasure", "digits", client="c", idempotency_key="order-1")
    assert first == again
    assert len(service.requests) == 1
    with pytest.raises(ProblemError) as error:
        do("submit_erasure", "digits", client="d", idempotency_key="order-1")
    assert (error.value.status, error.value.slug) == (422, "idempotency-key-reused")


def test_a_service_that_stays_away_is_named(do: Do, service: FakeService) -> None:
    service.faults = deque([Lost(handled=False)] * 3)
    with pytest.raises(UnreachableError, match="3 tries"):
        do("submit_erasure", "digits", client="c")


def test_a_refusal_carries_the_services_words(do: Do, service: FakeService) -> None:
    service.faults = deque([problem(409, "already-erased", "see the first", request="0190")])
    with pytest.raises(ProblemError) as error:
        do("submit_erasure", "digits", client="c")
    assert (error.value.slug, error.value.detail) == ("already-erased", "see the first")
    assert error.value.members == {"request": "0190"}
    assert len(service.seen) == 0


def test_an_unregistered_key_is_refused(
    kind: type[Client] | type[AsyncClient], service: FakeService
) -> None:
    do = make_do(kind, service, keyid="nobody")
    with pytest.raises(ProblemError) as error:
        do("submit_erasure", "digits", client="c")
    assert (error.value.status, error.value.slug) == (401, "key-unknown")


@pytest.mark.parametrize(
    ("log", "accepted"),
    [(SIGNER.verifier, True), (None, True), (STRANGER.verifier, False)],
    ids=["the log's key", "no key", "another key"],
)
def test_the_receipt_is_verified_if_the_logs_key_is_known(
    kind: type[Client] | type[AsyncClient],
    service: FakeService,
    log: NoteVerifier | None,
    accepted: bool,
) -> None:
    do = make_do(kind, service, log=log)
    if accepted:
        do("submit_erasure", "digits", client="c")
    else:
        with pytest.raises(ReceiptError):
            do("submit_erasure", "digits", client="c")


def test_a_request_is_followed_to_its_certificate(do: Do, service: FakeService) -> None:
    receipt = do("submit_erasure", "digits", records=["r1"])
    states: list[str] = []
    status = do("wait", receipt.id, 30.0, lambda shown: states.append(shown.state))
    assert isinstance(status, RequestStatus)
    assert states == ["received", "executing", "verifying", "certified"]
    assert status.certificate == f"/v1/requests/{receipt.id}/certificate"
    assert status.history[-1].event == "request.certified"
    assert do("certificate", receipt.id) == b"the certificate"
    assert do("evidence", receipt.id) == b"the evidence"
    # Whoever holds the id may follow it: nothing of it is signed.
    assert all(
        seen.method == "POST" or "signature" not in seen.headers for seen in service.seen
    )


def test_a_preview_is_signed_and_no_request(do: Do, service: FakeService) -> None:
    preview = do("preview_erasure", "digits", client="c", method="hf-kcu")
    assert (preview.method, preview.records, preview.certifiable) == ("hf-kcu", 1, True)
    assert len(service.signed) == 1
    assert not service.requests


def test_a_withdrawal_is_signed(do: Do, service: FakeService) -> None:
    receipt = do("submit_erasure", "digits", client="c")
    assert do("withdraw", receipt.id).state == "withdrawn"
    assert len(service.signed) == 2
    assert do("status", receipt.id).state == "withdrawn"


def test_an_id_cannot_leave_its_place_in_the_path(do: Do, service: FakeService) -> None:
    with pytest.raises(ProblemError):
        do("status", "../models?x=1#y")
    assert service.seen[0].target == f"{service.base}/v1/requests/..%2Fmodels%3Fx%3D1%23y"


def test_a_contribution_is_signed_as_it_is(do: Do, service: FakeService) -> None:
    assert do("contribute", "digits", b"PK\x03\x04npz")["id"] == "c1"
    assert service.contributions == [b"PK\x03\x04npz"]
    assert service.seen[0].target.endswith("/v1/models/digits/contributions")


def test_the_wish_to_add_back_is_signed_with_the_rest(do: Do, service: FakeService) -> None:
    assert do("contribute", "digits", b"PK\x03\x04npz", add_back=True)["id"] == "c1"
    assert service.seen[0].target.endswith("/v1/models/digits/contributions?add_back=true")
    assert "@target-uri" in service.signed[0].covered


# --- operators ----------------------------------------------------------------------------
def test_a_key_is_registered_used_and_revoked(
    kind: type[Client] | type[AsyncClient], do: Do, service: FakeService
) -> None:
    key = generate_key("ecdsa-p256-sha256")
    keyid = do("register_key", key, "client", client="c7")
    assert keyid == fingerprint(key)
    assert sorted(service.registered[0]) == [
        "algorithm",
        "client",
        "keyid",
        "public_key",
        "role",
    ]
    assert do("confirm_key", keyid, key)["confirmed_by"] == "dpo"
    assert b"PRIVATE" not in service.seen[-1].body
    owner = make_do(kind, service, keyid=keyid, private_key=key)
    owner("submit_erasure", "digits", client="c7")
    do("revoke_key", keyid)
    with pytest.raises(ProblemError):
        owner("submit_erasure", "digits", client="c7")


def test_only_the_public_half_is_sent(do: Do, service: FakeService) -> None:
    do("register_key", ED25519, keyid="k9", subject="s")
    assert b"PRIVATE" not in service.seen[0].body
    assert service.registered[0]["subject"] == "s"
    assert service.registered[0]["keyid"] == "k9"


def test_a_model_is_registered_in_two_parts(do: Do, service: FakeService) -> None:
    manifest = {"ref": "digits", "classes": ["0", "é"], "penalty": 0.5}
    data = b"PK\x03\x04\r\n--boundary\r\n"
    assert do("register_model", manifest, data) == manifest
    assert service.models == [(manifest, data)]


def test_a_model_is_registered_the_same_again_after_a_fault(
    do: Do, service: FakeService
) -> None:
    service.faults = deque([Lost(handled=True)])
    do("register_model", {"ref": "digits"}, b"data")
    first, second = service.seen
    assert first.body == second.body
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_lists_are_read_page_by_page(do: Do, service: FakeService) -> None:
    assert [item["ref"] for item in do("models")] == ["m0", "m1", "m2", "m3", "m4"]
    assert len(service.seen) == 3
    assert [item["number"] for item in do("versions", "digits")] == [0, 1, 2]
    assert do("model", "digits") == {"ref": "digits"}
    assert do("artifact", "digits", 2) == b"digits 2"


def test_requests_are_listed_and_filtered(do: Do, service: FakeService) -> None:
    service.states = ("certified",)
    done = [do("submit_erasure", "digits", client=f"c{n}").id for n in range(3)]
    service.states = ("received",)
    open_ = do("submit_erasure", "digits", client="c3").id
    assert [item.id for item in do("requests")] == [*done, open_]
    assert [item.id for item in do("requests", state="certified")] == done
    do("requests", overdue=True, model="digits", page_size=7)
    assert service.seen[-1].target.endswith("?model=digits&overdue=true&limit=7&after=2")


def test_a_call_without_its_credentials_is_never_sent(
    kind: type[Client] | type[AsyncClient], service: FakeService
) -> None:
    do = make_do(kind, service, keyid=None, private_key=None, token=None)
    with pytest.raises(CredentialsError, match="private key"):
        do("submit_erasure", "digits", client="c")
    for name, arguments in (("models", ()), ("revoke_key", ("k",))):
        with pytest.raises(CredentialsError, match="token"):
            do(name, *arguments)
    assert service.seen == []


def test_a_keyid_that_no_service_accepts_is_refused_before_sending(
    kind: type[Client] | type[AsyncClient], service: FakeService
) -> None:
    do = make_do(kind, service, keyid="with space")
    with pytest.raises(SignatureError):
        do("submit_erasure", "digits", client="c")
    assert service.seen == []


def test_over_a_real_connection(
    kind: type[Client] | type[AsyncClient], service: FakeService
) -> None:
    with serve(service):
        do = make_do(kind, service, transport=None)
        service.faults = deque([Lost(handled=True), Lost(handled=False)])
        receipt = do("submit_erasure", "digits", records=["r1"])
        assert do("wait", receipt.id, 30.0).state == "certified"
        assert do("register_model", {"ref": "digits"}, b"data") == {"ref": "digits"}
        assert do("withdraw", receipt.id).state == "withdrawn"
    assert list(service.requests) == [receipt.id]


def test_a_file_is_sent_as_its_bytes_are(
    kind: type[Client] | type[AsyncClient], service: FakeService, tmp_path: Path
) -> None:
    path = tmp_path / "rows.npz"
    with serve(service):
        do = make_do(kind, service, transport=None)
        for size in (0, 1, (1 << 18) - 1, 1 << 18, (1 << 20) + 7):
            path.write_bytes(content := bytes(range(256)) * (size // 256) + b"\r\n-" * size)
            service.faults = deque([Lost(handled=False)])  # each try reads it anew
            assert do("register_model", {"ref": "digits"}, path) == {"ref": "digits"}
            assert service.models[-1] == ({"ref": "digits"}, content)
    with pytest.raises(FileNotFoundError):
        do("register_model", {"ref": "digits"}, tmp_path / "none.npz")


@pytest.mark.parametrize("change", [b"", b"longer than it was"])
def test_a_file_that_changes_on_its_way_is_named(
    service: FakeService, tmp_path: Path, change: bytes
) -> None:
    path = tmp_path / "rows.npz"
    path.write_bytes(b"content")
    form = calls.register_model({"ref": "digits"}, path)
    path.write_bytes(change)
    core = Core(service.base, None, None, TOKEN, None, QUICK)
    with pytest.raises(ChangedFileError, match=r"rows\.npz changed"):
        core.build(form).read()


def test_a_file_is_never_in_memory_as_a_whole(service: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    with path.open("wb") as file:
        file.truncate(32 << 20)
    core = Core(service.base, None, None, TOKEN, None, QUICK)
    tracemalloc.start()
    try:
        stream = core.build(calls.register_model({"ref": "digits"}, path)).stream
        assert isinstance(stream, httpx2.SyncByteStream)
        sent = sum(map(len, stream))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent > 32 << 20
    assert peak < 4 << 20


def test_whoever_waits_is_told_how_much_of_a_body_is_sent(service: FakeService) -> None:
    told: list[tuple[int, int]] = []
    body = bytes(range(256)) * 4096  # a mebibyte
    with serve(service):
        do = make_do(
            Client, service, transport=None, on_sent=lambda *how_far: told.append(how_far)
        )
        assert do("contribute", "digits", body)["id"] == "c1"  # signed over the whole body
        assert service.contributions == [body]
        assert told == [(done, 1 << 20) for done in range(1 << 18, (1 << 20) + 1, 1 << 18)]
        told.clear()
        service.faults = deque([Lost(handled=False)])
        do("register_model", {"ref": "digits"}, body)
        assert service.models[-1] == ({"ref": "digits"}, body)
        totals = {total for _, total in told}
        assert len(totals) == 1
        assert [done for done, total in told if done == total] == [*totals] * 2  # two tries
        told.clear()
        do("contribute", "digits", b"small")
        assert told == []
