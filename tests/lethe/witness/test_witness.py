"""A witness cosigns growth alone: never a fork, a rewind, or growth without its proof."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.canonical import format_base64
from lethe.log.checkpoint import parse_checkpoint
from lethe.log.cosignature import split_cosignature
from lethe.log.note import NoteSigner, parse_vkey, read_note, sign_note, split_note
from lethe.witness import home
from lethe.witness.heads import MOST_EVIDENCE, Heads, StateError, origin_hash
from lethe.witness.logs import HomeError
from lethe.witness.protocol import (
    MAX_PROOF,
    AddCheckpoint,
    RequestError,
    format_add_checkpoint,
    parse_add_checkpoint,
)
from lethe.witness.witness import (
    ClockError,
    InconsistentError,
    NotTheLogError,
    OldSizeError,
    UnknownLogError,
    Witness,
)
from tests.lethe.certificates.build import log_signer
from tests.lethe.log.test_watch import begins_alike
from tests.lethe.witness.logs import Log, witness_in

LOG, FORK = Log(20), Log(20, "other ")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    witness_in(tmp_path / "w", LOG)
    return tmp_path / "w"


@pytest.fixture
def witness(place: Path) -> Iterator[Witness]:
    loaded = home.load(place)
    yield loaded
    loaded.heads.close()


def test_growth_is_cosigned_by_both_keys_with_the_time_of_the_clock(place: Path) -> None:
    keys = [parse_vkey((place / f"{stem}.vkey").read_text()[:-1]) for stem in home.KEYS]
    witness = home.load(place, lambda: 1_790_000_000.9)
    for old, new in ((0, 5), (5, 5), (5, 6), (6, 20)):
        lines = witness.add_checkpoint(LOG.request(old, new))
        text, _ = split_note(LOG.note(new))
        opened = read_note(f"{text}\n{lines}", keys)
        assert [key.kind for key in opened.verified] == [b"\x04", b"\x06"]
        for line in split_note(f"{text}\n{lines}")[1]:
            assert split_cosignature(line.signature)[0] == 1_790_000_000
        served = witness.heads.note(origin_hash(LOG.signer.name))
        assert served == (LOG.note(new) + lines).encode()
    witness.heads.close()


def test_a_fork_is_refused_and_kept_as_evidence(witness: Witness, place: Path) -> None:
    witness.add_checkpoint(LOG.request(0, 10))
    for size in (10, 11, 20):
        with pytest.raises(InconsistentError):
            witness.add_checkpoint(FORK.request(10, size))
    # The true proof with the other branch's root.
    mixed = AddCheckpoint(10, LOG.prove(10, 20), FORK.note(20))
    with pytest.raises(InconsistentError):
        witness.add_checkpoint(format_add_checkpoint(mixed))
    (proven,) = (place / "evidence").iterdir()
    assert proven.read_bytes() == FORK.request(10, 10)
    unproven = {one.read_bytes() for one in (place / "unproven").iterdir()}
    assert unproven == {FORK.request(10, 11), FORK.request(10, 20)}
    assert witness.add_checkpoint(LOG.request(10, 20))


def test_a_stranger_cannot_fill_the_place_of_evidence(
    witness: Witness, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can send honest checkpoints with false proofs."""
    monkeypatch.setattr("lethe.witness.heads.MOST_UNPROVEN", 4)
    witness.add_checkpoint(LOG.request(0, 10))
    for size in (*range(11, 20), *[20] * 30):
        false = AddCheckpoint(10, (os.urandom(32),), LOG.note(size))
        with pytest.raises(InconsistentError):
            witness.add_checkpoint(format_add_checkpoint(false))
    assert not list((place / "evidence").iterdir())
    assert len(list((place / "unproven").iterdir())) == 4
    for size in (10, 15):
        with pytest.raises(InconsistentError):
            witness.add_checkpoint(FORK.request(10, size))
    assert len(list((place / "evidence").iterdir())) == 1
    assert FORK.request(10, 15) in {one.read_bytes() for one in (place / "unproven").iterdir()}
    # What a proof connects to the head was no fork.
    before = len(list((place / "unproven").iterdir()))
    witness.add_checkpoint(LOG.request(10, 20))
    assert len(list((place / "unproven").iterdir())) == before - 1


