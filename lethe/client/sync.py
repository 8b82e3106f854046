"""The synchronous client."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx2

from lethe.client import calls
from lethe.client.answers import Document, parse_problem
from lethe.client.calls import ANSWER, Call
from lethe.client.core import Conversation, Pause, Send, check_coding
from lethe.client.errors import AnswerError
from lethe.client.events import EventParser, StreamEvent
from lethe.client.operations import Listing, Operations, as_it_is, named_after
from lethe.client.retry import RetryPolicy
from lethe.log.note import NoteVerifier
from lethe.signing.keys import PrivateKey
from lethe.tls import trusted

P = ParamSpec("P")
T = TypeVar("T")


def _call(
    operation: Callable[Concatenate[Operations, P], Conversation[T]],
) -> Callable[Concatenate["Client", P], T]:
    """Return the method of `Client` that runs the operation's conversation."""

    def call(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._run(operation(client._operations, *args, **kwargs))

    return named_after(call, operation)


def _list(
    operation: Callable[Concatenate[Operations, P], Listing[T]],
) -> Callable[Concatenate["Client", P], Iterator[T]]:
    """Return the method of `Client` that iterates over the operation's list."""

    def items(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return client._listed(operation(client._operations, *args, **kwargs))

    return named_after(items, operation, Iterator)


class Client:
    """Calls a Lethe service: signs, sends, retries, verifies.

    keyid and private_key sign erasure requests and contributions; token is an operator's bearer
    token; log is the log's verifier key, with which receipts are verified before they are
    returned. Each is needed only by the calls that use it. timeout is in seconds, for each try.
    on_sent is called while a large body is sent, with the number of bytes sent and the total;
    it starts again from 0 in each try. `Operations` documents each call.

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
        on_sent: Callable[[int, int], object] | None = None,
    ) -> None:
        self._operations = Operations(
            base_url, keyid, private_key, token, log, retry, on_sent=on_sent
        )
        self._http = httpx2.Client(verify=trusted(), transport=transport, timeout=timeout)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def events(self, request_id: str, after: int | None = None) -> Iterator[StreamEvent]:
        """Yield a request's events as they happen, until it ends or the service disconnects.

        after: only events after this log index, such as the last one seen. After a
        disconnection call it again; `wait` reconnects by itself.

        Raises:
            ProblemError: The service refused: too many followers, or it has no streams.
            UnreachableError: The connection was lost, or was silent for the time-out.
            AnswerError: It is not a stream of events.
        """
        request = self._operations.build(calls.follow(request_id, after))
        parser = EventParser()
        try:
            with closing(self._http.send(request, stream=True)) as response:
                if not response.is_success:
                    reader = Send(request, ANSWER).reader(response)
                    for chunk in response.iter_bytes():
                        reader.add(chunk)
                    raise parse_problem(reader.whole())
                check_coding(response)
                response.encoding = "utf-8"  # of every event stream; not the service's choice
                for text in response.iter_text():
                    yield from parser.feed(text)
        except httpx2.HTTPError as error:
            raise self._operations.unreachable(1, error) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _object(self, call: Call) -> Document:
        return self._run(self._operations.document(call))

    def _items(self, call: Call) -> Iterator[Document]:
        return self._listed(Listing(call, as_it_is))

    def _listed(self, listing: Listing[T]) -> Iterator[T]:
        following: Call | None = listing.first
        while following is not None:
            page, following = self._run(self._operations.page(following))
            yield from map(listing.parse, page.items)

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
