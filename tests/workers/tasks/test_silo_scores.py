"""An approximate erasure judged over silos: the verdict of one process, and what is missing."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.service.context import Services
from app.settings import Settings
from models import Artifact
from tests.doubles.silos import InlineSilos
from tests.installation import Installation, install
from tests.workers.tasks import networks
from tests.workers.tasks.test_network_hazards import (
    ERASED,
    by_method,
    never_seen,
    register_memorising,
)
from workers.silos import keys
from workers.silos.engine import silo_of
from workers.silos.score_task import ScoreTask
from workers.silos.scores import ClientScores, SiloScores
from workers.tasks import network_before, network_empirical, network_scores
from workers.tasks.network_rows import client_rows
from workers.verifier.empirical import VERIFIER
from workers.verifier.empirical_claim import EmpiricalClaim

Change = Callable[[ClientScores], ClientScores]
GONE = "c1"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: tests/workers/silos has the rows of silos on both."""
    return sqlite_url


@pytest.fixture
def on_silos(settings: Settings, ledger: Ledger) -> Iterator[tuple[Installation, InlineSilos]]:
    """An installation with two silos whose keys are registered; c0 is with silo 1."""
    assert [silo_of(f"c{number}", 2) for number in range(4)] == [1, 0, 0, 0]
    with install(settings.model_copy(update={"silos": 2})) as made:
        silos = InlineSilos(client_rows)
        silos.services = made.services
        made.dispatcher.ask = silos.ask  # type: ignore[method-assign]
        for silo in range(2):
            keys.register(made.settings, silo)
        yield made, silos


def equal(one: Any, two: Any) -> bool:
    """Return whether two values of claims are equal in every bit."""
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.tobytes() == two.tobytes()
    return bool(one == two)


