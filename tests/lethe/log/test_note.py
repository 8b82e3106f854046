"""Signed notes: every defect as a vector, every flipped bit refused."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.log.note import (
    COSIGNATURE,
    MAX_NOTE,
    MAX_SIGNATURES,
    ML_DSA_44,
    NoteError,
    NoteSigner,
    NoteVerifier,
    SignatureLine,
    not_verified,
    open_note,
    parse_log_vkey,
    parse_vkey,
    read_note,
    sign_note,
)
from tests.lethe.log.vectors import case_name, cases, foreign


def signer(name: str = "log.example", seed: int = 1) -> NoteSigner:
    return NoteSigner(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


TEXT = "first line\n\nthird line\n"
LOG, WITNESS = signer(), signer("witness.example", 2)

texts = st.text(
    st.one_of(st.just("\n"), st.characters(exclude_categories=["Cs"], min_codepoint=32)),
    max_size=60,
).map(lambda text: text + "\n")


@pytest.mark.parametrize("case", cases("notes"), ids=case_name)
def test_note_vectors(case: Any) -> None:
    verifiers = [parse_vkey(vkey) for vkey in case["vkeys"]]
    if case["wantErr"]:
        with pytest.raises(NoteError):
            open_note(case["note"], verifiers)
    else:
        assert open_note(case["note"], verifiers) == case["text"]


@pytest.mark.parametrize("case", cases("vkeys"), ids=case_name)
def test_vkey_vectors(case: Any) -> None:
    if case["wantErr"]:
        with pytest.raises(NoteError):
            parse_vkey(case["vkey"])
    else:
        assert parse_vkey(case["vkey"]).vkey == case["vkey"]


def test_a_key_under_which_anybody_signs_is_none() -> None:
    """Its log could deny a fork: here nobody's signature fits two checkpoints of one size."""
    neutral = bytes([1]) + bytes(31)
    key = NoteVerifier.of("log.example", Ed25519PublicKey.from_public_bytes(neutral))
    for root in ("AAAA", "BBBB"):
        key.check(f"log.example\n7\n{root}\n", neutral + bytes(32))
    with pytest.raises(NoteError):
        parse_vkey(key.vkey)


def test_notes_of_others_open() -> None:
    directory = foreign()
    if directory is None:
        pytest.skip("no third-party vectors at hand")
    for case in json.loads((directory / "signed-notes.json").read_text()):
        verifier = parse_vkey(case["vkey"])
        note = f"{case['text']}\n— {verifier.name} {case['signature']}\n"
        assert open_note(note, [verifier]) == case["text"]
        with pytest.raises(NoteError):
            open_note("x" + note, [verifier])


@given(texts)
@settings(deadline=None)
def test_a_signed_note_opens_to_its_text(text: str) -> None:
    note = sign_note(text, LOG, WITNESS)
    assert open_note(note, [LOG.verifier]) == text
    assert open_note(note, [WITNESS.verifier]) == text
    assert open_note(note, [LOG.verifier, WITNESS.verifier]) == text
    with pytest.raises(NoteError, match="no known key"):
        open_note(note, [signer(seed=9).verifier])


def test_every_flipped_bit_breaks_a_note() -> None:
    note = sign_note(TEXT, LOG).encode()
    for bit in range(8 * len(note)):
        flipped = bytearray(note)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            changed = flipped.decode()
        except UnicodeDecodeError:
            continue  # a note is UTF-8: whoever reads the bytes has refused it already
        with pytest.raises(NoteError):
            open_note(changed, [LOG.verifier])


@given(st.text(max_size=80))
@settings(deadline=None)
def test_arbitrary_text_is_a_verdict(text: str) -> None:
    for note in (text, text + sign_note(TEXT, LOG), sign_note(TEXT, LOG) + text):
        try:
            opened = open_note(note, [LOG.verifier])
        except NoteError:
            continue
        assert opened == TEXT
        assert note == sign_note(TEXT, LOG)


@given(st.text(max_size=80))
def test_arbitrary_text_as_a_key_is_a_verdict(text: str) -> None:
    for vkey in (text, text + LOG.verifier.vkey, LOG.verifier.vkey + text):
        try:
            verifier = parse_vkey(vkey)
        except NoteError:
            continue
        assert verifier.vkey == vkey


def test_verifier_key_reads_back() -> None:
    verifier = LOG.verifier
    again = parse_vkey(verifier.vkey)
    assert (again.name, again.key_id) == (verifier.name, verifier.key_id)
    assert again.key.public_bytes_raw() == verifier.key.public_bytes_raw()
    assert verifier.log_id[:4] == verifier.key_id
    assert len(verifier.log_id) == 32


