"""Asking witnesses: an honest one over HTTP, and each way in which one may fail or lie."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.canonical import format_base64
from lethe.log.checkpoint import open_checkpoint
from lethe.log.cosigner import Cosigner
from lethe.log.note import NoteVerifier, parse_vkey, read_note, sign_note, split_note
from lethe.witness import ask
from lethe.witness.ask import (
    Asker,
    ContradictingError,
    DownError,
    LyingError,
    RefusingError,
    WitnessFailureError,
)
from lethe.witness.protocol import format_size, parse_add_checkpoint
from tests.lethe.certificates.build import log_signer
from tests.lethe.witness.liars import Answer, Behaviour, lying, nowhere
from tests.lethe.witness.logs import Log, serving, witness_in

LOG, FORK = Log(20), Log(20, "other ")
LIAR = Cosigner("liar.example", Ed25519PrivateKey.from_private_bytes(b"l" * 32))


def asked(url: str, size: int = 10, log: Log = LOG) -> ask.Cosigned:
    asker = Asker(url, [LIAR.verifier])
    try:
        return asker.cosign(log.note(size), log.head(size), log.prove)
    finally:
        asker.close()


def keys_in(folder: Path) -> list[NoteVerifier]:
    return [parse_vkey(path.read_text()[:-1]) for path in (folder / "w").glob("*.vkey")]


@pytest.fixture
def honest(tmp_path: Path) -> Iterator[tuple[Asker, str]]:
    witness_in(tmp_path / "w", LOG)
    with serving(tmp_path / "w") as url:
        asker = Asker(url + "/", keys_in(tmp_path))
        yield asker, url
        asker.close()


def test_an_honest_witness_gives_lines_of_both_keys_for_each_size(
    honest: tuple[Asker, str],
) -> None:
    asker, _ = honest
    for size in (0, 5, 5, 20):
        found = asker.cosign(LOG.note(size), LOG.head(size), LOG.prove)
        note = LOG.note(size) + "".join(line.text for line in found.lines)
        keys = [LOG.signer.verifier, *map(parse_vkey, found.vkeys)]
        assert len(read_note(note, keys).verified) == 3
        assert asker.last(LOG.signer.verifier) == note
    assert asker.last(log_signer("other.example", b"x").verifier) is None


def test_the_witness_names_the_size_to_one_that_forgot_it(
    honest: tuple[Asker, str], tmp_path: Path
) -> None:
    asker, url = honest
    asker.cosign(LOG.note(7), LOG.head(7), LOG.prove)
    new = Asker(url, keys_in(tmp_path))
    assert len(new.cosign(LOG.note(20), LOG.head(20), LOG.prove).lines) == 2
    new.close()
    # The first goes on with a size that is no longer the last one.
    assert len(asker.cosign(LOG.note(20), LOG.head(20), LOG.prove).lines) == 2


def test_a_fork_and_a_rewind_are_said_to_be_so(honest: tuple[Asker, str]) -> None:
    asker, _ = honest
    asker.cosign(LOG.note(10), LOG.head(10), LOG.prove)
    for size in (10, 20):
        with pytest.raises(ContradictingError, match="proof from 10"):
            asker.cosign(FORK.note(size), FORK.head(size), FORK.prove)
    with pytest.raises(ContradictingError, match="cosigned 10 entries, and this log has 9"):
        asker.cosign(LOG.note(9), LOG.head(9), LOG.prove)
    held = asker.last(LOG.signer.verifier)
    assert held is not None
    assert open_checkpoint(held, LOG.signer.verifier) == LOG.head(10)
    assert asker.cosign(LOG.note(20), LOG.head(20), LOG.prove)


def line_over(text: str, at: float | None = None, by: Cosigner = LIAR) -> bytes:
    return by.line(text, int(time.time() if at is None else at)).encode()


def text_in(body: bytes) -> str:
    return split_note(parse_add_checkpoint(body).note)[0]


OTHER = Cosigner("other.example", Ed25519PrivateKey.from_private_bytes(b"o" * 32))
NAMESAKE = Cosigner("liar.example", Ed25519PrivateKey.from_private_bytes(b"n" * 32))


def wrong_signature(body: bytes) -> Answer:
    return 200, line_over(text_in(body)).replace(b"A", b"B")


def flipped(body: bytes) -> Answer:
    _, (line,) = split_note(f"{text_in(body)}\n{line_over(text_in(body)).decode()}")
    bad = line.key_id + line.signature[:-1] + bytes([line.signature[-1] ^ 1])
    return 200, f"— liar.example {format_base64(bad)}\n".encode()


LIES: dict[str, tuple[Behaviour, type[WitnessFailureError]]] = {
    "a flipped bit": (flipped, LyingError),
    "another root": (lambda b: (200, line_over(split_note(FORK.note(10))[0])), LyingError),
    "another size": (lambda b: (200, line_over(split_note(LOG.note(9))[0])), LyingError),
    "another origin": (
        lambda b: (200, line_over(text_in(b).replace("lethe.example", "other.example"))),
        LyingError,
    ),
    "an old time": (lambda b: (200, line_over(text_in(b), time.time() - 3600)), LyingError),
    "a time to come": (lambda b: (200, line_over(text_in(b), time.time() + 3600)), LyingError),
    "no time": (lambda b: (200, line_over(text_in(b), 0)), LyingError),
    "another key": (lambda b: (200, line_over(text_in(b), by=OTHER)), LyingError),
    "a key of its name": (lambda b: (200, line_over(text_in(b), by=NAMESAKE)), LyingError),
    "a plain signature": (
        lambda b: (
            200,
            split_note(sign_note(text_in(b), log_signer("liar.example")))[1][0].text.encode(),
        ),
        LyingError,
    ),
    "two lines": (lambda b: (200, line_over(text_in(b)) * 2), LyingError),
    "nothing": (lambda b: (200, b""), LyingError),
    "no text": (lambda b: (200, b"\xff\n"), LyingError),
    "a page": (lambda b: (200, b"<html>\n"), LyingError),
    "too much": (lambda b: (200, b"x" * (ask.MAX_ANSWER + 1)), LyingError),
    "a redirect": (lambda b: (302, b""), LyingError),
    "no size": (lambda b: (409, b"many\n"), LyingError),
    "the size that was sent": (lambda b: (409, b"0\n"), LyingError),
    "always another size": (
        lambda b: (409, format_size(parse_add_checkpoint(b).old + 1)),
        LyingError,
    ),
    "a larger size": (lambda b: (409, b"11\n"), ContradictingError),
    "no proof is good": (lambda b: (422, b""), ContradictingError),
    "an unknown log": (lambda b: (404, b""), RefusingError),
    "an unknown key": (lambda b: (403, b""), RefusingError),
    "an error": (lambda b: (500, b""), DownError),
}


@pytest.mark.parametrize("name", LIES)
def test_whatever_a_witness_answers_is_lines_that_verify_or_a_named_error(name: str) -> None:
    behave, error = LIES[name]
    with lying(behave) as url, pytest.raises(error):
        asked(url)


def test_lines_of_others_beside_its_own_are_ignored() -> None:
    def both(body: bytes) -> Answer:
        text = text_in(body)
        return 200, line_over(text, by=OTHER) + line_over(text)

    with lying(both) as url:
        found = asked(url)
    assert [line.name for line in found.lines] == ["liar.example"]
    assert found.vkeys == (LIAR.verifier.vkey,)


def test_one_that_is_down_or_slow_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DownError, match="cannot be reached"):
        asked(nowhere())
    with pytest.raises(DownError, match="cannot be reached"):
        asked("http://[")
    monkeypatch.setattr(ask, "TIMEOUT_S", 0.05)
    wait: Callable[[float], None] = time.sleep
    with lying(lambda body: wait(0.5) or (200, b"")) as url, pytest.raises(DownError):  # type: ignore[func-returns-value]
        asked(url)


@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_one_that_drips_a_header_or_a_body_is_down(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Each byte arrives in time, the answer never."""
    monkeypatch.setattr(ask, "WHOLE_S", 0.5)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(sent)
                while not ended.wait(0.05):
                    connection.sendall(b"a")

        thread = threading.Thread(target=drip)
        thread.start()
        asker = Asker(f"http://127.0.0.1:{server.getsockname()[1]}", [LIAR.verifier])
        with pytest.raises(DownError, match="too long"):
            asker.held(LOG.signer.verifier)
        ended.set()
        thread.join()
    with pytest.raises(DownError, match="cannot be reached"):  # it goes on
        asker.held(LOG.signer.verifier)