def test_a_log_does_not_remove_what_was_kept_of_its_fork(
    witness: Witness, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It searched for a fork and an honest tree whose digests begin alike, and then grows."""
    monkeypatch.setattr("lethe.witness.heads.sha256", begins_alike)
    witness.add_checkpoint(LOG.request(0, 10))
    with pytest.raises(InconsistentError):
        witness.add_checkpoint(FORK.request(10, 15))
    witness.add_checkpoint(LOG.request(10, 20))
    (kept,) = (place / "unproven").iterdir()
    assert kept.read_bytes() == FORK.request(10, 15)


def test_another_root_of_the_same_size_is_evidence_whatever_old_size_is_named(
    witness: Witness, place: Path
) -> None:
    witness.add_checkpoint(LOG.request(0, 10))
    with pytest.raises(OldSizeError):
        witness.add_checkpoint(FORK.request(0, 10))
    (kept,) = (place / "evidence").iterdir()
    assert kept.read_bytes() == FORK.request(0, 10)


def test_evidence_is_bounded(witness: Witness, place: Path) -> None:
    witness.add_checkpoint(LOG.request(0, 4))
    for number in range(MOST_EVIDENCE + 1):
        with pytest.raises(InconsistentError):
            witness.add_checkpoint(Log(20, f"fork {number} ").request(4, 4))
    assert len(list((place / "evidence").iterdir())) == MOST_EVIDENCE


def test_a_rewind_and_a_size_that_is_not_the_last_one_are_refused(witness: Witness) -> None:
    witness.add_checkpoint(LOG.request(0, 10))
    for old, new in ((0, 5), (5, 9), (9, 10), (0, 20), (11, 20)):
        with pytest.raises(OldSizeError) as caught:
            witness.add_checkpoint(LOG.request(old, new))
        assert caught.value.size == 10
    with pytest.raises(RequestError, match="above"):
        witness.add_checkpoint(format_add_checkpoint(AddCheckpoint(10, (), LOG.note(9))))


def test_growth_without_its_proof_is_refused(witness: Witness) -> None:
    with pytest.raises(InconsistentError, match="no proof"):
        witness.add_checkpoint(
            format_add_checkpoint(AddCheckpoint(0, (bytes(32),), LOG.note(5)))
        )
    witness.add_checkpoint(LOG.request(0, 5))
    proof = LOG.prove(5, 20)
    for wrong in ((), proof[1:], (*proof, bytes(32)), tuple(reversed(proof))):
        with pytest.raises(InconsistentError):
            witness.add_checkpoint(format_add_checkpoint(AddCheckpoint(5, wrong, LOG.note(20))))


def test_other_logs_and_other_keys_are_refused(witness: Witness) -> None:
    other = Log(5, signer=log_signer("other.example", b"other"))
    with pytest.raises(UnknownLogError):
        witness.add_checkpoint(other.request(0, 5))
    forger = Log(5, signer=NoteSigner(LOG.signer.name, Ed25519PrivateKey.generate()))
    with pytest.raises(NotTheLogError):
        witness.add_checkpoint(forger.request(0, 5))
    text, _ = split_note(LOG.note(5))
    _, (wrong,) = split_note(LOG.note(6))
    note = f"{text}\n{wrong.text}"
    with pytest.raises(NotTheLogError):
        witness.add_checkpoint(format_add_checkpoint(AddCheckpoint(0, (), note)))
    # Lines of unknown keys beside the log's are ignored, and not served either.
    note = sign_note(text, LOG.signer, log_signer("stranger.example", b"stranger"))
    assert witness.add_checkpoint(format_add_checkpoint(AddCheckpoint(0, (), note)))
    served = witness.heads.note(origin_hash(LOG.signer.name))
    assert served is not None
    assert b"stranger" not in served


def test_an_empty_tree_has_one_root(witness: Witness) -> None:
    assert witness.add_checkpoint(LOG.request(0, 0))
    text = f"{LOG.signer.name}\n0\n{format_base64(bytes(32))}\n"
    with pytest.raises(InconsistentError):
        witness.add_checkpoint(
            format_add_checkpoint(AddCheckpoint(0, (), sign_note(text, LOG.signer)))
        )


MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "no empty line": b"old 0\n" + LOG.note(5).partition("\n\n")[0].encode(),
    "no old size": b"\n" + LOG.note(5).encode(),
    "a sign": b"old +0\n\n" + LOG.note(5).encode(),
    "a leading zero": b"old 00\n\n" + LOG.note(5).encode(),
    "a size beyond 2**63": b"old 9223372036854775808\n\n" + LOG.note(5).encode(),
    "no base64": b"old 0\n???\n\n" + LOG.note(5).encode(),
    "a short hash": b"old 0\nAAAA\n\n" + LOG.note(5).encode(),
    "too long a proof": b"old 0\n"
    + (format_base64(bytes(32)) + "\n").encode() * (MAX_PROOF + 1)
    + b"\n"
    + LOG.note(5).encode(),
    "no note": b"old 0\n\nnote\n",
    "no checkpoint": b"old 0\n\n" + sign_note("text\n", LOG.signer).encode(),
    "no UTF-8": b"old 0\n\n\xff",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_refused(witness: Witness, name: str) -> None:
    with pytest.raises(RequestError):
        witness.add_checkpoint(MALFORMED[name])


def test_a_request_is_read_as_it_was_written() -> None:
    for old, new in ((0, 5), (5, 20)):
        read = parse_add_checkpoint(LOG.request(old, new))
        assert format_add_checkpoint(read) == LOG.request(old, new)


def test_it_remembers_over_a_restart_and_one_process_has_its_memory(
    place: Path,
) -> None:
    witness = home.load(place)
    witness.add_checkpoint(LOG.request(0, 10))
    with pytest.raises(StateError, match="another process"):
        home.load(place)
    witness.heads.close()
    again = home.load(place)
    with pytest.raises(OldSizeError):
        again.add_checkpoint(LOG.request(0, 9))
    assert again.add_checkpoint(LOG.request(10, 20))
    again.heads.close()


def test_a_lost_or_damaged_memory_is_not_taken_for_an_empty_one(
    witness: Witness, place: Path
) -> None:
    witness.add_checkpoint(LOG.request(0, 10))
    (head,) = (place / "heads").glob("*.json")
    for damage in (b"", b"{}\n", head.read_bytes().replace(b'"10"', b'"-1"'), b"\xff"):
        head.write_bytes(damage)
        with pytest.raises(StateError, match="damaged"):
            witness.add_checkpoint(LOG.request(0, 20))
    with pytest.raises(StateError, match="is missing"):
        Heads(place / "evidence")


def test_a_clock_that_went_back_signs_nothing(place: Path) -> None:
    now = [1_790_000_000.0]
    witness = home.load(place, lambda: now[0])
    witness.add_checkpoint(LOG.request(0, 5))
    now[0] -= 1
    with pytest.raises(ClockError):
        witness.add_checkpoint(LOG.request(5, 6))
    now[0] += 1
    assert witness.add_checkpoint(LOG.request(5, 6))
    witness.heads.close()


def test_nothing_is_answered_that_was_not_written(
    witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heads, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        witness.add_checkpoint(LOG.request(0, 5))
    assert witness.heads.note(origin_hash(LOG.signer.name)) is None


def test_a_head_is_written_before_it_is_signed(
    witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, it signs another root of this size neither before nor after."""
    monkeypatch.setattr(Heads, "answered", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        witness.add_checkpoint(LOG.request(0, 10))
    monkeypatch.undo()
    with pytest.raises(InconsistentError):
        witness.add_checkpoint(FORK.request(10, 10))
    assert witness.add_checkpoint(LOG.request(10, 10))


HOMES: dict[str, tuple[str, bytes | None, str]] = {
    "no key": ("witness.key", None, "has no witness.key"),
    "no vkey": ("witness-mldsa.vkey", None, "has no witness-mldsa.key"),
    "not a key": ("witness.key", b"key", "are not one key"),
    "another's vkey": (
        "witness.vkey",
        f"{log_signer().verifier.vkey}\n".encode(),
        "are not one key",
    ),
    "no list": ("logs", None, "is missing"),
    "a witness as a log": ("logs", b"# comment\n\nkey\n", "line 3 of"),
}


@pytest.mark.parametrize("name", HOMES)
def test_a_directory_that_is_not_a_witness_is_named(place: Path, name: str) -> None:
    file, content, why = HOMES[name]
    (place / file).unlink() if content is None else (place / file).write_bytes(content)
    with pytest.raises(HomeError, match=why):
        home.load(place)


def test_a_witness_gets_no_second_key(place: Path) -> None:
    with pytest.raises(HomeError, match="not empty"):
        witness_in(place, LOG)


def test_the_checkpoint_of_the_tests_is_one() -> None:
    assert parse_checkpoint(split_note(LOG.note(20))[0]) == LOG.head(20)
    assert LOG.head(3) == FORK.head(3)
    assert LOG.head(4) != FORK.head(4)
