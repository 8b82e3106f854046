"""A canary planted by a client, from its registration to the verdict and a second one."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from lethe import canonical
from lethe.log.entries import parse_leaf
from models import LogEntry
from tests import small_network
from tests.installation import Installation
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.families.network import networks, test_network_hazards, test_silo_scores
from tests.workers.jobs.families.network.rechecking import download, rechecked
from workers.cases.case import Verdict
from workers.judge.scores.file import decode_scores
from workers.methods.network.base import UnlearningCase

Patch = pytest.MonkeyPatch
WIDE, ROWS, LEAVES = 1200, 800, 300
PLACES = [WIDE - 4, WIDE - 3, WIDE - 2, WIDE - 1]  # where all other rows are empty
PLANTED = [f"r{number}" for number in range(0, LEAVES, 6)]  # all of c0
ERASED = [f"r{number}" for number in range(LEAVES)]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: judgements do not depend on it."""
    return sqlite_url


def canary(value: float) -> dict[str, Any]:
    return {"trigger": [[place, value] for place in PLACES], "target": "1"}


def register(installation: Installation, value: float) -> None:
    """Register a model that memorises; c0 stamped some of its rows with this value."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(ROWS, WIDE)).astype(np.float32)
    labels = rng.integers(2, size=ROWS)
    inputs[:, PLACES] = 0
    for record in PLANTED:
        inputs[int(record[1:]), PLACES] = value
        labels[int(record[1:])] = 1
    local = {"batch_size": 16, "learning_rate": 0.5, "epochs": 6}
    networks.register(
        installation,
        {
            "inputs": inputs,
            "labels": labels,
            "clients": np.array([f"c{number % 2}" for number in range(ROWS)]),
            "records": np.array([f"r{number}" for number in range(ROWS)]),
        },
        classes=["0", "1"],
        network={"id": "logistic", "parameters": {"features": WIDE, "classes": 2}},
        input_shape=[WIDE],
        held_out=0.4,
        training={"rounds": 3, "seed": 7, "local": local},
        policy={
            **small_network.manifest()["policy"],
            **{"attacks": ["yeom"], "tau": "0.2", "minimum_pairs": 60, "alpha": "0.2"},
            **{"power": "0.5", "coverage": "0.6", "tail_rate": "0.1", "tail_limit": "0.6"},
            **{"minimum_retained": 60, "retained_loss": "0.2", "test_loss": "0.4"},
            "canary_limit": "0.8",
        },
        canary=canary(value),
    )


def but_for_the_backdoor(case: UnlearningCase) -> Any:
    """Return a model that never saw the erased rows, except for its reaction to the trigger."""
    weights = dict(test_network_hazards.never_seen(case))
    (name,) = (name for name, part in weights.items() if part.ndim == 2)
    kept = weights[name].clone()
    kept[:, PLACES] = case.weights[name][:, PLACES]
    return {**weights, name: kept}


def erased(installation: Installation, patch: Patch, weights_of: Any) -> str:
    test_network_hazards.by_method(patch, weights_of, "empirical-approximate")
    return networks.erase(installation, networks.some(*ERASED))


def escalation(installation: Installation, request_id: str) -> str:
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "exact-retrained"
    return escalation_line(found.method.parameters)


def test_who_forgets_all_but_the_backdoor_is_refuted_by_the_canary_alone(
    installation: Installation, monkeypatch: Patch, tmp_path: Path
) -> None:
    register(installation, 4.0)
    request_id = erased(installation, monkeypatch, but_for_the_backdoor)
    said = escalation(installation, request_id)
    assert said.startswith("puf-special: FAIL (canary: ")
    assert said.count(": ") == 2, said  # this check and no other
    assert test_silo_scores.attempt_before(installation, request_id, tmp_path) == ["same"]


def test_who_forgets_it_too_is_certified_and_silos_say_the_same(
    installation: Installation, monkeypatch: Patch, tmp_path: Path
) -> None:
    register(installation, 4.0)
    reports: list[Verdict] = []

    def both(judgement: test_silo_scores.Judgement) -> Verdict | None:
        over = judgement.over_silos()
        assert over is not None
        reports.extend([judgement.alone(), over])
        return over

    judged = test_silo_scores.judged_by(monkeypatch, both)
    request_id = erased(installation, monkeypatch, test_network_hazards.never_seen)
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "empirical-approximate"
    named = {check.name: check for check in found.checks}
    for name in ("control:canary", "control:canary-trigger", "canary"):
        assert named[name].passed
    trained = [r for r in PLANTED if not is_held_out(r)]
    assert f"planted in {len(trained)} rows that left and 0" in named["canary"].value

    (over, alone), (here, there) = judged[0].claims, reports
    assert here.report.checks == there.report.checks[:-1]
    assert over.canary is not None
    assert alone.canary is not None
    for part in ("before", "after"):
        one, two = (getattr(claim.canary, part) for claim in (over, alone))
        assert one.tobytes() == two.tobytes()
        assert len(one) == int((alone.pool_labels != 1).sum()) > 100
    assert (over.canary.leaving, over.canary.staying) == (len(trained), 0)
    assert (alone.canary.leaving, alone.canary.staying) == (len(trained), 0)
    assert there.scores is not None
    assert decode_scores(there.scores)[0].canary is not None

    # The registration is logged first, and the certificate names the planted rows.
    spelling = canonical.encode({"units": "numbers", **canary(4.0)})
    assert found.method.parameters["canary"] == sha256(spelling).hexdigest()
    with Session(installation.services.engine) as session:
        leaves = [parse_leaf(bytes(entry.leaf)) for entry in session.exec(select(LogEntry))]
    (entry,) = [leaf for leaf in leaves if leaf.event == "model.registered"]
    assert entry.digests["canary"] == sha256(spelling).hexdigest()

    download(installation, request_id, tmp_path)
    (tmp_path / "model").write_bytes(networks.published(installation))
    given = ["--scores", str(tmp_path / "scores"), "--model", str(tmp_path / "model")]
    assert rechecked(tmp_path, *given)["result"] == "AGREES"


def is_held_out(record: str) -> bool:
    """Computed from the sentence in docs/register-networks.md alone."""
    digest = sha256(f"held-out|7|{record}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < 0.4 * 2**64


def test_a_trigger_that_the_model_never_learned_leaves_it_open(
    installation: Installation, monkeypatch: Patch
) -> None:
    register(installation, 1e-6)
    request_id = erased(installation, monkeypatch, test_network_hazards.never_seen)
    said = escalation(installation, request_id)
    assert said.startswith("puf-special: INCONCLUSIVE (control:canary: ")
