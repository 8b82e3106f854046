"""Reference models and a retrained one in the service: trained, used, destroyed, rechecked."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.problems import NotOverSilosError
from app.schemas.families.networks import NewNetwork
from app.service.registration import register
from lethe.held_out import is_held_out
from tests import small_network
from tests.installation import Installation
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.attempts.ladders import nothing_is_left
from tests.workers.jobs.families.network import networks, test_network_hazards
from tests.workers.jobs.families.network.rechecking import download, rechecked
from tests.workers.jobs.families.network.test_network_hazards import (
    ERASED,
    by_method,
    never_seen,
)
from workers.families.network import (
    empirical as network_empirical,
)
from workers.families.network import ladder
from workers.families.network import reference_models as network_trainings
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim, TrainingCost
from workers.judge.scores.file import decode_scores, encode_scores
from workers.judge.scores.order import CommittedRows
from workers.leases.lease import JobContext
from workers.training.fedavg.errors import DivergedError
from workers.training.replay import models

Patch = pytest.MonkeyPatch
MODELS = 8
# One round, so that a training takes a tenth of a second. In long steps (batches of 64) the attacks
# found so little before the erasure that the last bits of a processor's sums decided the verdict.
SHORT: dict[str, Any] = {"rounds": 1, "batch_size": 16}
ASKED: dict[str, Any] = {
    "attacks": ["lira", "rmia"],
    "references": MODELS,
    "tau": "0.15",  # midway between RMIA's interval before (from .70) and LiRA's after (to .61)
    "distances": {"disagreement": "0.1", "output-kl": "0.05"},
}
MEASURED = {"lira:auc", "lira:tail", "rmia:auc", "rmia:tail", "distance:output-kl"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: judgements do not depend on it."""
    return sqlite_url


