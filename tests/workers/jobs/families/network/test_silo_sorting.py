"""A silo that groups its rows otherwise than they are committed to, with valid digests."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.installation import Installation
from tests.workers.jobs.families.network import networks, test_silo_scores
from tests.workers.jobs.families.network.test_silo_scores import Judgement, Patch, judged_by
from workers.cases.case import Verdict
from workers.families.network.scores.sorting import MISSORTED
from workers.silos.scores import SCORED, ClientScores

PARTS = ("labels", "before", "after")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: judgements do not depend on it."""
    return sqlite_url


def scored(one: ClientScores, **groups: list[int]) -> ClientScores:
    """Return the scores with each group of SCORED made of the given rows."""
    rows = np.concatenate([
        np.array(groups.get(name, range(len(one.labels))[one.rows_of(name)]), dtype=np.int64)
        for name in SCORED
    ])  # fmt: skip
    arrays: dict[str, Any] = {name: getattr(one, name)[rows] for name in PARTS}
    return replace(one, inputs=tuple(one.inputs[row] for row in rows), **arrays)


def places(one: ClientScores, group: str) -> list[int]:
    return list(range(len(one.labels))[one.rows_of(group)])


def a_training_row_as_held_out(one: ClientScores) -> ClientScores:
    """With its own record, digest and scores: a member presented as a non-member."""
    moved = one.training[-1], one.commitments[len(one.training) - 1]
    *rest, last = places(one, "sample")
    place = len(one.training) - 1
    commitments = (*one.commitments[:place], *one.commitments[place + 1 :], moved[1])
    return replace(
        scored(one, held=[*places(one, "held"), last], sample=rest),
        training=one.training[:-1],
        held=(*one.held, moved[0]),
        commitments=commitments,
    )


def a_training_row_under_a_held_out_record(one: ClientScores) -> ClientScores:
    """Two rows swap places, digests and scores, and the records stay as they were."""
    first, held = places(one, "sample"), places(one, "held")
    return replace(
        scored(one, held=[first[0], *held[1:]], sample=[held[0], *first[1:]]),
        training=(one.held[0], *one.training[1:]),
        held=(one.training[0], *one.held[1:]),
    )


def a_held_out_row_as_trained_on(one: ClientScores) -> ClientScores:
    """It is missing among the unseen ones, and scored as a learned one."""
    place = len(one.training)
    first, *rest = places(one, "held")
    return replace(
        scored(one, held=rest, sample=[*places(one, "sample"), first]),
        training=(*one.training, one.held[0]),
        held=one.held[1:],
        commitments=(*one.commitments[: place + 1], *one.commitments[place + 1 :]),
    )


def a_forgotten_row_as_unseen(one: ClientScores) -> ClientScores:
    first, *rest = places(one, "forget")
    return replace(
        scored(one, forget=rest, unseen=[first, *places(one, "unseen")]),
        forget=one.forget[1:],
        unseen=(one.forget[0], *one.unseen),
        own=(*one.own[1 : len(one.forget)], one.own[0], *one.own[len(one.forget) :]),
    )


def a_row_of_another_request(one: ClientScores) -> ClientScores:
    return replace(one, own=(bytes(32), *one.own[1:]))


def another_label(one: ClientScores) -> ClientScores:
    labels = one.labels.copy()
    labels[0] = (labels[0] + 1) % 3
    return replace(one, labels=labels)


def other_inputs(one: ClientScores) -> ClientScores:
    """The digest of the first erased row is opened with made-up inputs."""
    (first, *_) = places(one, "forget")
    return replace(one, inputs=(*one.inputs[:first], bytes(32), *one.inputs[first + 1 :]))


PLAYS: list[Callable[[ClientScores], ClientScores]] = [
    a_training_row_as_held_out,
    a_training_row_under_a_held_out_record,
    a_held_out_row_as_trained_on,
    a_forgotten_row_as_unseen,
    a_row_of_another_request,
    another_label,
    other_inputs,
]


def test_an_answer_that_sorts_otherwise_does_not_count_and_nothing_is_shown(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation)
    found: dict[str, Verdict] = {}

    def all_of_them(judgement: Judgement) -> Verdict | None:
        for play in PLAYS:
            judged = judgement.over_silos(test_silo_scores.changed(play))
            assert judged is not None
            found[play.__name__] = judged
        return judgement.over_silos()

    judged_by(monkeypatch, all_of_them)
    request_id = networks.erase(installation, networks.some("r1", "r5", "r9", "r13"))
    for play in PLAYS:
        report = found[play.__name__].report
        assert report.result == "INCONCLUSIVE", play.__name__
        named = {check.name: check for check in report.checks}
        said, signed = named["silos-answered"].value.rsplit("; ", 1)
        assert said == f"1 of 2 silos; {MISSORTED}: 1", play.__name__
        # Checks that need rows show nothing, and the liar is not among the signers.
        assert not any(named[name].passed for name in ("rows-after", "retained-set", "samples"))
        assert len(found[play.__name__].details["silos"].split()) == 1
        assert signed.startswith("keys: ")
        assert "," not in signed
    # The honest answer counts, and the escalation ends in a retraining.
    assert networks.request(installation, request_id).state == "certified"
