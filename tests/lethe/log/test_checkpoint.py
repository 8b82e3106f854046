"""Checkpoints: one spelling each, and only the log's own."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.log.checkpoint import (
    Checkpoint,
    CheckpointError,
    format_checkpoint,
    open_checkpoint,
    parse_checkpoint,
    sign_checkpoint,
)
from lethe.log.note import NoteError, NoteSigner, parse_vkey, sign_note
from lethe.log.tree import EMPTY_ROOT, MAX_SIZE
from tests.lethe.log.vectors import case_name, cases, foreign

SUMDB_VKEY = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
LOG = NoteSigner("log.example", Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32))
ROOT = bytes(range(32))

lines = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=32), min_size=1)
checkpoints = st.builds(
    Checkpoint, lines, st.integers(1, MAX_SIZE), st.binary(min_size=32, max_size=32)
)


@pytest.mark.parametrize("case", cases("checkpoints"), ids=case_name)
def test_checkpoint_vectors(case: Any) -> None:
    if case["wantErr"]:
        with pytest.raises(CheckpointError):
            parse_checkpoint(case["text"])
        return
    root, extensions = bytes.fromhex(case["root"]), tuple(case["extensions"])
    expected = Checkpoint(case["origin"], case["size"], root, extensions)
    assert parse_checkpoint(case["text"]) == expected
    assert format_checkpoint(expected) == case["text"]


@given(checkpoints)
@settings(deadline=None)
def test_a_signed_checkpoint_opens_to_itself(checkpoint: Checkpoint) -> None:
    note = sign_checkpoint(checkpoint, LOG)
    assert open_checkpoint(note, LOG.verifier, checkpoint.origin) == checkpoint


@given(st.text(max_size=100))
def test_arbitrary_text_is_a_verdict(text: str) -> None:
    try:
        checkpoint = parse_checkpoint(text)
    except CheckpointError:
        return
    assert format_checkpoint(checkpoint) == text


def test_a_real_checkpoint_opens() -> None:
    directory = foreign()
    if directory is None:
        pytest.skip("no third-party vectors at hand")
    note = (directory / "sumdb.note").read_text(encoding="utf-8")
    verifier = parse_vkey(SUMDB_VKEY)
    checkpoint = open_checkpoint(note, verifier, "go.sum database tree")
    assert checkpoint.size == 20852163
    with pytest.raises(CheckpointError, match="origin differs"):
        open_checkpoint(note, verifier)  # its key is not named like its origin
    with pytest.raises(NoteError):
        open_checkpoint(note.replace("20852163", "20852164"), verifier)


def test_the_origin_is_the_key_name_unless_given() -> None:
    note = sign_checkpoint(Checkpoint("log.example", 1, ROOT), LOG)
    assert open_checkpoint(note, LOG.verifier).origin == "log.example"
    with pytest.raises(CheckpointError, match="origin differs"):
        open_checkpoint(note, LOG.verifier, "log.example/two")


def test_a_signed_text_that_is_no_checkpoint_is_refused() -> None:
    with pytest.raises(CheckpointError):
        open_checkpoint(sign_note("log.example\n08\n\n", LOG), LOG.verifier)


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint("", 1, ROOT),
        Checkpoint("two\nlines", 1, ROOT),
        Checkpoint("log.example", -1, ROOT),
        Checkpoint("log.example", MAX_SIZE + 1, ROOT),
        Checkpoint("log.example", 1, ROOT[:-1]),
        Checkpoint("log.example", 0, ROOT),
        Checkpoint("log.example", 1, ROOT, ("",)),
        Checkpoint("log.example", 1, ROOT, ("two\nlines",)),
    ],
    ids=[
        "no origin",
        "origin of two lines",
        "negative size",
        "size too large",
        "short root",
        "empty tree with a root",
        "empty extension",
        "extension of two lines",
    ],
)
def test_what_is_no_checkpoint_is_not_signed(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError):
        sign_checkpoint(checkpoint, LOG)


def test_the_empty_log_has_a_checkpoint() -> None:
    empty = Checkpoint("log.example", 0, EMPTY_ROOT)
    assert open_checkpoint(sign_checkpoint(empty, LOG), LOG.verifier) == empty
