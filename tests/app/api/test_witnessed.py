"""From a request to a certificate whose checkpoint a quorum of witnesses cosigned, over HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.ledger.sequencer import Ledger
from app.ledger.startup import create_ml_dsa
from app.service.issued.certificates import issuer_key
from app.settings import Settings
from app.witnesses.rows import WAITING
from lethe.certificates.verify import Verdict, verify_certificate
from lethe.log.checkpoint import open_checkpoint
from lethe.log.note import read_note
from lethe.log.policy import Policy
from lethe.signing.keys import PrivateKey
from tests.app.witnesses.three import Three, gathering, three_witnesses
from tests.installation import Installation, install


@pytest.fixture
def three(tmp_path: Path, settings: Settings, ledger: Ledger, fitted: Any) -> Iterator[Three]:
    with three_witnesses(tmp_path / "witnesses", ledger) as made:
        yield made


@contextmanager
def erased(settings: Settings, key: PrivateKey) -> Iterator[tuple[Installation, str]]:
    """Erase record r1; yields the installation and the request's path."""
    with install(settings) as made:
        made.caller.key = key
        accepted = made.caller.erase_records("r1")
        assert accepted.status_code == 202
        made.drain()
        yield made, f"/v1/requests/{accepted.json()['id']}"


def listed(made: Installation) -> list[str | None]:
    token = {"authorization": f"Bearer {made.caller.token}"}
    items = made.caller.http.get("/v1/requests", headers=token).json()["items"]
    return [item["certificate"] for item in items]


def verdict(made: Installation, data: bytes, policy: Policy) -> Verdict:
    issuer, keyid = issuer_key(made.services)
    return verify_certificate(
        data,
        log=made.services.ledger.verifier,
        issuer=issuer,
        issuer_keyid=keyid,
        policy=policy,
    )


def test_closed_issues_nothing_before_a_quorum_and_then_the_same_bytes_for_ever(
    three: Three, settings: Settings, fitted: PrivateKey
) -> None:
    closed = three.write(settings, "both", witness_fail="closed")
    with erased(closed, fitted) as (made, path), gathering(made.services.ledger, closed) as ask:
        http = made.caller.http
        assert http.get("/v1/log/witnessed").status_code == 404
        waiting = http.get(path).json()
        assert (waiting["state"], waiting["certificate"]) == ("certified", None)
        assert waiting["reason"] == WAITING
        assert listed(made) == [None]
        refused = http.get(f"{path}/certificate")
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:lethe:problem:certificate-not-witnessed"
        assert refused.headers["retry-after"] == "10"

        assert ask.round()
        shown = http.get(path).json()
        assert (shown["certificate"], shown["reason"]) == (f"{path}/certificate", None)
        assert listed(made) == [f"{path}/certificate"]
        data = http.get(f"{path}/certificate").content
        passed = verdict(made, data, three.parsed("both"))
        assert passed.result == "PASS"
        assert (
            passed.steps[5].detail == "2 of 4 witnesses of the policy signed: its quorum is met"
        )
        failed = verdict(made, data, three.parsed("three")).failed
        assert failed is not None
        assert failed.number == 6

        note = http.get("/v1/log/checkpoint").text
        assert note == http.get("/v1/log/witnessed").text
        keys = [made.services.ledger.verifier, *three.parsed("both").keys]
        assert len(read_note(note, keys).verified) == 3
        # The log grows, and is cosigned again: the file stays what it is.
        assert made.caller.erase_records("r2").status_code == 202
        made.drain()
        assert ask.round()
        later = http.get("/v1/log/witnessed").text
        verifier = made.services.ledger.verifier
        assert open_checkpoint(later, verifier).size > open_checkpoint(note, verifier).size
        assert http.get(f"{path}/certificate").content == data
        made.check()


def impatient(settings: Settings) -> Settings:
    """Return settings of which the wait for a quorum is over."""
    return settings.model_copy(update={"witness_wait_seconds": -1})


def test_open_issues_without_a_quorum_after_its_wait_and_the_certificate_shows_it(
    three: Three, settings: Settings, fitted: PrivateKey
) -> None:
    opened = three.write(settings, "three")
    with (
        erased(opened, fitted) as (made, path),
        gathering(made.services.ledger, opened) as patient,
        gathering(made.services.ledger, impatient(opened)) as ask,
    ):
        http = made.caller.http
        assert not patient.round()  # the wait is not over
        assert http.get(f"{path}/certificate").status_code == 409
        assert ask.round()
        data = http.get(f"{path}/certificate").content
        failed = verdict(made, data, three.parsed("three")).failed
        assert failed is not None
        assert failed.detail == ("2 of 4 witnesses of the policy signed: its quorum is not met")
        assert verdict(made, data, three.parsed("both")).result == "PASS"
        assert http.get("/v1/log/witnessed").status_code == 404
        assert not ask.round()  # nothing waits any more
        metrics = made.caller.http.get(
            "/metrics", headers={"authorization": f"Bearer {made.caller.token}"}
        ).text
        assert 'lethe_witness_up{witness="honest.example+' in metrics
        size = made.services.ledger.latest().size
        assert f"lethe_witnessed_lag_entries {float(size)}" in metrics
        made.check()


def test_what_was_issued_before_witnesses_were_asked_stays_as_it_is(
    three: Three, settings: Settings, fitted: PrivateKey
) -> None:
    with erased(settings, fitted) as (made, path):
        before = made.caller.http.get(f"{path}/certificate").content
    closed = three.write(settings, "both", witness_fail="closed")
    with install(closed) as made, gathering(made.services.ledger, closed) as ask:
        assert made.caller.http.get(f"{path}/certificate").content == before
        ask.round()
        assert made.caller.http.get(f"{path}/certificate").content == before


def test_a_certificate_has_both_signatures_of_the_log_and_the_lines_of_witnesses(
    three: Three, settings: Settings, fitted: PrivateKey
) -> None:
    second = create_ml_dsa(settings).verifier
    closed = three.write(settings, "both", witness_fail="closed")
    with erased(closed, fitted) as (made, path), gathering(made.services.ledger, closed) as ask:
        assert ask.round()
        data = made.caller.http.get(f"{path}/certificate").content
        issuer, keyid = issuer_key(made.services)
        verdict = verify_certificate(
            data,
            log=made.services.ledger.verifier,
            issuer=issuer,
            issuer_keyid=keyid,
            policy=three.parsed("both"),
            log_ml_dsa=second,
        )
        assert verdict.result == "PASS"
        assert verdict.steps[4].detail.startswith("Ed25519 and ML-DSA-44 by ")
        assert (
            verdict.steps[5].detail
            == "2 of 4 witnesses of the policy signed: its quorum is met"
        )
        made.check()


def test_closed_issues_nothing_without_a_quorum_however_long_it_waits(
    three: Three, settings: Settings, fitted: PrivateKey
) -> None:
    closed = three.write(settings, "three", witness_fail="closed")
    with (
        erased(closed, fitted) as (made, path),
        gathering(made.services.ledger, impatient(closed)) as ask,
    ):
        assert not ask.round()
        for form in ("", "/html"):
            assert made.caller.http.get(f"{path}/certificate{form}").status_code == 409
        made.check()
