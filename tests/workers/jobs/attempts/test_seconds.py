"""Seconds of an erasure: in certificate and evidence, over all attempts, reported only."""

from dataclasses import replace
from typing import Any

import pytest

from app.service.issued import certificates
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.evidence import parse_evidence
from lethe.certificates.statement import Predicate, parse_statement
from tests.installation import Installation
from workers.updates import update
from workers.updates.update import Encoded, UpdateResult


def predicate_of(ready: Installation, request: str) -> Predicate:
    """Return what the certificate of a request says."""
    file = certificates.bundle(ready.services, request)
    return parse_statement(parse_bundle(file).payload).predicate


def test_a_certificate_states_the_seconds_of_its_stages(ready: Installation) -> None:
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    parameters = predicate_of(ready, request).method.parameters
    assert 0 < float(parameters["cost.seconds"]) < 600
    assert 0 < float(parameters["verification.seconds"]) < 600
    assert "escalation.seconds" not in parameters
    evidence = parse_evidence(certificates.evidence(ready.services, request))
    assert evidence.report.details["verification.seconds"] == parameters["verification.seconds"]
    ready.check()


def refute_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the first judgement from now on fail, whatever is judged."""
    failing = [True]

    def judging(work: Any) -> Any:
        verdicts, spent = update.timed(work)
        if failing:
            failing.clear()
            one = verdicts[0]
            first, *others = one.report.checks
            checks = (replace(first, passed=False), *others)
            report = replace(one.report, result="FAIL", checks=checks)
            verdicts = [replace(one, report=report), *verdicts[1:]]
        return verdicts, spent

    monkeypatch.setattr("workers.jobs.verify.timed", judging)


def test_what_was_refuted_is_counted_apart(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    refute_first(monkeypatch)
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    method = predicate_of(ready, request).method
    assert method.id.endswith("-refit")
    assert {"cost.seconds", "escalation.seconds"} < set(method.parameters)
    ready.check()


def test_a_methods_own_seconds_stay_and_earlier_ones_add_up() -> None:
    made = UpdateResult(Encoded(b"", b"", ""), "m", "1", "exact", {"cost.seconds": "5.1"})
    assert update.with_seconds(made, "9.000").parameters == {"cost.seconds": "5.1"}
    bare = update.with_seconds(replace(made, parameters={}), "9.000")
    assert bare.parameters == {"cost.seconds": "9.000"}
    both = {"cost.seconds": "5.1", "escalation.seconds": "2.25", "batch": "1"}
    assert update.earlier_seconds(both) == {"escalation.seconds": "7.350"}
    assert update.earlier_seconds({"batch": "1"}) == {}
