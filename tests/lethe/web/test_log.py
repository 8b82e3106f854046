"""Proofs, notes, keys and checkpoints: vectors and properties, by both verifiers."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lethe.log.checkpoint import parse_checkpoint
from lethe.log.note import NoteVerifier, open_note, parse_log_vkey, parse_vkey
from lethe.log.proofs import check_consistency, check_inclusion
from lethe.log.ranges import RangeProof, check_range
from tests.lethe.log import test_checkpoint, test_note, test_proofs, test_ranges
from tests.lethe.log.test_checkpoint import *  # noqa: F403
from tests.lethe.log.test_note import *  # noqa: F403
from tests.lethe.log.test_proofs import *  # noqa: F403
from tests.lethe.log.test_ranges import *  # noqa: F403
from tests.lethe.web.second import ask, both, needs_node

pytestmark = needs_node


def open_in_javascript(note: str, verifiers: Sequence[NoteVerifier]) -> None:
    ask("note", note=note, vkeys=[verifier.vkey for verifier in verifiers])


def inclusion_in_javascript(index: Any, size: Any, leaf: Any, proof: Any, root: Any) -> None:
    given = {"leaf": leaf, "proof": proof, "root": root}
    ask("inclusion", index=str(index), size=str(size), **_hex(given))


def consistency_in_javascript(old: Any, new: Any, proof: Any, before: Any, after: Any) -> None:
    given = {"proof": proof, "oldRoot": before, "newRoot": after}
    ask("consistency", old=str(old), size=str(new), **_hex(given))


def range_in_javascript(
    proof: RangeProof, leaves: Sequence[bytes], size: int, root: bytes
) -> None:
    given = {
        "startRoot": proof.start_root,
        "endRoot": proof.end_root,
        "own": proof.own,
        "onward": proof.onward,
        "leaves": leaves,
        "root": root,
    }
    sizes = {"start": proof.start, "end": proof.end, "size": size}
    ask("range", **{name: str(value) for name, value in sizes.items()}, **_hex(given))


def _are_sizes(proof: RangeProof, _leaves: object, size: object, _root: object) -> bool:
    return all(type(one) is int for one in (proof.start, proof.end, size))


def _hex(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.hex() if isinstance(value, bytes) else [item.hex() for item in value]
        for name, value in given.items()
    }


def _are_proofs(*given: Any) -> bool:
    """Whether sizes are integers and hashes bytes, as in every document that is read."""
    hashes = [item for part in given[2:] for item in (part if type(part) is list else [part])]
    proofs = [part for part in given if type(part) is list]
    fits = all(type(size) is int for size in given[:2]) and len(proofs) == 1
    return fits and all(isinstance(item, bytes) for item in hashes)


@pytest.fixture(autouse=True, scope="module")
def _second() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for room, name, *functions in (
            (test_note, "open_note", open_note, open_in_javascript),
            (test_note, "parse_vkey", parse_vkey, lambda vkey: ask("vkey", vkey=vkey)),
            (
                test_note,
                "parse_log_vkey",
                parse_log_vkey,
                lambda vkey: ask("logVkey", vkey=vkey),
            ),
            (
                test_checkpoint,
                "parse_checkpoint",
                parse_checkpoint,
                lambda text: ask("checkpoint", text=text),
            ),
            (
                test_proofs,
                "check_inclusion",
                check_inclusion,
                inclusion_in_javascript,
                _are_proofs,
            ),
            (
                test_proofs,
                "check_consistency",
                check_consistency,
                consistency_in_javascript,
                _are_proofs,
            ),
            (test_ranges, "check_range", check_range, range_in_javascript, _are_sizes),
        ):
            patch.setattr(room, name, both(*functions))
        yield
