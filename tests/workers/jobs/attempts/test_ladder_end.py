"""The end of a ladder: skipped methods, detected changes, and always the retraining."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import ErasureRequest, Model
from models.database.types import utcnow
from tests.installation import Installation, install
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.attempts.ladders import (
    GONE,
    HF_KCU,
    ROWS,
    escalations,
    parameters,
    policy,
    view,
)
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.families.network import networks
from workers.families.network import (
    attempt as network_attempt,
)
from workers.families.network import (
    training as network_training,
)
from workers.families.network.data import before as network_before
from workers.families.network.data.before import Before
from workers.jobs import (
    execute,
    verify,
)
from workers.methods.network.hf_kcu.method import HfKcu

Patch = pytest.MonkeyPatch


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: escalations do not depend on it."""
    return sqlite_url


def test_what_no_other_method_would_change_is_retrained_at_once(
    installation: Installation, monkeypatch: Patch
) -> None:
    """One model, one request after another, each refuted in a different way."""
    networks.register(installation, policy=policy(HF_KCU))

    def escalation(
        outcome: str, *, days: int | None = None, method: str = "puf-special"
    ) -> Any:
        plant(monkeypatch, outcome)
        record = f"r{len(networks.versions(installation))}"
        request_id = networks.submit(installation, networks.some(record), method=method)
        if days is not None:
            due(installation, request_id, days)
        installation.drain()
        (said,) = escalations(installation, request_id)
        assert (said["attempt"], said["method"]) == (2, "retrain")
        told = escalation_line(parameters(installation, request_id))
        assert told.split(" | ")[1:] == said["skipped"]
        return said["skipped"]

    no_better = ["hf-kcu: skipped, it would be judged no better"]
    assert escalation("INCONCLUSIVE") == no_better
    assert escalation("yeom:auc", days=6) == ["hf-kcu: skipped, too near the deadline"]
    assert escalation("yeom:auc", method="hf-kcu") == ["hf-kcu: skipped, it was tried"]


def due(made: Installation, request_id: str, days: int) -> None:
    with Session(made.services.engine) as session:
        late = utcnow() + timedelta(days=days)
        statement = update(ErasureRequest).where(col(ErasureRequest.id) == request_id)
        session.connection().execute(statement.values(due_at=late))
        session.commit()


def test_an_attempt_that_the_budget_does_not_pay_for_is_left_out(
    installation: Installation, monkeypatch: Patch
) -> None:
    cheap = {"method": "natural", "settings": {"recovery": {"rounds": 1}}}
    # The budget covers a round of recovery, but not ten products of all rows.
    networks.register(installation, policy=policy(HF_KCU, cheap, budget="2"))
    plant(monkeypatch, "yeom:auc", "yeom:auc")
    request_id = networks.erase(installation, networks.whole("c1"))
    first, second = escalations(installation, request_id)
    assert first["method"] == "natural(recovery.rounds=1)"
    assert first["skipped"] == ["hf-kcu: skipped, over the budget"]
    assert (second["attempt"], second["method"]) == (3, "retrain")
    told = escalation_line(parameters(installation, request_id))
    assert "| hf-kcu: skipped, over the budget | natural(recovery.rounds=1): FAIL" in told


def refuted_in_place_of(made: Installation, patch: Patch) -> None:
    """Replace the sealed model before by the refuted version, for every reader."""
    honest = network_before.decode

    def decode(data: bytes) -> Before:
        return replace(honest(data), model=networks.published(made))

    patch.setattr(network_before, "decode", decode)


def test_an_attempt_does_not_begin_at_the_refuted_version(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy(HF_KCU))
    planted = plant(monkeypatch, "yeom:auc")
    request_id = networks.submit(installation, networks.whole("c1"))
    # Not yet when the first attempt is judged, which has the honest file before it.
    planted.told = lambda: refuted_in_place_of(installation, monkeypatch)
    installation.drain()
    assert escalation_line(parameters(installation, request_id)).endswith(
        "| hf-kcu: OtherBefore"
    )
    assert networks.published(installation) == networks.retrained(ROWS, GONE)