def test_a_key_of_another_type_is_told_from_a_wrong_key_id() -> None:
    by_name = {case["name"]: case["vkey"] for case in cases("vkeys")}
    with pytest.raises(NoteError, match="base64 of an Ed25519"):
        parse_vkey(by_name["type-unassigned"])
    with pytest.raises(NoteError, match="not the one of its name and key"):
        parse_vkey(by_name["other-name"])


def test_a_witness_never_signs_for_a_log() -> None:
    witness = NoteVerifier.of("log.example", LOG.verifier.key, COSIGNATURE)
    assert parse_vkey(witness.vkey) == witness
    with pytest.raises(NoteError, match="a witness's key"):
        parse_log_vkey(witness.vkey)
    assert parse_log_vkey(LOG.verifier.vkey) == LOG.verifier


def test_a_key_of_another_kind_than_its_type_is_refused() -> None:
    for kind in (ML_DSA_44, b"\x03"):
        with pytest.raises(NoteError, match="not of the kind"):
            NoteVerifier.of("log.example", LOG.verifier.key, kind)


def test_lines_of_unknown_keys_are_listed_and_prove_nothing() -> None:
    note = sign_note(TEXT, LOG, WITNESS, signer(seed=9))
    opened = read_note(note, [LOG.verifier])
    assert opened.verified == (LOG.verifier,)
    assert [(line.name, line.key_id) for line in opened.unverified] == [
        ("witness.example", WITNESS.verifier.key_id),
        ("log.example", signer(seed=9).verifier.key_id),  # the log's name, and not its key
    ]
    told = not_verified(opened.unverified)
    assert told.startswith("; not verified, their keys were not given: witness.example+")
    assert read_note(note, [LOG.verifier, WITNESS.verifier]).verified[1] == WITNESS.verifier
    assert not_verified(()) == ""


def test_a_hundred_unknown_names_are_told_in_one_short_line() -> None:
    lines = [SignatureLine(f"{number}" + "n" * 9000, bytes(4), b"x") for number in range(99)]
    told = not_verified(lines)
    assert len(told) < 400
    assert told.endswith(" and 96 more")


def test_a_key_id_of_another_key_is_refused() -> None:
    with pytest.raises(NoteError, match="does not belong"):
        NoteVerifier("log.example", b"\0\0\0\0", LOG.verifier.key)


def test_two_known_keys_with_one_identity_are_refused() -> None:
    # Which of them would a signature line mean?
    note = sign_note(TEXT, LOG)
    with pytest.raises(NoteError, match="share one name"):
        open_note(note, [LOG.verifier, parse_vkey(LOG.verifier.vkey)])


def test_a_hundred_signatures_are_read_and_one_more_is_not() -> None:
    note = sign_note(TEXT, LOG, *[WITNESS] * (MAX_SIGNATURES - 1))
    assert open_note(note, [LOG.verifier]) == TEXT
    with pytest.raises(NoteError, match="at most 100 signatures"):
        open_note(note + note.splitlines(keepends=True)[-1], [LOG.verifier])


def test_a_note_of_a_million_bytes_is_read_and_one_more_is_not() -> None:
    rest = len(sign_note("\n", LOG).encode())
    largest = sign_note("x" * (MAX_NOTE - rest) + "\n", LOG)
    assert len(largest.encode()) == MAX_NOTE
    open_note(largest, [LOG.verifier])
    with pytest.raises(NoteError, match="at most 1000000 bytes"):
        open_note("x" + largest, [LOG.verifier])
    with pytest.raises(NoteError, match="at most 1000000 bytes"):
        open_note("é" + largest[1:], [LOG.verifier])  # counted in bytes


@pytest.mark.parametrize(
    "text", ["", "no newline", "tab\t\n", "return\r\n", "nul\0\n", "surrogate \ud800\n"]
)
def test_what_is_no_text_is_not_signed(text: str) -> None:
    with pytest.raises(NoteError):
        sign_note(text, LOG)


@pytest.mark.parametrize(
    "name", ["", "a b", "a+b", "a\n", "a\u00a0b", "a\u2028b", "a\x01", "\ud800"]
)
def test_what_is_no_name_does_not_sign(name: str) -> None:
    with pytest.raises(NoteError):
        sign_note(TEXT, signer(name))


def test_a_note_needs_a_signer() -> None:
    with pytest.raises(NoteError, match="at least one"):
        sign_note(TEXT)
