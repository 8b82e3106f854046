"""The judge's trainings in the scores file: read back unchanged, or refused."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from tests.workers.judge.empirical_claims import POLICY, committed, simulated
from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError
from workers.judge.policy.document import digest
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim, ReferenceModels, TrainingCost
from workers.judge.samples.samples import halves
from workers.judge.scores.file import decode_scores, encode_scores

BASE = simulated(1)
ROWS = committed(BASE)
MODELS = 4


def asked(claim: EmpiricalClaim = BASE) -> EmpiricalClaim:
    """Return the claim under a policy that needs models, with models that memorise."""
    policy = replace(
        POLICY, attacks=("lira", "rmia"), references=MODELS, distances={"output-kl": 1.0}
    )
    labels = np.concatenate([claim.forget_labels, claim.pool_labels])
    both = np.concatenate([claim.forget_after, claim.pool_after])
    rng = np.random.default_rng(3)
    included = halves(claim.seed, MODELS, [*ROWS.forget, *ROWS.pool])
    noise = 0.3 * rng.normal(size=(MODELS, *both.shape))
    logits = both + 5.0 * included[:, :, None] * np.eye(5)[labels] + noise
    return replace(
        claim,
        policy=policy,
        policy_digest=digest(policy),
        references=ReferenceModels(logits, included),
        retrained=both + 0.01,
        retrained_retained=claim.retained_after + 0.01,
        parameter_gap=(0.1 + 0.2, 1e-17),
        trained=TrainingCost(10**15, 7),
    )


def plain(claim: EmpiricalClaim) -> EmpiricalClaim:
    """Return the claim with simple numbers instead of generated ones."""
    changes: dict[str, Any] = {}
    for side, rows in (("forget", 500), ("pool", 600), ("retained", 300)):
        for shift, time in enumerate(("before", "after")):
            changes[f"{side}_{time}"] = (np.arange(5.0 * rows) + shift).reshape(-1, 5) % 7 / 8
        changes[f"{side}_labels"] = np.arange(rows) % 5
        if side != "retained":
            changes[f"{side}_clients"] = np.arange(rows) % 2
    return replace(claim, **changes)


FULL = asked()
FILE = encode_scores(FULL, ROWS)


def test_the_verdict_is_reached_from_the_file_again() -> None:
    found, rows = decode_scores(FILE)
    assert encode_scores(found, rows) == FILE
    assert found.references is not None
    assert found.parameter_gap == FULL.parameter_gap
    assert found.trained == FULL.trained
    report = VERIFIER.verify(found)
    assert report.result == "PASS"
    values = {check.name: check.value for check in report.checks}
    assert values["trainings"] == (
        f"{MODELS} reference models, each row in half of them: {10**15} operations; "
        "1 model retrained without the erased rows: 7 operations"
    )
    assert values["distance:parameter-gap"].startswith("0.3, 1e-17 ")


def test_answers_stay_with_their_rows() -> None:
    found, rows = decode_scores(FILE)
    assert found.references is not None
    assert found.retrained is not None
    assert FULL.references is not None
    assert FULL.retrained is not None
    places = {row: place for place, row in enumerate([*ROWS.forget, *ROWS.pool])}
    order = [places[row] for row in [*rows.forget, *rows.pool]]
    assert order != sorted(order)
    assert (found.references.logits == FULL.references.logits[:, order]).all()
    assert (found.references.included == FULL.references.included[:, order]).all()
    assert (found.retrained == FULL.retrained[order]).all()
    assert found.retrained_retained is not None
    # Only their order changed, so they are as far from the published model's.
    assert (found.retrained_retained == found.retained_after + 0.01).all()
    assert not (found.retained_after == FULL.retained_after).all()


DIGEST = "f75f35774e46d8758feed86253cb96200d320cee78f55c64411b9abadb83880b"


def test_a_file_without_models_of_the_judges_own_says_nothing_of_them() -> None:
    data = encode_scores(plain(BASE), ROWS, "3")
    assert sha256(data).hexdigest() == DIGEST  # certificates name such files
    _, metadata = decode_tensors(data)
    assert metadata["kind"] == "empirical-scores/1"
    assert "trained" not in metadata
    assert "references" not in metadata["policy"]
    assert decode_tensors(FILE)[1]["kind"] == "empirical-scores/2"


def test_why_nothing_was_trained_is_kept() -> None:
    none = TrainingCost(missing="the samples do not allow a test")
    claim = replace(FULL, references=None, retrained=None, parameter_gap=None, trained=none)
    found, _ = decode_scores(encode_scores(claim, ROWS))
    assert (found.trained, found.references, found.retrained) == (none, None, None)
    report = VERIFIER.verify(found)
    assert report.result == "INCONCLUSIVE"
    (said,) = (check for check in report.checks if check.name == "trainings")
    assert said.value.startswith("0 reference models")
    assert said.value.endswith("not trained: the samples do not allow a test")


def test_who_was_trained_on_what_cannot_be_chosen() -> None:
    assert FULL.references is not None
    included = FULL.references.included.copy()
    swapped = np.flatnonzero(included[:, 0] != included[:, 1])[:1]
    included[swapped, 0] ^= True
    claim = replace(FULL, references=replace(FULL.references, included=included))
    with pytest.raises(ArtifactError, match="other rows than were drawn"):
        encode_scores(claim, ROWS)


def test_parts_that_do_not_fit_are_refused() -> None:
    assert FULL.references is not None
    assert FULL.retrained is not None
    fewer = ReferenceModels(FULL.references.logits[:, 1:], FULL.references.included[:, 1:])
    assert FULL.retrained_retained is not None
    for changes in (
        {"retrained": FULL.retrained[1:]},
        {"references": fewer},
        {"retrained_retained": FULL.retrained_retained[1:]},
    ):
        with pytest.raises(ArtifactError, match="must answer all"):
            encode_scores(replace(FULL, **changes), ROWS)
    half = replace(FULL, retrained=FULL.retrained.astype(np.float32))
    with pytest.raises(ArtifactError, match="float64"):
        encode_scores(half, ROWS)
    with pytest.raises(ArtifactError, match="cost beside it"):
        encode_scores(replace(FULL, trained=None), ROWS)
    with pytest.raises(ArtifactError, match="cost beside it"):
        encode_scores(replace(BASE, retrained_retained=FULL.retrained_retained), ROWS)


def test_without_the_retrained_models_retained_rows_their_distance_is_not_measured() -> None:
    claim = replace(FULL, retrained_retained=None)
    found, _ = decode_scores(encode_scores(claim, ROWS))
    assert found.retrained is not None
    assert found.retrained_retained is None
    values = {check.name: check.value for check in VERIFIER.verify(found).checks}
    assert values["distance:retained-accuracy-gap"].startswith("not measured")
    assert "distance:retained-accuracy" not in values
    assert "distance:test-accuracy" in values


Change = Callable[[dict[str, Any], dict[str, Any]], object]
MALFORMED: dict[str, Change] = {
    "the kind of before": lambda a, m: m.update(kind="empirical-scores/1"),
    "no costs": lambda a, m: m.pop("trained"),
    "a cost below 0": lambda a, m: m["trained"].update(references=-1),
    "a cost in words": lambda a, m: m["trained"].update(retrained="7"),
    "a member too many": lambda a, m: m["trained"].update(seconds=1),
    "a reason that is none": lambda a, m: m["trained"].update(missing=None),
    "a gap of three": lambda a, m: m["trained"].update(parameter_gap=[1.0, 1.0, 1.0]),
    "a gap in words": lambda a, m: m["trained"].update(parameter_gap="12"),
    "half the precision": lambda a, m: a.update(retrained=a["retrained"].astype(np.float32)),
    "answers without models": lambda a, m: a.update(references=a["references"][0]),
    "answers of other rows": lambda a, m: a.update(references=a["references"][:, 1:]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_other_spellings_are_refused(name: str) -> None:
    arrays, metadata = decode_tensors(FILE)
    MALFORMED[name](arrays, metadata)
    with pytest.raises(ArtifactError, match="no scores file"):
        decode_scores(encode_tensors(arrays, metadata))


@pytest.mark.parametrize(
    "changes",
    [
        {"references": None},
        {"retrained": None},
        {"policy": {"references": MODELS + 1}},
        {"trained": None, "references": None},
    ],
)
def test_what_the_policy_asks_for_and_is_not_there_stays_open(changes: dict[str, Any]) -> None:
    claim = FULL
    if "policy" in changes:
        policy = replace(FULL.policy, **changes["policy"])
        changes = {"policy": policy, "policy_digest": digest(policy)}
    report = VERIFIER.verify(replace(claim, **changes))
    assert report.result == "INCONCLUSIVE"
    assert "trainings" in {check.name for check in report.checks if not check.passed}


@pytest.mark.parametrize("shape", [(10**9, 0, 0), (10**9, 1100, 0), (3, 1100, 5), (4, 1099, 5)])
def test_models_that_no_policy_asks_for_are_refused_before_they_are_drawn(
    shape: tuple[int, ...],
) -> None:
    """A file of a few bytes can claim any number of models without outputs."""
    arrays, metadata = decode_tensors(FILE)
    data = encode_tensors({**arrays, "references": np.zeros(shape)}, metadata)
    with pytest.raises(ArtifactError):
        decode_scores(data)
