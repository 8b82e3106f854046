"""Approximate erasures that the real service certifies as such, and one that it does not.

Nothing is planted: the rows are generated, the policy is the default one, and the certificate
is checked and its verdict computed again as an auditor would.
"""

import json
import re

import httpx2
import pytest

from benchmarks.earned.task import GONE, OWN, manifest, rows
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.evidence import parse_evidence
from lethe.certificates.statement import Predicate, parse_statement
from lethe.certificates.verify import verify_certificate
from lethe.client import Client
from tests.e2e.harness import Processes, until
from tests.e2e.test_demo import keys
from tests.small import pack

LEAST_PAIRS, TAU = 310, 0.1
CLASS = "empirical-approximate"


@pytest.mark.parametrize("method", ["puf-special", "hf-kcu"])
def test_it_is_certified_as_what_it_is(method: str, on_files: Processes) -> None:
    found = erased(on_files, method)
    assert found.guarantee.class_ == CLASS
    assert found.method.id == method
    assert not any(name.startswith("escalation") for name in found.method.parameters)
    checks = {check.name: check for check in found.checks}
    assert all(check.passed for check in checks.values())
    controls = [check for name, check in checks.items() if name.startswith("control:")]
    afterwards = [check for name, check in checks.items() if name.endswith(":auc")]
    assert len(controls) == len(afterwards) == 4
    for check in controls:  # found before, by the whole interval
        assert check.interval is not None
        assert float(check.interval[0]) > 0.5 + TAU
    for check in afterwards:  # and not after
        assert check.interval is not None
        low, high = map(float, check.interval)
        assert 0.5 - TAU < low < high < 0.5 + TAU
    pairs = re.search(r"(\d+) pairs", checks["samples"].value)
    assert pairs is not None
    assert int(pairs[1]) >= LEAST_PAIRS
    rechecked(on_files)


def test_recovery_without_a_step_is_refuted_and_retrained(on_files: Processes) -> None:
    found = erased(on_files, "natural")
    assert found.guarantee.class_ == "exact-retrained"
    (attempt,) = json.loads(found.method.parameters["escalation.attempts"])["attempts"]
    assert (attempt["method"], attempt["result"]) == ("natural", "FAIL")
    checks = {check["name"]: check for check in attempt["checks"]}
    for name in ("shokri", "song-confidence", "song-modified-entropy", "yeom"):
        assert checks[f"control:{name}"]["passed"]
        assert not checks[f"{name}:auc"]["passed"]
        assert float(checks[f"{name}:auc"]["interval"][0]) > 0.5 + TAU, (
            "what is left is measured"
        )


def erased(service: Processes, method: str) -> Predicate:
    """Have a method erase the largest client by a signed request; return what is certified.

    Certificate, evidence, scores and policy are left in the service's directory.
    """
    # Training runs in the worker: a lease of two seconds would be lost on busy processors.
    service.more = {"LETHE_LEASE_SECONDS": "30"}
    service.start_api()
    service.start_worker()
    with service.operator() as operator:
        operator.register_key(service.key, keyid="alice")
        operator.register_model(manifest(method, "learned"), pack(rows()))
        until(lambda: operator.model("learned")["state"] == "ready", "a fit", service.worker)
        write(service, "policy", json.dumps(operator.model("learned")).encode())
    with service.requester() as requester:
        receipt = requester.submit_erasure("learned", client=GONE)
        status = requester.wait(receipt.id, timeout=240)
        assert status.state == "certified", status
        return kept(service, requester, receipt.id)


def kept(service: Processes, requester: Client, request_id: str) -> Predicate:
    """Keep what the certificate of a request names; return what it says."""
    bundle, evidence = requester.certificate(request_id), requester.evidence(request_id)
    verdict = verify_certificate(bundle, evidence=evidence, **keys(service.directory / "data"))
    assert verdict.result == "PASS", verdict.steps
    write(service, "certificate", bundle)
    write(service, "evidence", evidence)
    found = parse_statement(parse_bundle(bundle).payload).predicate
    assert len(parse_evidence(evidence).removal.records) == OWN
    (scores,) = found.evidence[1:]
    printed = service.cli("token", "new", "--scope", "auditor", "--name", "auditor").stdout
    answer = httpx2.get(
        f"{service.base_url}/v1/scores/{scores.digest}",
        headers={"authorization": f"Bearer {printed.split()[-1]}"},
    )
    assert answer.status_code == 200
    write(service, "scores", answer.content)
    return found


def rechecked(service: Processes) -> None:
    """Check that an auditor reaches the verdict again from the scores, offline."""
    command = ["certificate", "recheck", str(service.directory / "certificate")]
    for name in ("evidence", "scores", "policy"):
        command += [f"--{name}", str(service.directory / name)]
    said = service.cli(*command)
    assert said.stdout.startswith("AGREES"), said.stdout


def write(service: Processes, name: str, content: bytes) -> None:
    """Keep a file in the service's directory."""
    (service.directory / name).write_bytes(content)
