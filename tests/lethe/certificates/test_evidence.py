"""The evidence file is bound to its certificate and proves what the certificate says."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from lethe import canonical
from lethe.certificates.errors import RemovalError, ShapeError
from lethe.certificates.evidence import (
    build_evidence,
    check_evidence,
    evidence_part,
    parse_evidence,
    prove_removal,
)
from lethe.certificates.retained_tree import RetainedTree
from lethe.certificates.shape import write
from lethe.certificates.statement import CheckPart, RetainedSet
from tests.lethe.certificates.build import commitments, contents, salts
from tests.lethe.certificates.leaves import bare
from tests.lethe.changes import put

EVIDENCE, PREDICATE = contents()


def test_the_file_has_exactly_its_members() -> None:
    document = json.loads(EVIDENCE)
    assert document.keys() == {"apiVersion", "kind", "removal", "report", "statistics"}
    assert (document["apiVersion"], document["kind"]) == ("2", "erasure-evidence")
    assert document["report"].keys() == {"verifier", "result", "checks", "details"}
    assert canonical.encode(document) == EVIDENCE


def test_the_file_is_parsed_back_and_checked() -> None:
    parsed = parse_evidence(EVIDENCE)
    again = build_evidence(write(parsed.removal), parsed.report, parsed.statistics)
    assert again == EVIDENCE
    check_evidence(EVIDENCE, PREDICATE)


def test_the_certificate_says_which_file() -> None:
    part = evidence_part("evidence/x.json", b"abc")
    assert part.digest == sha256(b"abc").hexdigest()
    assert PREDICATE.evidence[0].digest == PREDICATE.retained_set.removal_proof


def test_another_file_is_refused_even_if_its_proofs_hold() -> None:
    other, _ = contents(erased=("record-3", "record-42"))
    with pytest.raises(RemovalError, match="not the evidence file"):
        check_evidence(other, PREDICATE)


def certified(change: Callable[[dict[str, Any]], None]) -> tuple[bytes, Any]:
    """Return a changed evidence file and a predicate that certifies just that file."""
    document = json.loads(EVIDENCE)
    change(document)
    data = canonical.encode(document)
    retained = replace(PREDICATE.retained_set, removal_proof=sha256(data).hexdigest())
    return data, replace(PREDICATE, retained_set=retained)


def other_removal(document: dict[str, Any]) -> None:
    known = salts(60)
    tree = RetainedTree(bare(commitments(known)))
    document["removal"] = prove_removal(tree, {"record-5": known["record-5"]})


BAD: dict[str, tuple[Callable[[dict[str, Any]], None], type[Exception], str]] = {
    "another removal": (other_removal, RemovalError, "other retained sets"),
    "another salt": (
        put("removal", "records", 0, "salt", value="A" * 43 + "="),
        RemovalError,
        "record 1",
    ),
    "another check": (
        put("report", "checks", 0, "value", value="0"),
        RemovalError,
        "other checks",
    ),
    "a check fewer": (
        put("report", "checks", value=[]),
        RemovalError,
        "other checks",
    ),
    "another result": (
        put("report", "result", value="INCONCLUSIVE"),
        RemovalError,
        "other checks",
    ),
    "another verifier": (
        put("report", "verifier", "version", value="0.0.9"),
        RemovalError,
        "other checks",
    ),
    "unknown member": (put("note", value="x"), ShapeError, "exactly"),
    "another kind": (put("kind", value="erasure-event"), ShapeError, "kind"),
    "a number": (put("report", "details", value={"rows": 58}), ShapeError, "details"),
    "a digest cut short": (put("statistics", value={"gram": {}}), ShapeError, "statistics"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_certified_file_that_does_not_hold_is_refused(name: str) -> None:
    change, error, message = BAD[name]
    data, predicate = certified(change)
    with pytest.raises(error, match=message):
        check_evidence(data, predicate)


def test_a_certified_file_that_is_no_evidence_is_refused() -> None:
    retained = replace(PREDICATE.retained_set, removal_proof=sha256(b"a PDF").hexdigest())
    with pytest.raises(canonical.NotCanonicalError):
        check_evidence(b"a PDF", replace(PREDICATE, retained_set=retained))


def test_a_certificate_of_other_sets_is_refused() -> None:
    state = PREDICATE.retained_set
    other = RetainedSet(state.before, state.before, state.removal_proof)
    with pytest.raises(RemovalError, match="other retained sets"):
        check_evidence(EVIDENCE, replace(PREDICATE, retained_set=other))


def test_a_certificate_of_other_checks_is_refused() -> None:
    checks = (CheckPart(1, "none", "value", "0", None, None, True),)
    with pytest.raises(RemovalError, match="other checks"):
        check_evidence(EVIDENCE, replace(PREDICATE, checks=checks))
