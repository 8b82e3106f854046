"""No bit of the file can change, and no input is ever answered with a traceback."""

import base64
import json
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lethe import canonical
from lethe.canonical import format_base64
from lethe.certificates.bundle import parse_bundle
from lethe.log.note import sign_note
from tests.fuzz import fuzz
from tests.lethe.certificates.build import Office, log_signer

CERTIFIED = Office().certify()
DOCUMENT: dict[str, Any] = json.loads(CERTIFIED.bundle)
STATEMENT: dict[str, Any] = json.loads(parse_bundle(CERTIFIED.bundle).payload)
EVIDENCE: dict[str, Any] = json.loads(CERTIFIED.evidence)


def survivors(
    data: bytes, bits: Iterable[int] | None = None, **options: Any
) -> tuple[list[int], Counter[int]]:
    """Return the bits whose flip is not noticed, and which steps noticed the others.

    bits: those that are flipped, each in turn; all by default.
    """
    unnoticed, steps = [], Counter[int]()
    for bit in range(8 * len(data)) if bits is None else bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        # Without model and evidence: the file alone must hold.
        failed = CERTIFIED.verify(bytes(changed), model=None, evidence=None, **options).failed
        if failed is None:
            unnoticed.append(bit)
        else:
            steps[failed.number] += 1
    return unnoticed, steps


EVERY = pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.full)], ids=["sampled", "every"]
)


@EVERY
def test_every_single_bit_of_the_file_is_noticed(every: bool) -> None:
    assert CERTIFIED.verify().result == "PASS"
    # Sampled: one bit of each byte, another than of the byte before.
    bits = None if every else range(0, 8 * len(CERTIFIED.bundle), 9)
    unnoticed, steps = survivors(CERTIFIED.bundle, bits)
    assert unnoticed == []
    assert steps.keys() == {1, 2, 4, 5}


def witnessed() -> tuple[bytes, range]:
    """Return the file with a witness's line, and which bits of the file are that line."""
    bundle = json.loads(CERTIFIED.bundle)
    proof = bundle["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]
    text = proof["checkpoint"]["envelope"].rpartition("\n\n")[0] + "\n"
    witness = log_signer("witness.example", b"witness")
    line = sign_note(text, witness).removeprefix(text + "\n")
    proof["checkpoint"]["envelope"] += line
    data = canonical.encode(bundle)
    shown = line.encode().removesuffix(b"\n") + b"\\n"  # as JSON spells it
    start = data.index(shown)
    return data, range(8 * start, 8 * (start + len(shown)))


def flipped(data: bytes, line: range) -> list[int]:
    """Return all bits of the witness's line, and one of every fifth other byte.

    What both files share the test above flips.
    """
    return [*line, *(bit for bit in range(0, 8 * len(data), 41) if bit not in line)]


@EVERY
def test_every_single_bit_of_a_witnessed_file_is_noticed(every: bool) -> None:
    data, line = witnessed()
    witness = log_signer("witness.example", b"witness").verifier
    options: dict[str, Any] = {"witnesses": [witness], "threshold": 1}
    assert CERTIFIED.verify(data, **options).result == "PASS"
    bits = None if every else flipped(data, line)
    unnoticed, steps = survivors(data, bits, **options)
    assert unnoticed == []
    assert steps[6] > 0  # flips in the witness's own line


@EVERY
def test_bits_go_unnoticed_only_in_lines_of_keys_that_were_not_given(every: bool) -> None:
    # What the promise leaves out, and the proof that the two tests above can fail.
    data, line = witnessed()
    assert CERTIFIED.verify(data).result == "PASS"
    unnoticed, _ = survivors(data, None if every else flipped(data, line))
    assert unnoticed
    assert set(unnoticed) <= set(line)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
    | st.sampled_from(["0", "", "AAAA", "2026-11-21T08:30:00Z", {"sha256": "ab" * 32}]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to every node of a JSON document below its root."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found = [(*path, name) for name, _ in items]
    return found + [place for name, item in items for place in places(item, (*path, name))]


def mutated(data: st.DataObject, document: Any) -> bytes:
    """Return the document with one to three nodes replaced, removed or doubled."""
    copy = deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(places(copy)))
        place = copy
        for name in parents:
            place = place[name]
        action = data.draw(st.sampled_from(["replace", "remove", "double"]))
        if action == "remove":
            del place[last]
        elif action == "double" and isinstance(place, list):
            place.append(place[last])
        else:
            # A copy: the next change may go inside it, and the strategy keeps its own.
            place[last] = deepcopy(data.draw(json_values))
        if not places(copy):
            break
    return canonical.encode(copy)


@fuzz(400)
@given(st.data())
def test_a_mutated_bundle_gets_a_verdict(data: st.DataObject) -> None:
    bundle = mutated(data, DOCUMENT)
    verdict = CERTIFIED.verify(bundle)
    assert (verdict.result == "PASS") == (bundle == CERTIFIED.bundle)


@fuzz(400)
@given(st.data())
def test_a_mutated_leaf_gets_a_verdict(data: st.DataObject) -> None:
    entry = DOCUMENT["verificationMaterial"]["tlogEntries"][0]
    leaf = mutated(data, json.loads(base64.b64decode(entry["canonicalizedBody"])))
    bundle = json.loads(CERTIFIED.bundle)
    changed = bundle["verificationMaterial"]["tlogEntries"][0]
    changed["canonicalizedBody"] = format_base64(leaf)
    verdict = CERTIFIED.verify(canonical.encode(bundle))
    same = changed["canonicalizedBody"] == entry["canonicalizedBody"]
    assert (verdict.result == "PASS") == same


@fuzz(400)
@given(st.data())
def test_a_signed_and_logged_mutation_gets_a_verdict_at_step_7_or_later(
    data: st.DataObject,
) -> None:
    payload = mutated(data, STATEMENT)
    verdict = CERTIFIED.verify(Office().seal(payload))
    if verdict.failed is not None:
        assert verdict.failed.number >= 7
    else:  # free text may change: what was signed is then what is said
        assert verdict.statement is not None
        assert json.loads(payload)["predicate"].keys() == STATEMENT["predicate"].keys()


@fuzz(200)
@given(st.data())
def test_mutated_evidence_gets_a_verdict_even_if_it_was_certified(
    data: st.DataObject,
) -> None:
    evidence = mutated(data, EVIDENCE)
    statement = deepcopy(STATEMENT)
    digest = {"sha256": sha256(evidence).hexdigest()}
    statement["predicate"]["retainedSet"]["removalProof"] = digest
    statement["predicate"]["evidence"][0]["digest"] = digest
    verdict = CERTIFIED.verify(Office().seal(canonical.encode(statement)), evidence=evidence)
    assert verdict.failed is None or verdict.failed.number == 9


@fuzz(300)
@given(st.binary(max_size=300))
@example(b"\x000")  # JSON in UTF-16
@example(b"\xef\xbb\xbf0")
def test_any_bytes_get_a_verdict(data: bytes) -> None:
    failed = CERTIFIED.verify(data).failed
    assert failed is not None
    assert failed.number == 1


@fuzz(300)
@given(st.text(max_size=300))
def test_any_checkpoint_text_gets_a_verdict(text: str) -> None:
    bundle = json.loads(CERTIFIED.bundle)
    entry = bundle["verificationMaterial"]["tlogEntries"][0]
    entry["inclusionProof"]["checkpoint"]["envelope"] = text
    data = json.dumps(bundle, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    failed = CERTIFIED.verify(data.encode("utf-8", "surrogatepass")).failed
    assert failed is not None
    assert failed.number in (1, 5)
