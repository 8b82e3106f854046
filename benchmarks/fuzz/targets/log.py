"""Of the log: entries, bundles, tile paths, notes, checkpoints, keys, policies, witnesses."""

from collections.abc import Sequence
from datetime import date
from hashlib import sha256

from benchmarks.fuzz.mutate import as_json, as_lines, plain
from benchmarks.fuzz.target import Target, text
from lethe.errors import LetheError
from lethe.log.checkpoint import open_checkpoint, parse_checkpoint
from lethe.log.cosignature import split_cosignature
from lethe.log.entries import EntryError, event_leaf, key_leaf, model_leaf, parse_leaf
from lethe.log.note import NoteError, parse_vkey, read_note, split_note
from lethe.log.policy import PolicyError, parse_policy
from lethe.log.tiles import TileError, decode_bundle, parse_tile_path
from lethe.witness.protocol import (
    AddCheckpoint,
    RequestError,
    format_add_checkpoint,
    parse_add_checkpoint,
    parse_size,
)
from tests.lethe.certificates.build import REQUEST_REF, Office, log_signer
from tests.lethe.log.test_policy import EXAMPLE

DAY = date(2026, 11, 27)
COMMITMENT = sha256(b"seed").digest()


def _note() -> str:
    return Office().log.checkpoint()


def _leaves() -> Sequence[bytes]:
    office = Office()
    office.certify()
    own = [one for one in office.log.leaves if one.startswith(b"{")]
    more = [
        event_leaf("request.received", REQUEST_REF, COMMITMENT, DAY),
        key_leaf("key.registered", REQUEST_REF, COMMITMENT, DAY),
        model_leaf("model.version", "digits", {"head": "a" * 64}, DAY),
    ]
    return [*own, *more]


def _bundle() -> Sequence[bytes]:
    leaves = _leaves()
    return [b"".join(len(one).to_bytes(2, "big") + one for one in leaves)]


def _vkeys() -> Sequence[bytes]:
    return [log_signer().verifier.vkey.encode(), *_policy_keys()]


def _policy_keys() -> list[bytes]:
    return [word.encode() for word in EXAMPLE.split() if "+" in word]


def _added() -> Sequence[bytes]:
    return [format_add_checkpoint(AddCheckpoint(1, (COMMITMENT,) * 3, _note()))]


SIGNER = log_signer()
UTF8 = UnicodeDecodeError  # of who calls the parser

TARGETS = (
    Target("log-entry", parse_leaf, _leaves, (EntryError,), (as_json, plain)),
    Target("log-entry-bundle", decode_bundle, _bundle, (TileError,)),
    Target(
        "tile-path",
        text(parse_tile_path),
        lambda: [b"tile/0/x001/234", b"tile/2/000.p/7", b"tile/entries/x001/x234/567.p/255"],
        (TileError, UTF8),
    ),
    Target(
        "note",
        text(lambda note: read_note(note, [SIGNER.verifier])),
        lambda: [_note().encode()],
        (NoteError, UTF8),
        (as_lines, plain),
    ),
    Target(
        "checkpoint",
        text(lambda note: parse_checkpoint(split_note(note)[0])),
        lambda: [_note().encode()],
        (LetheError, UTF8),
        (as_lines, plain),
    ),
    Target(
        "signed-checkpoint",
        text(lambda note: open_checkpoint(note, SIGNER.verifier)),
        lambda: [_note().encode()],
        (LetheError, UTF8),
        (as_lines, plain),
    ),
    Target("cosignature", split_cosignature, lambda: [bytes(8) + bytes(64)], (ValueError,)),
    Target("verifier-key", text(parse_vkey), _vkeys, (NoteError, UTF8)),
    Target(
        "witness-policy",
        parse_policy,
        lambda: [EXAMPLE.encode()],
        (PolicyError,),
        (as_lines, plain),
    ),
    Target("witness-request", parse_add_checkpoint, _added, (RequestError,), (as_lines, plain)),
    Target("witness-answer", parse_size, lambda: [b"12\n"], (RequestError,)),
)
