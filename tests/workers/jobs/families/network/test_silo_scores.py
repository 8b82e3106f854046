"""An approximate erasure judged over silos: the same verdict as in one process, and gaps.

Only the judgement goes to silos here; trainings over them are in test_network_silos.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app.service.access import silo_keys
from app.service.context import Services
from lethe.certificates.statement import read_escalation
from lethe.signing.keys import fingerprint
from models import Artifact, Subject
from tests import small_network
from tests.doubles.silos import InlineSilos
from tests.installation import Installation
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.families.network import networks, test_network_hazards
from tests.workers.jobs.families.network.rechecking import download, rechecked
from workers.cases.case import Verdict
from workers.errors import RefusedError
from workers.families.base import client_rows
from workers.families.network import (
    empirical as network_empirical,
)
from workers.families.network.data import before as network_before
from workers.families.network.data.blocks import InputBlock
from workers.families.network.scores import answer as network_scores
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.scores.file import decode_scores, encode_scores
from workers.judge.scores.order import CommittedRows, problem_with
from workers.judge.silos import SilosClaim
from workers.silos import keys
from workers.silos.answer import Score
from workers.silos.collect import UNLOGGED
from workers.silos.engine import silo_of
from workers.silos.score_task import ScoreTask
from workers.silos.scores import ClientScores, SiloScores

Patch = pytest.MonkeyPatch
Change = Callable[[ClientScores], ClientScores]
score = network_scores.score


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: tests/workers/silos tests silos on both."""
    return sqlite_url


@dataclass
class Judgement:
    """A judgement about to be made in one process, which can be made over two silos instead."""

    services: Services
    given: network_empirical.JudgementInput
    claims: list[EmpiricalClaim] = field(default_factory=list)
    silos: InlineSilos = field(default_factory=lambda: InlineSilos(client_rows))

    def over_silos(self, score: Score = score) -> Verdict | None:
        """Judge over two silos with this scoring; None if it is refused."""
        settings = self.services.settings.model_copy(update={"silos": 2})
        for silo in range(2):
            keys.register(settings, silo)
        there = replace(self.services, settings=settings, dispatcher=self.silos)
        self.silos.services, self.silos.score = there, score
        tasks = [replace(self.given.tasks[0], silo=silo, silos=2) for silo in range(2)]
        try:
            return judge(
                replace(self.given, job=replace(self.given.job, services=there), tasks=tasks)
            )
        except RefusedError:
            return None

    def alone(self) -> Verdict:
        """Judge in one process."""
        return judge(self.given)


judge, claim_of = network_empirical.judge, network_empirical.claim_of


def judged_by(patch: Patch, run: Callable[[Judgement], Verdict | None]) -> list[Judgement]:
    """Judge approximate erasures by `run`; None: refused, as a malformed claim is."""
    made: list[Judgement] = []

    def instead(given: network_empirical.JudgementInput) -> Verdict:
        made.append(Judgement(given.job.services, given))
        judged = run(made[-1])
        if judged is None:
            raise RefusedError("planted")
        return judged

    def claim(*arguments: Any) -> tuple[EmpiricalClaim, CommittedRows]:
        found = claim_of(*arguments)
        made[-1].claims.append(found[0])
        return found

    patch.setattr(network_empirical, "judge", instead)
    patch.setattr(network_empirical, "claim_of", claim)
    return made


def equal(one: Any, two: Any) -> bool:
    """Return whether two values of claims are equal in every bit."""
    if isinstance(one, np.ndarray):
        return bool(one.dtype == two.dtype and one.tobytes() == two.tobytes())
    return bool(one == two)


def attempt_before(installation: Installation, request_id: str, directory: Path) -> list[str]:
    """Return how the verdict before an escalation compares with the recomputed one."""
    download(installation, request_id, directory)
    found = rechecked(directory, "--scores", str(directory / "escalation.scores"))
    assert found["result"] == "DIGESTS-ONLY"  # a retraining is certified
    return [line["status"] for line in found["lines"] if line["name"] == "attempt 1"]


