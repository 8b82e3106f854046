"""The client for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from lethe.client import calls
from lethe.client.answers import parse_problem
from lethe.client.calls import ANSWER, Call
from lethe.client.core import Conversation, Pause, Send, check_coding
from lethe.client.errors import AnswerError
from lethe.client.events import EventParser, StreamEvent
from lethe.client.operations import Listing, Operations, named_after
from lethe.client.retry import RetryPolicy
from lethe.log.note import NoteVerifier
from lethe.signing.keys import PrivateKey
from lethe.tls import trusted

P = ParamSpec("P")
T = TypeVar("T")


def _call(
    operation: Callable[Concatenate[Operations, P], Conversation[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    """Return the method of `AsyncClient` that runs the operation's conversation."""

    async def call(client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._run(operation(client._operations, *args, **kwargs))

    return named_after(call, operation)


def _list(
    operation: Callable[Concatenate[Operations, P], Listing[T]],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[T]]:
    """Return the method of `AsyncClient` that iterates over the operation's list."""

    def items(client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return client._listed(operation(client._operations, *args, **kwargs))

    return named_after(items, operation, AsyncIterator)


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
        self._operations = Operations(base_url, keyid, private_key, token, log, retry)
        self._http = httpx2.AsyncClient(verify=trusted(), transport=transport, timeout=timeout)

    submit_erasure = _call(Operations.submit_erasure)
    preview_erasure = _call(Operations.preview_erasure)
    status = _call(Operations.status)
    wait = _call(Operations.wait)
    withdraw = _call(Operations.withdraw)
    certificate = _call(Operations.certificate)
    evidence = _call(Operations.evidence)
    contribute = _call(Operations.contribute)
    register_key = _call(Operations.register_key)
    confirm_key = _call(Operations.confirm_key)
    revoke_key = _call(Operations.revoke_key)
    register_model = _call(Operations.register_model)
    manifest = _call(Operations.manifest)
    asked = _call(Operations.asked)
    answer_release = _call(Operations.answer_release)
    drop_release = _call(Operations.drop_release)
    decide = _call(Operations.decide)
    start_audit = _call(Operations.start_audit)
    stop_audit = _call(Operations.stop_audit)
    audits = _list(Operations.audits)
    audit = _call(Operations.audit)
    audit_file = _call(Operations.audit_file)
    period_report = _call(Operations.period_report)
    find_person = _call(Operations.find_person)
    import_people = _call(Operations.import_people)
    remove_held_out = _call(Operations.remove_held_out)
    open_case = _call(Operations.open_case)
    case = _call(Operations.case)
    case_summary = _call(Operations.case_summary)
    open_contact = _call(Operations.open_contact)
    close_case = _call(Operations.close_case)
    search_cases = _call(Operations.search_cases)
    decide_case = _call(Operations.decide_case)
    keys = _list(Operations.keys)
    models = _list(Operations.models)
    model = _call(Operations.model)
    delete_model = _call(Operations.delete_model)
    mend_model = _call(Operations.mend_model)
    add_webhook = _call(Operations.add_webhook)
    webhooks = _list(Operations.webhooks)
    webhook = _call(Operations.webhook)
    deliveries = _list(Operations.deliveries)
    act_on_webhook = _call(Operations.act_on_webhook)
    replay_webhook = _call(Operations.replay_webhook)
    remove_webhook = _call(Operations.remove_webhook)
    place_hold = _call(Operations.place_hold)
    holds = _list(Operations.holds)
    release_hold = _call(Operations.release_hold)
    callback_key = _call(Operations.callback_key)
    callbacks = _list(Operations.callbacks)
    callback_deliveries = _list(Operations.callback_deliveries)
    replay_callback = _call(Operations.replay_callback)
    remove_callback = _call(Operations.remove_callback)
    releases = _list(Operations.releases)
    versions = _list(Operations.versions)
    version = _call(Operations.version)
    artifact = _call(Operations.artifact)
    model_signature = _call(Operations.model_signature)
    requests = _list(Operations.requests)
    log_entries = _call(Operations.log_entries)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def events(
        self, request_id: str, after: int | None = None
    ) -> AsyncIterator[StreamEvent]:
        """Yield a request's events as they happen, like `Client.events`."""
        request = self._operations.build(calls.follow(request_id, after))
        parser = EventParser()
        try:
            async with aclosing(await self._http.send(request, stream=True)) as response:
                if not response.is_success:
                    reader = Send(request, ANSWER).reader(response)
                    async for chunk in response.aiter_bytes():
                        reader.add(chunk)
                    raise parse_problem(reader.whole())
                check_coding(response)
                response.encoding = "utf-8"  # of every event stream; not the service's choice
                async for text in response.aiter_text():
                    for event in parser.feed(text):
                        yield event
        except httpx2.HTTPError as error:
            raise self._operations.unreachable(1, error) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _listed(self, listing: Listing[T]) -> AsyncIterator[T]:
        following: Call | None = listing.first
        while following is not None:
            page, following = await self._run(self._operations.page(following))
            for item in page.items:
                yield listing.parse(item)

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
