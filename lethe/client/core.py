"""Conversations: the exchange between a client and the service, without I/O.

A conversation is a generator. It yields the next step (send this, pause this long), receives
its outcome, and returns the result. `Client` and `AsyncClient` execute the steps, each in its
own way, so signing and retrying are written, and tested, once. `operations` has the calls.
"""

import random
import socket
import ssl
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2

from lethe.client.answers import Document, Page, parse_object, parse_page, parse_problem
from lethe.client.bodies import PIECE, Sent
from lethe.client.calls import Call
from lethe.client.errors import AnswerError, CredentialsError, UnreachableError
from lethe.client.retry import NOT_SENT, RETRYABLE_ERRORS, RetryPolicy
from lethe.log.note import NoteVerifier
from lethe.signing.http import new_nonce, sign_request
from lethe.signing.keys import PrivateKey

T = TypeVar("T")
REFUSAL = 2**20  # maximum bytes read of a problem document


@dataclass(frozen=True, slots=True)
class Send:
    """Send this; the caller sends back the response from `reader`, or throws its exception."""

    request: httpx2.Request
    most: int

    def reader(self, response: httpx2.Response) -> "Reader":
        """Return the reader for the body of `response`, which is a stream."""
        return Reader(response, self.most)


class Reader:
    """Reads an answer up to a limit: a hostile service must not fill the caller's memory."""

    def __init__(self, response: httpx2.Response, most: int) -> None:
        """Begin. Raises AnswerError: as `check_coding`."""
        check_coding(response)
        self._response = response
        self._most = most if response.is_success else min(most, REFUSAL)
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        """Add a chunk of the body.

        Raises AnswerError: the answer exceeds its maximum size.
        """
        self._data += chunk
        if len(self._data) > self._most:
            raise AnswerError(
                f"the service's answer has more than {self._most} bytes: is the URL right?"
            )

    def whole(self) -> httpx2.Response:
        """Return the response with its body in memory."""
        spent = ("content-length", "transfer-encoding")
        headers = [
            (name, value)
            for name, value in self._response.headers.multi_items()
            if name.lower() not in spent
        ]
        return httpx2.Response(
            self._response.status_code,
            headers=headers,
            content=bytes(self._data),
            request=self._response.request,
        )


