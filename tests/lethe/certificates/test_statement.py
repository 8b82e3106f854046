"""The statement says exactly the fields of its format, and does not contradict itself."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lethe import canonical
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import (
    CheckPart,
    ModelPart,
    Predicate,
    Scope,
    Statement,
    Subject,
    VersionPart,
    build_statement,
    parse_statement,
    statement_schema,
)
from tests.lethe.certificates.build import BEFORE, MODEL, contents, digest_of
from tests.schemas import validator

SUBJECT = Subject("digits-head/7", digest_of(MODEL))
PREDICATE = contents()[1]
DOCS = Path(__file__).parents[3] / "docs"

# design of the predicate: every member, and the members of each part
MEMBERS: dict[str, set[str]] = {
    "": {
        "certificateId",
        "requestRef",
        "requestLogIndex",
        "requestCommitment",
        "completedAt",
        "supersedes",
        "model",
        "scope",
        "retainedSet",
        "method",
        "guarantee",
        "checks",
        "result",
        "purged",
        "evidence",
        "verifier",
    },
    "model": {"ref", "versionBefore", "versionAfter"},
    "scope": {"level", "records", "recordsRoot"},
    "retainedSet": {"before", "after", "removalProof"},
    "method": {"id", "version", "parameters", "codeDigest", "environment"},
    "guarantee": {"class", "statement", "bounds"},
    "checks": {"number", "name", "quantity", "value", "interval", "threshold", "passed"},
    "purged": {"artifacts", "featureRows", "keysDestroyed"},
    "evidence": {"name", "digest", "mediaType"},
    "verifier": {"id", "version", "codeDigest"},
}


def written() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(build_statement([SUBJECT], PREDICATE))
    return document


def test_it_is_an_in_toto_statement_of_the_model_after() -> None:
    document = written()
    assert document.keys() == {"_type", "subject", "predicateType", "predicate"}
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://w3id.org/lethe-ledger/erasure-certificate/v1"
    digest = {"sha256": digest_of(MODEL)}
    assert document["subject"] == [{"name": "digits-head/7", "digest": digest}]


@pytest.mark.parametrize("part", MEMBERS)
def test_each_part_has_exactly_its_members(part: str) -> None:
    found = written()["predicate"][part] if part else written()["predicate"]
    assert set(found[0] if isinstance(found, list) else found) == MEMBERS[part]


def test_no_number_is_a_json_number() -> None:
    def numbers(value: Any) -> list[Any]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return [found for item in value for found in numbers(item)]
        return [value] if isinstance(value, int | float) and value not in (True, False) else []

    assert numbers(written()) == []
    assert numbers({"planted": [1.5]}) == [1.5]


def test_what_was_built_is_parsed_back() -> None:
    statement = parse_statement(build_statement([SUBJECT], PREDICATE))
    assert statement.predicate == PREDICATE
    assert statement.subject == (SUBJECT,)
    assert isinstance(statement, Statement)


def checks(*passed: bool, first: int = 1) -> tuple[CheckPart, ...]:
    return tuple(
        CheckPart(number, "name", "value", "0", None, None, outcome)
        for number, outcome in enumerate(passed, start=first)
    )


SAME = VersionPart(digest_of(MODEL))
CONTRADICTIONS: dict[str, Callable[[Predicate], Predicate]] = {
    "PASS with a failed check": lambda p: replace(p, checks=checks(True, False)),
    "PASS without checks": lambda p: replace(p, checks=()),
    "checks from zero": lambda p: replace(p, checks=checks(True, True, first=0)),
    "checks out of order": lambda p: replace(p, checks=checks(True, True)[::-1]),
    "nothing erased": lambda p: replace(p, scope=Scope("sample", 0, p.scope.records_root)),
    "proof not in the evidence": lambda p: replace(p, evidence=()),
    "subject is not the model after": lambda p: replace(
        p, model=ModelPart("m", SAME, VersionPart(digest_of(b"third")))
    ),
    "id is no UUID": lambda p: replace(p, certificate_id="17"),
    "negative index": lambda p: replace(p, request_log_index=-1),
    "commitment of 31 bytes": lambda p: replace(p, request_commitment=bytes(31)),
    "level not known": lambda p: replace(
        p,
        scope=Scope("group", 1, bytes(32)),  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_is_not_built(name: str) -> None:
    with pytest.raises(ShapeError):
        build_statement([SUBJECT], CONTRADICTIONS[name](PREDICATE))


SUBJECTS: dict[str, list[Subject]] = {
    "none": [],
    "the model before as well": [SUBJECT, Subject("before", digest_of(BEFORE))],
    "one artifact twice": [SUBJECT, Subject("again", SUBJECT.digest)],
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_subject_is_the_model_after_and_only_that(name: str) -> None:
    with pytest.raises(ShapeError, match="subject"):
        build_statement(SUBJECTS[name], PREDICATE)


def test_an_erasure_that_changed_no_byte_can_be_certified() -> None:
    predicate = replace(PREDICATE, model=ModelPart("m", SAME, SAME))
    assert parse_statement(build_statement([SUBJECT], predicate))


def test_a_failed_removal_can_be_certified_as_failed() -> None:
    predicate = replace(PREDICATE, result="FAIL", checks=checks(True, False))
    assert parse_statement(build_statement([SUBJECT], predicate)).predicate.result == "FAIL"


def change(path: str, value: Any) -> bytes:
    document = written()
    place: Any = document
    *parents, last = path.split("/")
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return canonical.encode(document)


BAD: dict[str, tuple[str, Any]] = {
    "another statement version": ("_type", "https://in-toto.io/Statement/v0.1"),
    "another predicate": (
        "predicateType",
        "https://w3id.org/lethe-ledger/erasure-certificate/v2",
    ),
    "unknown member": ("predicate/note", "x"),
    "missing member": ("predicate/purged", None),
    "missing supersedes": ("predicate/supersedes", None),
    "unknown guarantee": ("predicate/guarantee/class", "perfect"),
    "number": ("predicate/scope/records", 2),
    "time with an offset": ("predicate/completedAt", "2026-11-21T08:30:00+00:00"),
    "passed as text": ("predicate/checks/0/passed", "true"),
    "interval of one": ("predicate/checks/0/interval", ["0"]),
    "result contradicts": ("predicate/checks/0/passed", False),
}


@pytest.mark.parametrize("name", BAD)
def test_another_shape_is_refused(name: str) -> None:
    with pytest.raises(ShapeError):
        parse_statement(change(*BAD[name]))


def test_a_predicate_of_a_later_version_is_refused_by_its_type_and_not_by_its_members() -> None:
    document = written()
    document["predicateType"] = "https://w3id.org/lethe-ledger/erasure-certificate/v2"
    document["predicate"]["note"] = "x"
    with pytest.raises(ShapeError, match=r"erasure-certificate/v1.*newer release"):
        parse_statement(canonical.encode(document))
    del document["predicate"]
    with pytest.raises(ShapeError, match="newer release"):
        parse_statement(canonical.encode(document))


def test_an_open_list_may_grow_within_the_version() -> None:
    further = CheckPart(3, "of-a-later-release", "something", "1", None, None, passed=True)
    predicate = replace(PREDICATE, checks=(*checks(True, True), further))
    assert (
        parse_statement(build_statement([SUBJECT], predicate)).predicate.checks[-1] == further
    )


def test_the_published_schema_is_that_of_this_version() -> None:
    # Whoever read v1 reads it for years: another member is another predicate type (ADR 0042).
    published = json.loads((DOCS / "schemas/erasure-certificate-v1.json").read_text())
    assert statement_schema() == published
    validator(published)


def test_a_schema_validator_accepts_what_is_written() -> None:
    validator(statement_schema()).validate(written())


@pytest.mark.parametrize("name", [name for name in BAD if name != "result contradicts"])
def test_a_schema_validator_refuses_another_shape(name: str) -> None:
    document = json.loads(change(*BAD[name]))
    assert not validator(statement_schema()).is_valid(document)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"a":1,"a":1}', b"\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((ShapeError, canonical.NotCanonicalError)):
        parse_statement(data)


def test_another_spelling_of_the_same_statement_is_refused() -> None:
    with pytest.raises(canonical.NotCanonicalError):
        parse_statement(json.dumps(written()).encode())