def test_the_judge_finds_it_too(installation: Installation, monkeypatch: Patch) -> None:
    networks.register(installation, policy=policy(HF_KCU))
    planted = plant(monkeypatch, "yeom:auc")
    monkeypatch.setattr(network_attempt, "check_before", lambda *_: None)
    request_id = networks.submit(installation, networks.whole("c1"))
    planted.told = once(lambda: refuted_in_place_of(installation, monkeypatch))
    installation.drain()
    told = escalation_line(parameters(installation, request_id))
    assert "| hf-kcu: FAIL (model-before: " in told
    assert networks.published(installation) == networks.retrained(ROWS, GONE)


def once(run: Callable[[], None]) -> Callable[[], None]:
    calls = [run]
    return lambda: calls.pop()() if calls else None


def test_no_certificate_without_the_retraining_at_the_end(
    installation: Installation, monkeypatch: Patch
) -> None:
    """Every approximation is refuted and the retraining fails: no certificate is issued."""
    networks.register(installation, policy=policy(HF_KCU))
    plant(monkeypatch, "yeom:auc", "yeom:auc")
    honest = network_training.retrained

    def lazy(*arguments: Any, **named: Any) -> Any:
        made = honest(*arguments, **named)
        head = replace(made.encoded, head=networks.retrained(ROWS, GONE, rounds=1))
        return replace(made, encoded=head)

    monkeypatch.setattr(network_attempt, "retrained", lazy)
    request_id = networks.erase(installation, networks.whole("c1"))
    waiting = networks.request(installation, request_id)
    assert waiting.state == "needs-decision"
    assert view(installation, request_id)["certificate"] is None
    assert view(installation, request_id)["attempt"]["ahead"] == ["decision"]
    monkeypatch.setattr(network_attempt, "retrained", honest)
    decision = {"decision": "retry", "why": "looked"}
    path = f"/v1/requests/{request_id}/decision"
    assert installation.caller.operator("POST", path, json=decision).status_code == 200
    installation.drain()
    assert networks.request(installation, request_id).state == "certified"
    assert networks.published(installation) == networks.retrained(ROWS, GONE)


def test_an_attempt_that_has_become_too_late_is_not_begun(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation, policy=policy(HF_KCU))
    plant(monkeypatch, "yeom:auc")
    request_id = networks.submit(installation, networks.whole("c1"))
    job_id = networks.jobs(installation)[-1].id
    execute.run(installation.services, job_id)
    verify.run(installation.services, job_id)
    due(installation, request_id, days=6)  # it waited for a worker in between
    installation.drain()
    assert escalation_line(parameters(installation, request_id)).endswith(
        "| hf-kcu: too near the deadline"
    )
    assert [e["attempt"] for e in escalations(installation, request_id)] == [2, 2]


def test_an_attempt_that_raises_again_and_again_gives_way(
    settings: Settings, ledger: Ledger, monkeypatch: Patch
) -> None:
    def run(*_: object) -> None:
        raise RuntimeError

    with install(settings.model_copy(update={"max_tries": 2})) as made:
        networks.register(made, policy=policy(HF_KCU))
        plant(monkeypatch, "yeom:auc")
        monkeypatch.setattr(HfKcu, "run", run)
        request_id = networks.erase(made, networks.whole("c1"))
        made.recover()
        assert networks.request(made, request_id).state == "escalated"
        made.recover()
        escalation = escalation_line(parameters(made, request_id))
        assert escalation.endswith("| hf-kcu: given up after 2 tries")
        assert networks.published(made) == networks.retrained(ROWS, GONE)


def test_a_policy_that_was_damaged_meanwhile_does_not_stop_the_judge(
    installation: Installation,
) -> None:
    networks.register(installation, policy=policy(HF_KCU))
    request_id = networks.submit(installation, networks.whole("c1"))
    execute.run(installation.services, networks.jobs(installation)[-1].id)
    with Session(installation.services.engine) as session:
        model = session.exec(select(Model)).one()
        model.config = {**model.config, "policy": None}
        session.add(model)
        session.commit()
    installation.drain()
    waiting = networks.request(installation, request_id)
    assert waiting.state == "needs-decision", waiting.reason
    assert view(installation, request_id)["attempt"]["ahead"] == ["decision"]