def test_the_verdict_is_that_of_one_process_bit_for_bit(
    installation: Installation, monkeypatch: Patch, tmp_path: Path
) -> None:
    assert {silo_of(client, 2) for client in ("c0", "c1")} == {0, 1}
    # With few features nothing is memorised, but everything is measured.
    monkeypatch.setattr(test_network_hazards, "WIDE", 6)
    test_network_hazards.register_memorising(installation)
    reports: list[Any] = []

    def both(judgement: Judgement) -> Verdict | None:
        over = judgement.over_silos()
        reports.extend([judgement.alone(), over])
        return over

    judged = judged_by(monkeypatch, both)
    request_id = networks.erase(
        installation, networks.some(*test_network_hazards.ERASED), method="natural"
    )
    (there, here), (alone, over) = judged[0].claims, reports
    names = {field.name for field in fields(EmpiricalClaim)} - {"silos"}
    assert [n for n in names if not equal(getattr(here, n), getattr(there, n))] == []
    assert len(there.forget_labels) > 100
    assert len(set(there.forget_clients)) == 2
    *same, last = over.report.checks
    assert same == list(alone.report.checks)
    assert {"control:yeom", "yeom:auc", "retained-accuracy"} <= {check.name for check in same}
    assert over.report.result == alone.report.result
    assert (last.name, last.passed) == ("silos-answered", True)
    logged = silo_keys.logged(installation.services.ledger, small_network.MODEL)
    named = ", ".join(f"{silo} {digest}" for silo, digest in sorted(logged.items()))
    assert last.value == f"2 of 2 silos; keys: {named}"
    signed = dict(part.split(":") for part in over.details["silos"].split())
    pinned = [keys.public_key(installation.settings, silo) for silo in range(2)]
    assert signed == {str(k): fingerprint(key) for k, key in enumerate(pinned) if key}
    assert networks.request(installation, request_id).state == "certified"
    # The kept scores are the same too, and name the committed rows that they belong to.
    claim, tied = decode_scores(over.scores)
    assert claim.silos == SilosClaim(2, 2, {}, {str(k): d for k, d in logged.items()})
    assert encode_scores(replace(claim, silos=None), tied) == alone.scores
    assert problem_with(claim, tied) is None
    assert len(tied.retained) > 100
    assert (tied.before, tied.after) == (claim.rows_before[0], claim.rows_after[0])
    assert attempt_before(installation, request_id, tmp_path) == ["same"]
    assert not {"c0", "c1"} & set(map(str, there.pool_clients))


def test_a_key_swapped_after_it_was_logged_is_named_and_nothing_passes(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation)
    honest = dict[int, str]()

    def swapped(judgement: Judgement) -> Verdict | None:
        settings = judgement.services.settings.model_copy(update={"silos": 2})
        for silo in range(2):
            keys.register(settings, silo)
        there = replace(judgement.services, settings=settings)
        honest.update(silo_keys.pinned(there, small_network.MODEL))
        for path in (keys.private_path(settings, 1), keys.public_path(settings, 1)):
            path.unlink()
        return judgement.over_silos()  # a new pair, both halves

    judged_by(monkeypatch, swapped)
    request_id = networks.erase(installation, networks.some("r1", "r4", "r5"))
    attempt, *_ = read_escalation(
        networks.statement(installation, request_id).predicate.method.parameters
    )
    answered = attempt.checks[-1]
    assert (attempt.result, answered.name, answered.passed) == (
        "INCONCLUSIVE",
        "silos-answered",
        False,
    )
    assert answered.value == f"1 of 2 silos; {UNLOGGED}: 1; keys: 0 {honest[0]}"
    assert silo_keys.logged(installation.services.ledger, small_network.MODEL) == honest
    installation.check()


