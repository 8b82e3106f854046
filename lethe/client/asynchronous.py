"""The client for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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


class AsyncClient:
    """`Client` for asyncio: the same arguments, calls, results and errors."""

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
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._core = Core(base_url, keyid, private_key, token, log, retry)
        self._http = httpx2.AsyncClient(transport=transport, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def submit_erasure(
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
        return await self._run(self._core.submit(call))

    async def status(self, request_id: str) -> RequestStatus:
        """Return a request's state, deadline and history."""
        return await self._run(self._core.status(request_id))

    async def wait(
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
        return await self._run(self._core.wait(request_id, timeout, on_change, on_answer))

    async def withdraw(self, request_id: str) -> RequestStatus:
        """Withdraw a request on which no worker has begun; needs the key that signed it."""
        return await self._run(self._core.withdraw(request_id))

    async def certificate(self, request_id: str) -> bytes:
        """Return the certificate, a Sigstore bundle. Verify it: this does not."""
        call = calls.request(request_id, "/certificate", calls.BUNDLE)
        return await self._run(self._core.content(call))

    async def evidence(self, request_id: str) -> bytes:
        """Return the evidence whose digest the certificate names."""
        return await self._run(self._core.content(calls.request(request_id, "/evidence")))

    async def contribute(self, model: str, npz: bytes, *, add_back: bool = False) -> Document:
        """Add rows to a model: an .npz with features, labels, clients and records.

        An erased record is learned again only with add_back, which is signed with the rest.
        """
        return await self._object(calls.contribute(model, npz, add_back))

    async def register_key(
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
        await self._object(call)
        return chosen

    async def revoke_key(self, keyid: str) -> None:
        """Revoke a key. What it signed before stays valid."""
        await self._run(self._core.content(calls.revoke_key(keyid)))

    async def register_model(
        self, manifest: Mapping[str, Any], npz: bytes | None = None
    ) -> Document:
        """Register a model: its manifest and, unless clients keep theirs, its rows."""
        return await self._object(calls.register_model(manifest, npz))

    async def manifest(self, model: str) -> Document:
        """Return what a client computes its statistics with; signed with a client's key."""
        return await self._object(calls.manifest(model))

    async def asked(self) -> list[Document]:
        """Return the releases the signing client is asked for: records, by model."""
        page, _ = await self._run(self._core.page(calls.asked()))
        return list(page.items)

    async def answer_release(self, release: str, npz: bytes) -> Document:
        """Send the statistics of exactly the records that a release asks for."""
        return await self._object(calls.answer_release(release, npz))

    async def drop_release(self, release: str) -> Document:
        """Decide to remove all that a silent client sent for the subject; needs a token."""
        return await self._object(calls.drop_release(release))

    async def decide(self, request_id: str, decision: str, why: str) -> Document:
        """Decide on a request in state needs-decision: retry or abandon; needs a token."""
        return await self._object(calls.decide(request_id, decision, why))

    async def start_audit(self, wanted: Mapping[str, Any]) -> Document:
        """Start an audit of a network's method: the fields of NewAudit; needs a token."""
        return await self._object(calls.start_audit(wanted))

    async def stop_audit(self, audit_id: str) -> Document:
        """End an audit and its schedule; needs an operator's token."""
        return await self._object(calls.stop_audit(audit_id))

    def audits(self) -> AsyncIterator[Document]:
        """Iterate over all audits."""
        return self._items(calls.operator_get("audits"))

    async def audit(self, audit_id: str) -> Document:
        """Return one audit."""
        return await self._object(calls.operator_get("audits", audit_id))

    async def audit_file(self, audit_id: str, part: str) -> bytes:
        """Return an audit's "report" or its "statistics"."""
        call = calls.operator_get("audits", audit_id, part, accept="*/*")
        return await self._run(self._core.content(call))

    def models(self) -> AsyncIterator[Document]:
        """Iterate over all models."""
        return self._items(calls.operator_get("models"))

    async def model(self, ref: str) -> Document:
        """Return one model."""
        return await self._object(calls.operator_get("models", ref))

    def releases(self) -> AsyncIterator[Document]:
        """Iterate over what clients are asked and have not sent; needs an operator's token."""
        return self._items(calls.operator_get("releases"))

    def versions(self, ref: str) -> AsyncIterator[Document]:
        """Iterate over a model's versions, oldest first."""
        return self._items(calls.operator_get("models", ref, "versions"))

    async def artifact(self, ref: str, number: int) -> bytes:
        """Return a version's head as safetensors."""
        path = ("models", ref, "versions", str(number), "artifact")
        return await self._run(self._core.content(calls.operator_get(*path, accept="*/*")))

    async def requests(
        self,
        *,
        state: str | None = None,
        model: str | None = None,
        method: str | None = None,
        overdue: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[RequestSummary]:
        """Iterate over requests, oldest first; since and until bound their reception."""
        call = calls.list_requests(state, model, method, overdue, since, until, page_size)
        async for document in self._items(call):
            yield parse_summary(document)

    async def _object(self, call: Call) -> Document:
        return parse_object(await self._run(self._core.exchange(call)))

    async def _items(self, call: Call) -> AsyncIterator[Document]:
        following: Call | None = call
        while following is not None:
            page, following = await self._run(self._core.page(following))
            for item in page.items:
                yield item

    async def _run(self, conversation: Conversation[T]) -> T:
        try:
            step = next(conversation)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = conversation.send(None)
                    continue
                try:
                    response = await self._send(step)
                except (httpx2.HTTPError, AnswerError) as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(response)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send(self, step: Send) -> httpx2.Response:
        response = await self._http.send(step.request, stream=True)
        try:
            reader = step.reader(response)
            async for chunk in response.aiter_bytes():
                reader.add(chunk)
            return reader.whole()
        finally:
            await response.aclose()