def test_the_verdict_is_that_of_one_process_bit_for_bit(
    on_silos: tuple[Installation, InlineSilos], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = on_silos
    register_memorising(made)
    by_method(monkeypatch, never_seen, "empirical-approximate")
    claims: list[EmpiricalClaim] = []
    claim_of, judge = network_empirical._claim, network_empirical._judge

    def kept(*arguments: Any) -> EmpiricalClaim:
        claims.append(claim_of(*arguments))
        return claims[-1]

    def both(services: Services, asked: network_empirical.Asked) -> Any:
        alone = replace(services, settings=services.settings.model_copy(update={"silos": 0}))
        judge(alone, replace(asked, tasks=[replace(asked.tasks[0], silos=1)]))
        return judge(services, asked)

    monkeypatch.setattr(network_empirical, "_claim", kept)
    monkeypatch.setattr(network_empirical, "_judge", both)
    request_id = networks.erase(made, networks.some(*ERASED))
    here, there = claims
    names = {field.name for field in fields(EmpiricalClaim)} - {"silos"}
    assert [
        name for name in names if not equal(getattr(here, name), getattr(there, name))
    ] == []
    assert len(there.forget_labels) > 100
    assert len(set(there.forget_clients)) == 2
    *same, last = VERIFIER.verify(there).checks
    assert same == list(VERIFIER.verify(here).checks)
    assert (last.name, last.value, last.passed) == ("silos-answered", "2 of 2 silos", True)
    found = networks.statement(made, request_id).predicate
    assert found.guarantee.class_ == "empirical-approximate"
    assert "silos-answered" in {check.name for check in found.checks}
    # The evidence says who signed; neither it nor the certificate names a client.
    path = f"/v1/requests/{request_id}/evidence"
    evidence = made.caller.http.get(path).json()
    keyids = dict(part.split(":") for part in evidence["details"]["silos"].split())
    assert set(keyids) == {"0", "1"}


def test_the_judge_opens_no_rows(
    on_silos: tuple[Installation, InlineSilos], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, silos = on_silos
    networks.register(made)
    inside: list[int] = []
    opened: list[bool] = []

    def score(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        inside.append(task.silo)
        try:
            return network_scores.score(services, task)
        finally:
            inside.pop()

    def decode(data: bytes) -> Any:
        opened.append(bool(inside))
        return honest(data)

    honest = network_before.decode
    silos.score = score
    monkeypatch.setattr(network_before, "decode", decode)
    judged: list[str] = []
    judge = network_empirical._judge

    def no_rows(services: Services, asked: Any) -> Any:
        load = services.features.load

        def within(*arguments: Any) -> bytes:
            assert inside, "rows were opened outside of a silo"
            return load(*arguments)

        monkeypatch.setattr(services.features, "load", within)
        try:
            judged.append(judge(services, asked).report.result)
        finally:
            monkeypatch.setattr(services.features, "load", load)
        return judge(services, asked)

    monkeypatch.setattr(network_empirical, "_judge", no_rows)
    networks.erase(made, networks.whole(GONE))
    assert judged == ["INCONCLUSIVE"]  # too few rows, and every silo answered
    assert opened
    assert all(opened)


def climb(made: Installation, request_id: str) -> str:
    found = networks.statement(made, request_id).predicate
    assert found.guarantee.class_ == "exact-retrained"
    return str(found.method.parameters["climb"])


def test_a_silo_that_does_not_answer_leaves_it_open_and_the_request_is_retrained_for(
    on_silos: tuple[Installation, InlineSilos],
) -> None:
    made, silos = on_silos
    networks.register(made)

    def score(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        if task.silo == 1:
            raise OSError
        return network_scores.score(services, task)

    silos.score = score
    said = climb(made, networks.erase(made, networks.whole(GONE)))
    assert said.startswith("puf-special: INCONCLUSIVE (")
    assert "silos-answered: 1 of 2 silos; an error at the silo: 1" in said
    with Session(made.services.engine) as session:
        kinds = [a.kind for a in session.exec(select(Artifact)) if a.wrapped_key is not None]
    assert "silo-answer" not in kinds


def another_row(one: ClientScores) -> ClientScores:
    return replace(one, held=(bytes(32), *one.held[1:]))


def another_record(one: ClientScores) -> ClientScores:
    return replace(one, commitments=(bytes(32), *one.commitments[1:]))


def another_forgotten(one: ClientScores) -> ClientScores:
    return replace(one, forget=(bytes(32), *one.forget[1:]))


def fewer_forgotten(one: ClientScores) -> ClientScores:
    """What went for this request is said to have gone for another, and is not scored."""
    rows = one.rows_of("forget")
    rest = {
        name: np.delete(getattr(one, name), np.s_[rows], axis=0)
        for name in ("labels", "before", "after")
    }
    return replace(one, forget=(), other=one.forget + one.other, **rest)


CHANGES: dict[Change, str] = {
    another_row: "rows-after: the digest claimed is not the one found",
    another_record: "retained-set: a commitment in before is not 32 bytes",
    another_forgotten: "claim: what was published cannot be evaluated: RefusedError",
    fewer_forgotten: "claim: what was published cannot be evaluated: RefusedError",
}


@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
def test_other_rows_than_those_committed_to_are_refuted_though_signed(
    on_silos: tuple[Installation, InlineSilos], change: Change
) -> None:
    made, silos = on_silos
    networks.register(made)

    def score(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        scores, classes = network_scores.score(services, task)
        chosen = (
            [bool(one.forget) for one in scores.clients].index(True) if not task.silo else 0
        )
        clients = list(scores.clients)
        clients[chosen] = change(clients[chosen]) if not task.silo else clients[chosen]
        return replace(scores, clients=clients), classes

    silos.score = score
    records = [f"r{number}" for number in range(0, 120, 4)]
    said = climb(made, networks.erase(made, networks.some("r1", "r5", "r9", *records[:1])))
    assert said.startswith("puf-special: FAIL (")
    assert CHANGES[change] in said