def check_coding(response: httpx2.Response) -> None:
    """Raise AnswerError if an answer is compressed, which `build` forbids.

    A few kilobytes of codings within codings unpack for hours without a byte to count, and what
    follows the end of a compressed body is kept and not counted.
    """
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise AnswerError(
            "the service's answer is compressed, which was not asked for: have the proxy in "
            "front of it heed Accept-Encoding"
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this long."""

    seconds: float


Conversation = Generator[Send | Pause, Any, T]


class Core:
    """Configuration of a client, and the exchanges that its calls consist of."""

    def __init__(
        self,
        base_url: str,
        keyid: str | None,
        private_key: PrivateKey | None,
        token: str | None,
        log: NoteVerifier | None,
        retry: RetryPolicy,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        on_sent: Callable[[int, int], object] | None = None,
    ) -> None:
        try:
            url = httpx2.URL(base_url)
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
            raise UnreachableError("the service's URL must look like https://host[:port]")
        self._base = str(url).rstrip("/")
        self._keyid, self._private_key, self._token = keyid, private_key, token
        self._log, self._retry = log, retry
        self._now, self._monotonic, self._jitter = now, monotonic, jitter
        self._on_sent = on_sent

    def build(self, call: Call) -> httpx2.Request:
        """Return the request to send, with a new signature if the call is signed.

        Raises CredentialsError: the call needs a key or token that was not given.
        """
        # httpx2 normalises the URL (case of the host, default port); sign the normalised one,
        # or the service would verify another target URI.
        url = httpx2.URL(self._base + call.path, params=call.query or None)
        # `check_coding` refuses anything else.
        headers = {"User-Agent": "lethe-client", "Accept-Encoding": "identity", **call.headers}
        signs = call.auth == "either" and (self._private_key is not None or not self._token)
        if signs or call.auth == "signature":
            headers |= self._sign(call, str(url))
        elif self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        elif call.auth == "token":
            raise CredentialsError(
                "this call needs a bearer token: set LETHE_TOKEN or run `lethe login`; in "
                "Python give token="
            )
        body = call.body
        if isinstance(body, bytes) and (self._on_sent is None or len(body) <= PIECE):
            return httpx2.Request(call.method, url, headers=headers, content=body)
        # httpx2 adds no header to a stream; without a length it would be sent in chunks.
        headers |= {"Host": url.netloc.decode("ascii"), "Content-Length": str(len(body))}
        stream = Sent(body, self._on_sent)
        return httpx2.Request(call.method, url, headers=headers, stream=stream)

    def _sign(self, call: Call, url: str) -> dict[str, str]:
        if self._private_key is None or self._keyid is None:
            raise CredentialsError("this call is signed: give a keyid and a private key")
        assert isinstance(call.body, bytes)  # a signature covers the whole body
        return sign_request(
            call.method,
            url,
            call.headers,
            call.body,
            self._private_key,
            self._keyid,
            now=self._now(),
            nonce=new_nonce(),
        )

    def exchange(self, call: Call) -> Conversation[httpx2.Response]:
        """Send until there is an answer or no try is left; returns a 2xx response.

        Raises:
            ProblemError: The service refused, or still failed at the last try.
            UnreachableError: There was no answer at the last try.
        """
        tried = 0
        while True:
            tried += 1
            last = tried >= self._retry.tries
            try:
                response: httpx2.Response = yield Send(self.build(call), call.most)
            except RETRYABLE_ERRORS as error:
                done = call.once and not isinstance(error, NOT_SENT)
                if last or done:
                    raise self.unreachable(tried, error, done=done) from error
                pause = self._retry.pause(tried, self._jitter)
            except httpx2.HTTPError as error:
                raise self.unreachable(tried, error) from error
            else:
                if response.is_success:
                    return response
                wanted = self._retry.pause_after(
                    response, tried, self._jitter, self._now(), once=call.once
                )
                if last or wanted is None:
                    raise parse_problem(response)
                pause = wanted
            yield Pause(pause)

    def unreachable(
        self, tries: int, error: Exception, *, done: bool = False
    ) -> UnreachableError:
        """Return the error of a service that gave no answer.

        done: it may have done what must not be done twice.
        """
        # Host and port alone: the path may hold a request's id, the rest a password.
        url = httpx2.URL(self._base)
        count = f"{tries} tried" if tries == 1 else f"{tries} tries"
        then = (
            "it may have been done: look before you ask again"
            if done
            else "check --url, and that the service runs"
        )
        return UnreachableError(
            f"no answer from {url.scheme}://{url.netloc.decode('ascii')} after {count} "
            f"({cause_of(error)}): {then}"
        )

    def content(self, call: Call) -> Conversation[bytes]:
        """Return the bytes of the answer."""
        return (yield from self.exchange(call)).content

    def document(self, call: Call) -> Conversation[Document]:
        """Return the JSON object of the answer.

        Raises AnswerError: the body is something else.
        """
        return parse_object((yield from self.exchange(call)))

    def page(self, call: Call) -> Conversation[tuple[Page, Call | None]]:
        """Return one page of a list and the call for the next, None after the last.

        Raises AnswerError: it is not a list, or its cursor leads back to itself.
        """
        page = parse_page((yield from self.exchange(call)))
        if page.next is None:
            return page, None
        if ("after", page.next) in call.query:
            raise AnswerError("the service's list does not end: its cursor leads to itself")
        kept = tuple(pair for pair in call.query if pair[0] != "after")
        return page, replace(call, query=(*kept, ("after", page.next)))


def cause_of(error: BaseException) -> str:
    """Return the cause of a transport error, without details of the request."""
    seen: BaseException | None = error
    while seen is not None:
        for kind, words in _WORDS:
            if isinstance(seen, kind):
                return words
        seen = seen.__cause__ or seen.__context__
    return type(error).__name__


_WORDS: tuple[tuple[type[BaseException], str], ...] = (
    (httpx2.TimeoutException, "timed out"),
    (ConnectionRefusedError, "connection refused"),
    (socket.gaierror, "the host's name is not known"),
    (ssl.SSLError, "TLS failed"),
)
