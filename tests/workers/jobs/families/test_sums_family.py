"""Ridge and naive Bayes from integer sums, from a signed request to a certificate.

The oracles are scikit-learn's estimators on the retained rows, within the rounding of features,
and the estimators that unlearn without a server, byte for byte.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sqlmodel import Session, col, select

from lethe.estimators import (
    ExactGaussianNB,
    ExactMultinomialNB,
    ExactRidgeClassifier,
    ExactRidgeRegressor,
)
from lethe.estimators.sums.published import PublishedSums, read_published
from lethe.estimators.sums.ridge import RidgeSums
from lethe.estimators.sums.sealed import of_nothing, open_sums, seal
from models import Artifact, Model, ModelVersion, Subject
from tests.installation import Installation, shown
from tests.workers.jobs.families import uploaded
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.uploaded import (
    contribute,
    owners,
    published,
    refuted,
    submit,
)
from workers.families.recipe.rows import decode_block
from workers.families.sums.family import SumsFamily, config_of
from workers.jobs import execute

ROWS, COLUMNS = 60, 4
CLASSES = ["maybe", "no", "yes"]
GONE = ("r3", "r40")


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the sums use the same calls as all rows."""
    return sqlite_url


def rows(*, numbers: bool = False, weighted: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    features = np.abs(rng.normal(size=(ROWS, COLUMNS))) * [1, 2, 3, 0.5]
    labels: Any = (features[:, 0] > 0.5).astype(np.int64) + (features[:, 1] > 2)
    if numbers:
        labels = 2 * features[:, 0] + features[:, 1] + rng.normal(size=ROWS) / 8
    found = {
        "features": features,
        "labels": labels,
        **owners(ROWS, subjects=20),
    }
    return found | ({"weights": rng.integers(0, 64, ROWS) / 16} if weighted else {})


def send(installation: Installation, arrays: dict[str, Any], **changes: Any) -> Any:
    manifest = {
        "family": "sums",
        "classes": CLASSES,
        "columns": COLUMNS,
        "sums": {"estimator": "gaussian-nb"},
        **changes,
    }
    return uploaded.send(installation, manifest, arrays)


def register(
    installation: Installation, arrays: dict[str, Any] | None = None, **changes: Any
) -> None:
    uploaded.take(installation, send(installation, arrays or rows(), **changes))


def kept(arrays: dict[str, Any], gone: Sequence[str]) -> tuple[Any, Any, Any]:
    """Return features, labels and weights of the retained rows, in another order."""
    chosen = np.flatnonzero(~np.isin(arrays["records"], gone))[::-1]
    weights = arrays.get("weights", np.ones(ROWS))
    return arrays["features"][chosen], arrays["labels"][chosen], weights[chosen]


def refitted(estimator: Any, arrays: dict[str, Any], gone: Sequence[str] = ()) -> bytes:
    """Fit an estimator to the retained rows; return its file."""
    features, labels, weights = kept(arrays, gone)
    if labels.dtype == np.int64:
        labels = np.array(CLASSES)[labels]
    file: bytes = estimator.fit(features, labels, sample_weight=weights).model_bytes()
    return file


KINDS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "ridge-regressor": ({"alpha": 0.5}, ExactRidgeRegressor(0.5), Ridge(0.5)),
    "ridge-classifier": (
        {"intercept": False},
        ExactRidgeClassifier(fit_intercept=False, classes=CLASSES),
        RidgeClassifier(fit_intercept=False),
    ),
    "gaussian-nb": ({}, ExactGaussianNB(classes=CLASSES), GaussianNB()),
    "multinomial-nb": (
        {"alpha": 0.25},
        ExactMultinomialNB(alpha=0.25, classes=CLASSES),
        MultinomialNB(alpha=0.25),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_erasure_gives_the_model_of_the_rest(installation: Installation, kind: str) -> None:
    options, exact, reference = KINDS[kind]
    numbers = kind == "ridge-regressor"
    arrays = rows(numbers=numbers, weighted=True)
    changes: dict[str, Any] = {"classes": []} if numbers else {}
    sums = {"estimator": kind, **options}
    register(installation, arrays, sums=sums, weighted=True, **changes)
    assert published(installation) == refitted(exact, arrays)
    request = submit(installation, *GONE)
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    assert "escalated" not in networks.events(installation, request)
    assert networks.statement(installation, request).predicate.guarantee.class_ == "exact"
    file = published(installation)
    assert file == refitted(exact, arrays, GONE)
    features, labels, weights = kept(arrays, GONE)
    reference.fit(features, labels, weights)
    found = read_published(file).predict(features)
    if numbers:
        assert np.allclose(found, reference.predict(features), atol=1e-3)
    else:
        assert (found == reference.predict(features)).all()
    installation.check()


def test_what_is_contributed_is_in_the_sums_and_leaves_them(
    installation: Installation,
) -> None:
    arrays = rows(weighted=True)
    register(installation, {name: one[:40] for name, one in arrays.items()}, weighted=True)
    contribute(installation, {name: one[40:] for name, one in arrays.items()})
    assert published(installation) == refitted(ExactGaussianNB(classes=CLASSES), arrays)
    request = submit(installation, "r3", "r50")
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    oracle = refitted(ExactGaussianNB(classes=CLASSES), arrays, ["r3", "r50"])
    assert published(installation) == oracle


@pytest.mark.parametrize("kind", ["ridge-regressor", "gaussian-nb"])
def test_all_rows_may_leave(installation: Installation, kind: str) -> None:
    numbers = kind == "ridge-regressor"
    changes: dict[str, Any] = {"classes": []} if numbers else {}
    register(installation, rows(numbers=numbers), sums={"estimator": kind}, **changes)
    request = submit(installation, *(f"r{i}" for i in range(ROWS)))
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    found = read_published(published(installation)).predict(np.ones((2, COLUMNS)))
    assert found.tolist() == [0, 0]


def test_a_row_left_in_the_sums_is_refuted_and_the_model_fitted_anew(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = rows(numbers=True)
    register(installation, arrays, classes=[], sums={"estimator": "ridge-regressor"})
    honest = RidgeSums.changed

    def lazy(sums: RidgeSums, coded: Any, sign: int) -> RidgeSums:
        if sign < 0:
            coded = coded.take(np.arange(len(coded.targets)) > 0)
        return honest(sums, coded, sign)

    monkeypatch.setattr(RidgeSums, "changed", lazy)
    request = submit(installation, *GONE)
    installation.drain()
    assert "escalated" in networks.events(installation, request)
    assert shown(installation, request)["state"] == "certified"
    assert published(installation) == refitted(ExactRidgeRegressor(), arrays, GONE)


def test_a_flipped_bit_of_the_file_passes_no_judge(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation)
    honest = PublishedSums.to_bytes

    def wrong(model: PublishedSums) -> bytes:
        file = bytearray(honest(model))
        file[-1] ^= 1
        return bytes(file)

    with monkeypatch.context() as patch:
        patch.setattr(PublishedSums, "to_bytes", wrong)
        request = submit(installation, "r3")
        job_id, stage = installation.dispatcher.nudges.popleft()
        assert stage == "execute"
        execute.run(installation.services, job_id)
    installation.drain()
    assert "escalated" in networks.events(installation, request)
    oracle = refitted(ExactGaussianNB(classes=CLASSES), rows(), ["r3"])
    assert published(installation) == oracle


def replaced(
    installation: Installation, change: Callable[[bytes, Model, ModelVersion], bytes]
) -> None:
    """Seal another state for the current version."""
    with Session(installation.services.engine) as session:
        version = session.exec(select(ModelVersion)).one()
        model = session.exec(select(Model)).one()
        state = installation.services.artifacts.get(session, version.state_id)
        other = change(state, model, version)
        artifact = installation.services.artifacts.put(session, "state", other)
        version.state_id = artifact.id
        session.commit()


def test_a_flipped_bit_of_the_sealed_sums_is_refuted(installation: Installation) -> None:
    """The judge sums again: the sealed state decides nothing."""
    register(installation)
    replaced(installation, flipped)
    request = submit(installation, "r3")
    installation.drain()
    assert "escalated" in networks.events(installation, request)
    assert shown(installation, request)["state"] == "certified"
    oracle = refitted(ExactGaussianNB(classes=CLASSES), rows(), ["r3"])
    assert published(installation) == oracle


def flipped(state: bytes, model: Model, version: ModelVersion) -> bytes:
    place = len(state) - COLUMNS * len(CLASSES) * 8  # of the sums of squares
    return state[:place] + bytes([state[place] ^ 1]) + state[place + 1 :]


def test_a_state_that_keeps_an_erased_row_is_refuted(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is honest; the next contribution would publish the row again."""
    arrays = rows()
    register(installation, {name: one[:40] for name, one in arrays.items()})
    with monkeypatch.context() as patch:
        old: list[Any] = []
        remove, seal_honestly = SumsFamily.remove, SumsFamily.seal

        def keep(family: SumsFamily, state: Any, blocks: Any) -> Any:
            old.append(state)
            return remove(family, state, blocks)

        def lie(family: SumsFamily, state: Any, count: int, data: str) -> bytes:
            return seal_honestly(family, old[0], count, data)

        patch.setattr(SumsFamily, "remove", keep)
        patch.setattr(SumsFamily, "seal", lie)
        request = submit(installation, "r3")
        job_id, stage = installation.dispatcher.nudges.popleft()
        assert stage == "execute"
        execute.run(installation.services, job_id)
        assert old
    installation.drain()
    assert "re-execution" in refuted(installation, request)
    assert shown(installation, request)["state"] == "certified"
    contribute(installation, {name: one[40:] for name, one in arrays.items()})
    oracle = refitted(ExactGaussianNB(classes=CLASSES), arrays, ["r3"])
    assert published(installation) == oracle
    installation.check()


def test_rows_are_learned_onto_no_sums_of_another_file(installation: Installation) -> None:
    """No judge follows a contribution: the state must lead to the file that the log has."""
    arrays = rows()
    register(installation, {name: one[:40] for name, one in arrays.items()})
    replaced(installation, flipped)
    contribute(installation, {name: one[40:] for name, one in arrays.items()})
    assert published(installation) == refitted(ExactGaussianNB(classes=CLASSES), arrays)


@pytest.mark.parametrize("other", ["rows", "model"])
def test_a_state_of_others_is_not_believed(installation: Installation, other: str) -> None:
    """A contribution is not judged: its sums must be of the stored rows."""
    arrays = rows()
    register(installation, {name: one[:40] for name, one in arrays.items()})

    def change(state: bytes, model: Model, version: ModelVersion) -> bytes:
        config, data = config_of(model), str(version.statistics_digest)
        assert open_sums(state, config, data, 40).weight == 40 * 16
        if other == "rows":
            return seal(of_nothing(config), "ab" * 32, 40)
        return seal(of_nothing(dataclasses.replace(config, exponent=-10)), data, 40)

    replaced(installation, change)
    contribute(installation, {name: one[40:] for name, one in arrays.items()})
    assert published(installation) == refitted(ExactGaussianNB(classes=CLASSES), arrays)


def test_a_weight_that_is_changed_in_the_database_is_refuted(
    installation: Installation,
) -> None:
    """A row's digest covers its weight, and the version before has the digests of its rows."""
    register(installation, rows(weighted=True), weighted=True)
    with Session(installation.services.engine) as session:
        features = installation.services.features
        subject = session.exec(select(Subject).order_by(col(Subject.id).desc())).first()
        assert subject is not None
        block = decode_block(features.load(session, subject.id or 0))
        assert block.weights is not None
        assert "r0" not in block.records
        changed = block.weights + np.eye(1, len(block.weights))[0]
        heavier = dataclasses.replace(block, weights=changed)
        features.store(session, subject, heavier.encode(), len(block.records))
        session.commit()
    request = submit(installation, "r0")
    installation.drain()
    assert shown(installation, request)["state"] == "needs-decision"
    assert "rows-before" in refuted(installation, request)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sums": {"estimator": "ridge-regressor"}}, "predicts numbers"),
        ({"classes": ["one"]}, "at least two"),
        ({"sums": {"estimator": "gaussian-nb", "alpha": 1}}, "no such option"),
        ({"sums": {"estimator": "multinomial-nb", "alpha": 0}}, "alpha"),
        ({"sums": {"estimator": "gaussian-nb", "exponent": -31}}, "column 2"),
        ({"columns": 5}, "4 columns"),
        ({"columns": 3000, "sums": {"estimator": "ridge-classifier"}}, "2,000"),
        ({"weighted": True}, "lacks: weights"),
    ],
)
def test_an_unusable_registration_is_a_named_problem(
    installation: Installation, changes: dict[str, Any], words: str
) -> None:
    answer = send(installation, rows(), **changes)
    assert answer.status_code == 422, answer.text
    assert words in answer.text
    with Session(installation.services.engine) as session:
        assert not session.exec(select(Artifact)).all()


@pytest.mark.parametrize(
    ("name", "value", "changes", "words"),
    [
        ("features", -1.0, {"sums": {"estimator": "multinomial-nb"}}, "column 2"),
        ("features", np.nan, {}, "NaN"),
        ("weights", -1.0, {"weighted": True}, "weights must be multiples"),
        ("weights", 0.3, {"weighted": True}, "weights must be multiples"),
        ("weights", np.nan, {"weighted": True}, "weights must be multiples"),
        ("weights", 1.0, {}, "without"),
    ],
)
def test_an_unusable_row_is_a_named_problem(
    installation: Installation, name: str, value: float, changes: dict[str, Any], words: str
) -> None:
    arrays = rows(weighted=name == "weights")
    arrays[name][(7, 2) if name == "features" else 7] = value
    answer = send(installation, arrays, **changes)
    assert answer.status_code == 422, answer.text
    assert words in answer.text
    with Session(installation.services.engine) as session:
        assert not session.exec(select(Artifact)).all()


def test_a_penalty_that_some_erasure_could_not_solve_fails_the_registration(
    installation: Installation,
) -> None:
    options = {"estimator": "ridge-regressor", "alpha": 1e-18}
    assert send(installation, rows(numbers=True), classes=[], sums=options).status_code == 201
    installation.drain()
    model = networks.model(installation)
    assert model.state == "failed"
    assert "alpha: too small" in str(model.failure)