@pytest.mark.parametrize("body", [b"10\n", b"another root\n", b""])
def test_a_fork_at_one_size_is_said_to_be_so_by_a_witness_of_the_first_version(
    body: bytes,
) -> None:
    """tlog-witness 1.0 has 409 for it and no body; later texts have 422."""

    def first_version(sent: bytes) -> Answer:
        return (409, b"10\n" if parse_add_checkpoint(sent).old != 10 else body)

    with lying(first_version) as url:
        asker = Asker(url, [LIAR.verifier])
        for _ in range(2):
            with pytest.raises(ContradictingError, match="another root of 10") as caught:
                asker.cosign(FORK.note(10), FORK.head(10), FORK.prove)
            assert caught.value.members == {"size": 10}
        with pytest.raises(LyingError):  # of 20 entries, 10 can be proven
            asker.cosign(FORK.note(20), FORK.head(20), FORK.prove)
        asker.close()


LAST: dict[str, bytes | None] = {
    "none": None,
    "not text": b"\xff",
    "another's": FORK.note(5).replace("lethe.example", "other.example").encode(),
    "no checkpoint": sign_note("text\n", LOG.signer).encode(),
}


@pytest.mark.parametrize("name", LAST)
def test_what_the_log_did_not_sign_proves_nothing(name: str) -> None:
    with lying(lambda body: (422, b""), LAST[name]) as url:
        asker = Asker(url, [LIAR.verifier])
        assert asker.last(LOG.signer.verifier) is None
        with pytest.raises(RefusingError if name == "none" else LyingError):
            asker.held(LOG.signer.verifier)
        asker.close()
