"""The client for ordinary code."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

from lethe.client import calls
from lethe.client.answers import (
    Document,
    Receipt,
    RequestStatus,
    RequestSummary,
    parse_object,
    parse_summary,
)
from lethe.client.calls import Call
from lethe.client.core import Conversation, Core, Pause, Send
from lethe.client.errors import AnswerError
from lethe.client.retry import RetryPolicy
from lethe.log.note import NoteVerifier
from lethe.signing.keys import PrivateKey, PublicKey

T = TypeVar("T")


class Client:
    """Calls a Lethe service: signs, sends, sends again after a failure, verifies.

    keyid and private_key sign erasure requests and contributions; token is an operator's
    bearer token; log is the log's verifier key, with which receipts are verified before they
    are returned. Each is needed only by the calls that use it. timeout is in seconds, for
    each attempt.

    Every method may raise ProblemError (the service refused), UnreachableError (no answer),
    AnswerError (an unreadable one) and CredentialsError (a key or token is missing).
    """

    def __init__(
        self,
        base_url: str,
        keyid: str | None = None,
        private_key: PrivateKey | None = None,
        *,
        token: str | None = None,
        log: NoteVerifier | None = None,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008, frozen
        timeout: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._core = Core(base_url, keyid, private_key, token, log, retry)
        self._http = httpx2.Client(transport=transport, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit_erasure(
        self,
        model: str,
        *,
        records: Sequence[str] | None = None,
        client: str | None = None,
        subject: str | None = None,
        method: str | None = None,
        regulation: str = "gdpr",
        idempotency_key: str | None = None,
    ) -> Receipt:
        """Ask for the erasure of exactly one of records, a client or a subject.

        Once this returns the request is durable. To send again after a crash of the caller,
        without asking twice, choose the idempotency_key and keep it.

        Raises:
            ScopeError: Not exactly one of the three is given.
            ReceiptError: The receipt does not prove that `log` holds the request.
        """
        scope = calls.scope_of(records, client, subject)
        call = calls.submit(model, scope, method, regulation, idempotency_key)
        return self._run(self._core.submit(call))

    def status(self, request_id: str) -> RequestStatus:
        """Return a request's state, deadline and history."""
        return self._run(self._core.status(request_id))

    def wait(
        self,
        request_id: str,
        timeout: float | None = None,
        on_change: Callable[[RequestStatus], object] | None = None,
        on_answer: Callable[[RequestStatus], object] | None = None,
    ) -> RequestStatus:
        """Return once the request is certified, refused, withdrawn or failed.

        on_change is called with the first state seen and with each new one, on_answer with
        every answer: its progress may be new where its state is not. timeout is in
        seconds; None waits for ever, as the law's month may require.

        Raises:
            WaitTimeoutError: The time is over. The request goes on.
        """
        return self._run(self._core.wait(request_id, timeout, on_change, on_answer))

    def withdraw(self, request_id: str) -> RequestStatus:
        """Withdraw a request on which no worker has begun; needs the key that signed it."""
        return self._run(self._core.withdraw(request_id))

    def certificate(self, request_id: str) -> bytes:
        """Return the certificate, a Sigstore bundle. Verify it: this does not."""
        call = calls.request(request_id, "/certificate", calls.BUNDLE)
        return self._run(self._core.content(call))

    def evidence(self, request_id: str) -> bytes:
        """Return the evidence whose digest the certificate names."""
        return self._run(self._core.content(calls.request(request_id, "/evidence")))

    def contribute(self, model: str, npz: bytes, *, add_back: bool = False) -> Document:
        """Add rows to a model: an .npz with features, labels, clients and records.

        An erased record is learned again only with add_back, which is signed with the rest.
        """
        return self._object(calls.contribute(model, npz, add_back))

    def register_key(
        self,
        key: PublicKey | PrivateKey,
        role: str = "requester",
        *,
        keyid: str | None = None,
        client: str | None = None,
        subject: str | None = None,
    ) -> str:
        """Register the public half of a key and return its keyid (default: fingerprint).

        client or subject narrows what the key may erase.
        """
        chosen, call = calls.register_key(key, role, keyid, client, subject)
        self._object(call)
        return chosen

    def revoke_key(self, keyid: str) -> None:
        """Revoke a key. What it signed before stays valid."""
        self._run(self._core.content(calls.revoke_key(keyid)))

    def register_model(self, manifest: Mapping[str, Any], npz: bytes | None = None) -> Document:
        """Register a model: its manifest and, unless clients keep theirs, its rows."""
        return self._object(calls.register_model(manifest, npz))

    def manifest(self, model: str) -> Document:
        """Return what a client computes its statistics with; signed with a client's key."""
        return self._object(calls.manifest(model))

    def asked(self) -> list[Document]:
        """Return the releases the signing client is asked for: records, by model."""
        page, _ = self._run(self._core.page(calls.asked()))
        return list(page.items)

    def answer_release(self, release: str, npz: bytes) -> Document:
        """Send the statistics of exactly the records that a release asks for."""
        return self._object(calls.answer_release(release, npz))

    def drop_release(self, release: str) -> Document:
        """Decide to remove all that a silent client sent for the subject; needs a token."""
        return self._object(calls.drop_release(release))

    def decide(self, request_id: str, decision: str, why: str) -> Document:
        """Decide on a request in state needs-decision: retry or abandon; needs a token."""
        return self._object(calls.decide(request_id, decision, why))

    def start_audit(self, wanted: Mapping[str, Any]) -> Document:
        """Start an audit of a network's method: the fields of NewAudit; needs a token."""
        return self._object(calls.start_audit(wanted))

    def stop_audit(self, audit_id: str) -> Document:
        """End an audit and its schedule; needs an operator's token."""
        return self._object(calls.stop_audit(audit_id))

    def audits(self) -> Iterator[Document]:
        """Iterate over all audits."""
        return self._items(calls.operator_get("audits"))

    def audit(self, audit_id: str) -> Document:
        """Return one audit."""
        return self._object(calls.operator_get("audits", audit_id))

    def audit_file(self, audit_id: str, part: str) -> bytes:
        """Return an audit's "report" or its "statistics"."""
        call = calls.operator_get("audits", audit_id, part, accept="*/*")
        return self._run(self._core.content(call))

    def models(self) -> Iterator[Document]:
        """Iterate over all models."""
        return self._items(calls.operator_get("models"))

    def model(self, ref: str) -> Document:
        """Return one model."""
        return self._object(calls.operator_get("models", ref))

    def releases(self) -> Iterator[Document]:
        """Iterate over what clients are asked and have not sent; needs an operator's token."""
        return self._items(calls.operator_get("releases"))

    def versions(self, ref: str) -> Iterator[Document]:
        """Iterate over a model's versions, oldest first."""
        return self._items(calls.operator_get("models", ref, "versions"))

    def artifact(self, ref: str, number: int) -> bytes:
        """Return a version's head as safetensors."""
        path = ("models", ref, "versions", str(number), "artifact")
        return self._run(self._core.content(calls.operator_get(*path, accept="*/*")))

    def requests(
        self,
        *,
        state: str | None = None,
        model: str | None = None,
        method: str | None = None,
        overdue: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 100,
    ) -> Iterator[RequestSummary]:
        """Iterate over requests, oldest first; since and until bound their reception."""
        call = calls.list_requests(state, model, method, overdue, since, until, page_size)
        for document in self._items(call):
            yield parse_summary(document)

    def _object(self, call: Call) -> Document:
        return parse_object(self._run(self._core.exchange(call)))

    def _items(self, call: Call) -> Iterator[Document]:
        following: Call | None = call
        while following is not None:
            page, following = self._run(self._core.page(following))
            yield from page.items

    def _run(self, conversation: Conversation[T]) -> T:
        try:
            step = next(conversation)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = conversation.send(None)
                    continue
                try:
                    response = self._send(step)
                except (httpx2.HTTPError, AnswerError) as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(response)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, step: Send) -> httpx2.Response:
        response = self._http.send(step.request, stream=True)
        try:
            reader = step.reader(response)
            for chunk in response.iter_bytes():
                reader.add(chunk)
            return reader.whole()
        finally:
            response.close()