def test_what_forgot_passes_and_the_models_are_gone_when_it_is_certified(
    installation: Installation, monkeypatch: Patch, tmp_path: Path
) -> None:
    test_network_hazards.register_memorising(installation, **SHORT, **ASKED)
    by_method(monkeypatch, never_seen, "empirical-approximate")
    request_id = networks.erase(installation, networks.some(*ERASED))
    said = networks.statement(installation, request_id).predicate
    assert said.guarantee.class_ == "empirical-approximate"
    named = {check.name: check for check in said.checks}
    assert named.keys() >= MEASURED
    # What was published is the retrained model itself, bit for bit.
    assert named["distance:parameter-gap"].value.startswith("0, 0 ")
    assert named["distance:logit-mse"].value.startswith("0 on ")
    accuracy = named["retained-accuracy"].value.split(", ")[1].split()[0]
    told = named["distance:retained-accuracy"].value
    assert told.startswith(f"+0.0000: {accuracy} published, {accuracy} retrained, ")
    assert named["distance:retained-accuracy-gap"].value.startswith("0 on ")
    # The cost of a training is proportional to its rows; the method's is one training.
    held = sum(is_held_out(7, 0.4, f"r{n}") for n in range(800))
    gone = sum(not is_held_out(7, 0.4, record) for record in ERASED)
    rows = 800 - held - gone
    half = rows + (held + gone) / 2
    words = named["trainings"].value.split()
    assert words[:3] == [str(MODELS), "reference", "models,"]
    costs = [int(word) for word, then in pairwise(words) if "oper" in then]
    assert costs[0] / costs[1] == pytest.approx(MODELS * half / rows, rel=0.01)
    assert nothing_is_left(installation)

    download(installation, request_id, tmp_path)
    given = ["--scores", str(tmp_path / "scores")]
    again = rechecked(tmp_path, *given)
    assert again["result"] == "AGREES"
    unseen = {line["name"] for line in again["lines"] if line["status"] == "not recomputed"}
    assert {name.partition(" ")[2] for name in unseen} >= {
        "trainings",
        "distance:parameter-gap",
    }
    # A logit of a reference model, changed by its last bit.
    data = bytearray((tmp_path / "scores").read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    data[8 + length + header["references"]["data_offsets"][0]] ^= 1
    (tmp_path / "scores").write_bytes(data)
    with pytest.raises(AssertionError, match="not named by the certificate"):
        rechecked(tmp_path, *given)


def test_what_did_nothing_is_refuted_and_what_cannot_be_trained_stays_open(
    installation: Installation, monkeypatch: Patch, tmp_path: Path
) -> None:
    test_network_hazards.register_memorising(installation, **SHORT, **ASKED)
    found: dict[str, tuple[EmpiricalClaim, CommittedRows]] = {}
    honest, train_file = network_trainings.with_trained, models.train_file

    def late(*_: Any) -> bool:
        return True

    def diverged(*_: Any) -> Any:
        raise DivergedError("planted")

    def every_way(job: JobContext, *more: Any) -> tuple[EmpiricalClaim, CommittedRows]:
        settings = job.services.settings.model_copy(update={"silos": 2})
        services = replace(job.services, settings=settings)
        found["silos"] = honest(replace(job, services=services), *more)
        for name, planted in {"is_late": late, "train_file": diverged}.items():
            with monkeypatch.context() as patch:
                patch.setattr(network_trainings, name, planted)
                found[name] = honest(job, *more)
        begun = iter((train_file, diverged))  # the second training does not converge
        with monkeypatch.context() as patch:
            patch.setattr(network_trainings, "train_file", lambda *a: next(begun)(*a))
            found["second"] = honest(job, *more)
        found["again"] = honest(job, *more)
        return honest(job, *more)

    monkeypatch.setattr(network_empirical, "with_trained", every_way)
    request_id = networks.erase(installation, networks.some(*ERASED), method="natural")
    escalation = escalation_line(
        networks.statement(installation, request_id).predicate.method.parameters
    )
    assert escalation.startswith("natural: FAIL (")
    for name in ("lira:auc", "rmia:auc", "distance:output-kl", "distance:disagreement"):
        assert name in escalation
    download(installation, request_id, tmp_path)
    lines = rechecked(tmp_path, "--scores", str(tmp_path / "escalation.scores"))["lines"]
    assert [one["status"] for one in lines if one["name"] == "attempt 1"] == ["same"]

    # A restarted judge trains the same models.
    kept = (tmp_path / "escalation.scores").read_bytes()
    assert encode_scores(*found["again"]) == kept
    reasons = {
        "silos": network_trainings.WITH_SILOS,
        "is_late": ladder.LATE,
        "train_file": "a training ended in DivergedError",
    }
    for name, reason in reasons.items():
        claim, _ = found[name]
        assert claim.trained == TrainingCost(missing=reason)
        assert (claim.references, claim.retrained) == (None, None)
    assert VERIFIER.verify(found["silos"][0]).result == "INCONCLUSIVE"
    half, whole = found["second"][0].trained, found["again"][0].trained
    assert half is not None
    assert whole is not None
    # The finished trainings are billed, although they are of no use.
    assert 0 < half.references < whole.references
    assert half.missing == reasons["train_file"]
    only_logits_of_scored_rows_are_kept(kept)

    assert nothing_is_left(installation)

    # Over silos such a policy is not registered in the first place.
    services = installation.services
    settings = services.settings.model_copy(update={"silos": 2})
    policy = {**small_network.manifest()["policy"], **ASKED}
    wanted = NewNetwork(**small_network.manifest(ref="another", policy=policy))
    with pytest.raises(NotOverSilosError, match="lira, rmia"):
        register(replace(services, settings=settings), wanted, None)


def only_logits_of_scored_rows_are_kept(scores: bytes) -> None:
    claim, rows = decode_scores(scores)
    assert claim.references is not None
    shape = (MODELS, len(rows.forget) + len(rows.pool), 2)
    assert claim.references.logits.shape == shape
    assert (claim.references.included.sum(axis=0) == MODELS // 2).all()
    # A model trained on a row knows its random label; one that was not guesses.
    assert claim.retrained_retained is not None
    assert claim.retrained_retained.shape == (len(rows.retained), 2)
    known = claim.retrained_retained.argmax(axis=1) == claim.retained_labels
    assert known.mean() > 0.8
    labels = np.concatenate([claim.forget_labels, claim.pool_labels])
    right = claim.references.logits.argmax(axis=2) == labels
    assert right[claim.references.included].mean() > 0.8
    assert 0.4 < right[~claim.references.included].mean() < 0.6


def test_where_too_few_rows_are_tested_nothing_is_trained(
    installation: Installation, monkeypatch: Patch
) -> None:
    policy = {**small_network.manifest()["policy"], **ASKED}
    networks.register(installation, policy=policy)

    def train_file(*_: Any) -> Any:
        raise AssertionError("nothing can be tested, whatever is trained")

    monkeypatch.setattr(network_trainings, "train_file", train_file)
    request_id = networks.erase(installation, networks.some("r0", "r4"))
    said = networks.statement(installation, request_id).predicate
    assert said.guarantee.class_ == "exact-retrained"
    assert f"not trained: {network_trainings.TOO_FEW}" in escalation_line(
        said.method.parameters
    )