def test_the_judge_opens_no_rows_and_a_silo_those_of_its_clients(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation)
    at: list[int] = []
    opened: list[tuple[int, str]] = []  # which silo, and what

    def noted(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        at.append(task.silo)
        try:
            return score(services, task)
        finally:
            at.pop()

    def watched(judgement: Judgement) -> Verdict | None:
        load, decode = judgement.services.features.load, network_before.decode

        def loaded(session: Session, subject: int) -> bytes:
            client = session.get_one(Subject, subject).client
            assert client is not None
            opened.append((at[-1] if at else -1, client))
            return load(session, subject)

        def decoded(data: bytes) -> Any:
            opened.append((at[-1] if at else -1, "before"))
            return decode(data)

        with monkeypatch.context() as patch:
            patch.setattr(judgement.services.features, "load", loaded)
            patch.setattr(network_before, "decode", decoded)
            return judgement.over_silos(noted)

    judged_by(monkeypatch, watched)
    networks.erase(installation, networks.some("r1", "r4", "r5"))
    stored = {(silo_of(client, 2), client) for client in ("c0", "c1", "c2", "c3")}
    assert set(opened) == stored | {(0, "before"), (1, "before")}


@pytest.mark.parametrize("there", [0, 1])
def test_a_silo_that_does_not_answer_leaves_it_open_and_the_request_is_retrained_for(
    installation: Installation, monkeypatch: Patch, tmp_path: Path, there: int
) -> None:
    def away(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        if task.silo >= there:
            raise OSError
        return score(services, task)

    networks.register(installation)
    judged_by(monkeypatch, lambda judgement: judgement.over_silos(away))
    request_id = networks.erase(installation, networks.some("r1", "r4", "r5"))
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "exact-retrained"
    said = escalation_line(found.method.parameters)
    assert said.startswith("puf-special: INCONCLUSIVE (")
    assert f"silos-answered: {there} of 2 silos; an error at the silo: {2 - there}" in said
    with Session(installation.services.engine) as session:
        kinds = {a.kind for a in session.exec(select(Artifact)) if a.wrapped_key is not None}
    assert kinds == {"evidence", "head", "scores", "state"}
    assert attempt_before(installation, request_id, tmp_path) == ["same"]


def without(one: ClientScores, rows: Any) -> ClientScores:
    """Drop scores, but not the rows that they belong to."""
    arrays = {
        name: np.delete(getattr(one, name), rows, axis=0)
        for name in ("labels", "before", "after")
    }
    kept = np.delete(np.arange(len(one.inputs)), rows)
    return replace(one, inputs=tuple(one.inputs[row] for row in kept), **arrays)


def a_row_less(one: ClientScores) -> ClientScores:
    """A held-out row is omitted."""
    one = without(one, one.rows_of("held").start)
    place = len(one.training)
    commitments = one.commitments[:place] + one.commitments[place + 1 :]
    return replace(one, held=one.held[1:], commitments=commitments)


def another_record(one: ClientScores) -> ClientScores:
    return replace(one, commitments=(*one.commitments[:-1], bytes(32)))


def fewer_forgotten(one: ClientScores) -> ClientScores:
    """An erased row of this request is attributed to another, and not scored."""
    rest = without(one, one.rows_of("forget"))
    own = one.own[len(one.forget) :]
    return replace(rest, forget=(), other=one.forget + one.other, own=own)


CHANGES: dict[Change, set[str]] = {
    a_row_less: {"rows-before", "rows-after", "retained-set"},
    another_record: {"retained-set"},
    fewer_forgotten: {"refused"},
}


def changed(change: Change) -> Score:
    """Return silos whose answers are honest except that one client loses rows."""

    def scores(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        honest, classes = score(services, task)
        chosen = next((one for one in honest.clients if one.forget), None)
        said = [change(one) if one is chosen else one for one in honest.clients]
        return replace(honest, clients=said), classes

    return scores


def of_other_inputs(target: Any, name: str) -> Score:
    """Return silos that score other rows than were stored, and answer honestly for them."""
    honest = getattr(target, name)

    def loaded(*arguments: Any) -> Any:
        found = honest(*arguments)
        for own in found.values() if isinstance(found, dict) else [found]:
            own.data.inputs[0] += 1
        return found

    def scores(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, loaded)
            return score(services, task)

    return scores


def test_other_rows_than_those_committed_to_are_refuted_though_signed(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation)
    failed: dict[str, set[str]] = {}

    def other_model(services: Services, task: ScoreTask) -> tuple[SiloScores, int]:
        honest, classes = score(services, task)
        return replace(honest, models=("ab" * 32, honest.models[1])), classes

    plays = {
        "honest": score,
        "other_model": other_model,
        "stored": of_other_inputs(network_scores, "client_of"),
        "gone": of_other_inputs(network_before.Before, "holdings"),
        **{change.__name__: changed(change) for change in CHANGES},
    }

    def all_of_them(judgement: Judgement) -> Verdict | None:
        sizes = {"samples", "attacks"}  # of which there are too few in any case
        for name, play in plays.items():
            judged = judgement.over_silos(play)
            checks = judged.report.checks if judged else ()
            names = {check.name for check in checks if not check.passed} - sizes
            failed[name] = names if judged else {"refused"}
        return judged

    judged_by(monkeypatch, all_of_them)
    networks.erase(installation, networks.some("r1", "r5", "r9", "r13"))
    assert failed.pop("honest") == set()
    assert failed.pop("other_model") == {"model-before"}
    assert failed.pop("stored") == {"rows-before", "rows-after"}
    assert failed.pop("gone") == {"refused"}
    assert failed == {change.__name__: names for change, names in CHANGES.items()}


def test_an_erased_row_that_a_silo_still_holds_is_found(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation)
    monkeypatch.setattr(InputBlock, "without", lambda self, _: self)
    reports: list[Any] = []

    def both(judgement: Judgement) -> Verdict | None:
        over = judgement.over_silos()
        reports.extend([judgement.alone(), over])
        return over

    judged_by(monkeypatch, both)
    networks.erase(installation, networks.some("r1"))
    alone, over = reports
    assert over.report.result == alone.report.result == "FAIL"
    assert over.report.checks[:-1] == alone.report.checks
    (purge,) = [check for check in over.report.checks if check.name == "purge"]
    assert purge.value.endswith("1 erased rows stored")
