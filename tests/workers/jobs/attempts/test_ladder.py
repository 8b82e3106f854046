"""A refuted network erasure follows the ladder from the model before, and is certified."""

from hashlib import sha256
from typing import Any

import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.certificates.statement import read_escalation
from tests import small_network
from tests.doubles.silos import InlineSilos
from tests.installation import Installation, install
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.attempts.ladders import (
    GONE,
    HF_KCU,
    ROWS,
    STRONGER,
    escalations,
    nothing_is_left,
    parameters,
    policy,
    readable,
    view,
)
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.families.network import networks
from workers.families.base import client_rows
from workers.families.network import case as network_case
from workers.methods.network.registry import make
from workers.silos import keys
from workers.training.replay import models

Patch = pytest.MonkeyPatch
ATTEMPT = ["escalated", "executed", "verified"]
LAST = ("retrain", "decision")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: escalations do not depend on it."""
    return sqlite_url


def test_three_attempts_are_escalated_and_told_and_the_last_is_the_retraining(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy(STRONGER, HF_KCU))
    first = networks.published(installation)
    planted = plant(monkeypatch, "yeom:auc", "test-accuracy", "yeom:tail")
    on_the_way: list[dict[str, Any]] = []
    request_id = networks.submit(installation, networks.whole("c1"))
    planted.told = lambda: on_the_way.append(view(installation, request_id)["attempt"])
    installation.drain()
    assert networks.events(installation, request_id) == [
        *("received", "executing", "executed", "verified", *ATTEMPT * 3, "certified")
    ]
    label = "puf-special(guard.rise=2)"
    said = [
        (e["result"], e["attempt"], e["method"]) for e in escalations(installation, request_id)
    ]
    assert said == [("FAIL", 2, label), ("FAIL", 3, "hf-kcu"), ("FAIL", 4, "retrain")]
    assert on_the_way == [
        {"number": 1, "method": "puf-special", "ahead": [label, "hf-kcu", *LAST]},
        {"number": 2, "method": label, "ahead": ["hf-kcu", *LAST]},
        {"number": 3, "method": "hf-kcu", "ahead": [*LAST]},
    ]
    assert view(installation, request_id)["attempt"] == {
        **{"number": 4, "method": "retrain", "ahead": []}
    }
    versions = networks.versions(installation)
    assert [version.step for version in versions] == [1, 1, 2, 3, 4]
    # HF-KCU started from the model before: run on the arrays, it gives the same file.
    assert versions[3].head_digest == digest(networks.forgotten(ROWS, first, "hf-kcu", "c1"))
    assert networks.published(installation) == networks.retrained(ROWS, GONE)
    told = parameters(installation, request_id)
    assert told["asked"] == "puf-special"
    assert escalation_line(told) == (
        "puf-special: FAIL (yeom:auc: planted) | "
        f"{label}: FAIL (test-accuracy: planted) | hf-kcu: FAIL (yeom:tail: planted)"
    )
    attempts = read_escalation(told)
    assert [
        (attempt.method, attempt.result, attempt.checks[-1].name) for attempt in attempts
    ] == [
        ("puf-special", "FAIL", "yeom:auc"),
        (label, "FAIL", "test-accuracy"),
        ("hf-kcu", "FAIL", "yeom:tail"),
    ]
    assert {attempt.checks[-1].threshold for attempt in attempts} == {"planted"}
    assert int(told["escalation.flops"]) == sum(costs(first))
    found = networks.statement(installation, request_id).predicate
    assert found.method.id == "retrain"
    # Head and state of the model before and of three refuted versions.
    assert len(found.purged.artifacts) == 8
    # Every judgement spends alpha, on any attempt.
    assert [claim.requests_before for claim in planted.seen] == [0, 1, 2]
    assert nothing_is_left(installation)
    installation.check()


def digest(file: bytes) -> str:
    return sha256(file).hexdigest()


def costs(first: bytes) -> list[int]:
    """Return the operations of the three methods, run on the arrays themselves."""
    weaker = small_network.manifest()["settings"]["puf-special"]
    cases = [("puf-special", weaker), ("puf-special", {**weaker, "guard": {"rise": 2}})]
    return [
        make(method, settings).run(networks.case_of(ROWS, first, "c1")).work.flops
        for method, settings in [*cases, ("hf-kcu", {})]
    ]


def test_a_later_attempt_that_passes_is_certified_as_what_it_is(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy(HF_KCU))
    planted = plant(monkeypatch, "retained-accuracy")
    request_id = networks.erase(installation, networks.some("r0", "r1"))
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "empirical-approximate"
    assert found.method.id == found.method.parameters["method"] == "hf-kcu"
    assert found.method.parameters["attempt"] == "2"
    assert found.method.parameters["asked"] == "puf-special"
    assert {c.name for c in found.checks if c.passed} >= {"model-before", "rows-before"}
    # Judged on the erased rows that were trained on.
    config, clients, _ = networks.federated(ROWS, set())
    left = networks.federated(ROWS, {"r0", "r1"})[1]
    gone = sum(map(len, clients.values())) - sum(map(len, left.values()))
    assert config.rounds == 3
    assert [len(claim.forget_labels) for claim in planted.seen] == [gone, gone]
    assert nothing_is_left(installation)


def test_the_rows_that_go_are_asked_though_no_silo_holds_them_any_more(
    settings: Settings, ledger: Ledger, monkeypatch: Patch
) -> None:
    with install(settings.model_copy(update={"silos": 2})) as made:
        for silo in range(2):
            keys.register(made.settings, silo)
        inline = InlineSilos(client_rows)
        inline.services = made.services
        made.dispatcher.ask = inline.ask  # type: ignore[method-assign]
        networks.register(made, policy=policy(STRONGER))
        first = networks.published(made)
        plant(monkeypatch, "yeom:auc")
        networks.erase(made, networks.whole("c1"), method="hf-kcu")
        weaker = small_network.manifest()["settings"]["puf-special"]
        stronger = make("puf-special", {**weaker, "guard": {"rise": 2}})
        case = networks.case_of(ROWS, first, "c1")
        assert networks.versions(made)[-1].step == 2
        assert networks.published(made) == networks.encode(case, stronger.run(case))


def test_those_executed_together_escalate_together(
    settings: Settings, ledger: Ledger, monkeypatch: Patch
) -> None:
    waiting = {"batch_min_requests": 3, "batch_max_wait_seconds": 3600}
    with install(settings.model_copy(update=waiting)) as made:
        networks.register(made, policy=policy(HF_KCU))
        # The first request escalates to HF-KCU and passes; the second is refuted there too.
        planted = plant(monkeypatch, "yeom:auc", "PASS", "yeom:auc")
        ids = [networks.submit(made, networks.some(r)) for r in ("r0", "r2", "r3")]
        made.drain()
        assert [networks.request(made, one).state for one in ids] == ["certified"] * 3
        assert [version.step for version in networks.versions(made)] == [1, 1, 2, 3]
        methods = [networks.statement(made, one).predicate.method for one in ids]
        assert [method.id for method in methods] == ["hf-kcu", "retrain", "retrain"]
        lines = [escalation_line(method.parameters).split(" | ") for method in methods]
        alone = "puf-special: not judged by itself"
        assert lines == [
            ["puf-special: FAIL (yeom:auc: planted)"],
            [alone, "hf-kcu: FAIL (yeom:auc: planted)"],
            [alone, "hf-kcu: not judged by itself"],
        ]
        assert [claim.requests_before for claim in planted.seen] == [0, 1, 2]
        told = [[(e["attempt"], e["method"]) for e in escalations(made, one)] for one in ids]
        assert told == [[(2, "hf-kcu")], *[[(2, "hf-kcu"), (3, "retrain")]] * 2]
        gone = {"r0", "r2", "r3"}
        assert networks.published(made) == networks.retrained(ROWS, gone)
        assert nothing_is_left(made)
        made.check()


def test_an_attempt_without_a_model_gives_way_to_the_retraining_in_the_log(
    installation: Installation, monkeypatch: Patch
) -> None:
    never = {"method": "puf-special", "settings": {"guard": {"rise": 0, "trials": 1}}}
    networks.register(installation, policy=policy(never, HF_KCU))
    plant(monkeypatch, "yeom:auc")
    sealed: list[bool] = []
    honest = models.reexecute

    def reexecute(*arguments: Any) -> Any:
        sealed.append("before" in readable(installation))
        return honest(*arguments)

    monkeypatch.setattr(network_case, "reexecute", reexecute)
    request_id = networks.erase(installation, networks.whole("c1"))
    assert sealed == [False]  # the retraining is not compared with the model before
    found = escalations(installation, request_id)
    assert [(e["result"], e["attempt"], e["method"]) for e in found] == [
        ("FAIL", 2, "puf-special(guard.rise=0,guard.trials=1)"),
        ("NONE", 2, "retrain"),
    ]
    told = parameters(installation, request_id)
    assert escalation_line(told).endswith(
        "| puf-special(guard.rise=0,guard.trials=1): NoSafeStep"
    )
    assert networks.published(installation) == networks.retrained(ROWS, GONE)
    assert nothing_is_left(installation)
