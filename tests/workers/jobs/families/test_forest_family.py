"""Forests from a signed request to a certificate; the oracle fits a forest of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, col, select

from lethe.estimators.forest.bins import Bins
from lethe.estimators.forest.forest import Forest
from lethe.estimators.forest.published import ForestConfig, PublishedForest
from lethe.estimators.forest.tree import FEATURE, NONE
from models import Artifact, ModelVersion
from tests.installation import Installation, shown
from tests.workers.jobs.families import uploaded
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.uploaded import (
    COLUMNS,
    ROWS,
    contribute,
    published,
    refuted,
    rows,
    submit,
)
from workers.families.forest.family import ForestFamily
from workers.jobs import execute

EDGES = [np.linspace(-2, 2, 20).tolist()] * COLUMNS
OPTIONS = {"trees": 3, "depth": 6, "group": 2, "thresholds": 4, "seed": 9}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: a forest uses the same calls as all rows."""
    return sqlite_url


def send(installation: Installation, arrays: dict[str, Any], **changes: Any) -> Any:
    manifest = {
        "family": "forest",
        "classes": ["no", "maybe", "yes"],
        "edges": EDGES,
        "forest": OPTIONS,
        **changes,
    }
    return uploaded.send(installation, manifest, arrays)


def register(
    installation: Installation, arrays: dict[str, Any] | None = None, **changes: Any
) -> None:
    """Register a forest and fit it."""
    uploaded.take(installation, send(installation, arrays or rows(), **changes))


def oracle(arrays: dict[str, Any], gone: Sequence[str] = (), classes: int = 3) -> bytes:
    """Fit the registered forest to the retained rows, in another order and with other ids."""
    config = ForestConfig(
        bins=Bins.declared(EDGES), classes=classes, least=1, prior=1, **OPTIONS
    )
    labels = arrays["labels"]
    if not classes:
        labels = np.rint(labels * 1024).astype(np.int64)
    kept = [i for i, record in enumerate(arrays["records"]) if record not in gone][::-1]
    forest = Forest(config)
    forest.add([str(i) for i in kept], arrays["features"][kept], labels[kept])
    return forest.published().to_bytes()


def test_an_erasure_gives_the_forest_of_the_rest(installation: Installation) -> None:
    register(installation)
    arrays = rows()
    assert published(installation) == oracle(arrays)
    request = submit(installation, "r3", "r40")
    installation.drain()
    found = shown(installation, request)
    assert found["state"] == "certified"
    predicate = networks.statement(installation, request).predicate
    assert predicate.guarantee.class_ == "exact"
    assert published(installation) == oracle(arrays, ["r3", "r40"])
    installation.check()


def test_a_forest_predicts_what_its_labels_say(installation: Installation) -> None:
    register(installation)
    read = PublishedForest.from_bytes(published(installation))
    arrays = rows()
    found = read.probabilities(arrays["features"]).argmax(axis=1)
    assert (found == arrays["labels"]).mean() > 0.9


def test_numbers_are_learned_in_whole_steps(installation: Installation) -> None:
    register(installation, rows(numbers=True), classes=[])
    arrays = rows(numbers=True)
    assert published(installation) == oracle(arrays, classes=0)
    request = submit(installation, "r5")
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    assert published(installation) == oracle(arrays, ["r5"], classes=0)


def test_what_is_contributed_is_in_the_forest_and_leaves_it(installation: Installation) -> None:
    arrays = rows()
    first = {name: values[:60] for name, values in arrays.items()}
    later = {name: values[60:] for name, values in arrays.items()}
    register(installation, first)
    contribute(installation, later)
    assert published(installation) == oracle(arrays)
    request = submit(installation, "r3", "r70")
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    assert published(installation) == oracle(arrays, ["r3", "r70"])


def test_all_rows_may_leave(installation: Installation) -> None:
    register(installation)
    request = submit(installation, *(f"r{i}" for i in range(ROWS)))
    installation.drain()
    assert shown(installation, request)["state"] == "certified"


def test_a_row_left_in_the_forest_is_refuted_and_the_forest_fitted_anew(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation)
    honest = Forest.remove
    monkeypatch.setattr(Forest, "remove", lambda forest, ids: honest(forest, ids[:-1]))
    request = submit(installation, "r3", "r40")
    installation.drain()
    assert "escalated" in networks.events(installation, request)
    assert shown(installation, request)["state"] == "certified"
    assert published(installation) == oracle(rows(), ["r3", "r40"])


def test_a_flipped_bit_of_the_file_passes_no_judge(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation)
    honest = PublishedForest.to_bytes

    def wrong(forest: PublishedForest) -> bytes:
        file = bytearray(honest(forest))
        file[-1] ^= 1
        return bytes(file)

    with monkeypatch.context() as patch:
        patch.setattr(PublishedForest, "to_bytes", wrong)
        request = submit(installation, "r3")
        job_id, stage = installation.dispatcher.nudges.popleft()
        assert stage == "execute"
        execute.run(installation.services, job_id)
    installation.drain()
    assert "escalated" in networks.events(installation, request)
    assert published(installation) == oracle(rows(), ["r3"])


def test_a_state_with_other_counts_is_refuted(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File and rows are honest; the counts of nodes are those of other rows."""
    register(installation)
    honest = ForestFamily.seal

    def lie(family: ForestFamily, state: Forest, count: int, data: str) -> bytes:
        other = Forest.open(honest(family, state, count, data))
        counted(other)
        return other.seal()

    with monkeypatch.context() as patch:
        patch.setattr(ForestFamily, "seal", lie)
        request = submit(installation, "r3")
        job_id, stage = installation.dispatcher.nudges.popleft()
        assert stage == "execute"
        execute.run(installation.services, job_id)
    installation.drain()
    assert "re-execution" in refuted(installation, request)
    assert shown(installation, request)["state"] == "certified"
    assert published(installation) == oracle(rows(), ["r3"])
    with Session(installation.services.engine) as session:
        version = session.exec(
            select(ModelVersion).order_by(col(ModelVersion.id).desc())
        ).first()
        assert version is not None
        state = installation.services.artifacts.get(session, version.state_id)
    assert Forest.open(state).published().to_bytes() == published(installation)


def counted(forest: Forest) -> None:
    """Add to the counts of leaves, as if more rows were there."""
    for tree in forest.trees:
        tree.total[tree.node[:, FEATURE] == NONE, 0] += 40


def test_a_state_of_other_rows_is_not_believed(installation: Installation) -> None:
    """A tampered state does not get another forest published."""
    register(installation)
    with Session(installation.services.engine) as session:
        version = session.exec(select(ModelVersion)).one()
        other = Forest.open(installation.services.artifacts.get(session, version.state_id))
        other.remove(["r3", "r5"])
        artifact = installation.services.artifacts.put(session, "state", other.seal())
        version.state_id = artifact.id
        session.commit()
    request = submit(installation, "r3")
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    assert published(installation) == oracle(rows(), ["r3"])


@pytest.mark.parametrize("gone", [["r3", "r5"], [], None])
def test_rows_are_learned_onto_no_state_of_others(
    installation: Installation, gone: list[str] | None
) -> None:
    """A contribution is not judged: the state must be of the stored rows, and of the file."""
    arrays, start = rows(), 60 if gone is not None else ROWS - 1  # few rows leave most counts
    first = {name: values[:start] for name, values in arrays.items()}
    later = {name: values[start:] for name, values in arrays.items()}
    register(installation, first)
    with Session(installation.services.engine) as session:
        version = session.exec(select(ModelVersion)).one()
        other = Forest.open(installation.services.artifacts.get(session, version.state_id))
        if gone is None:
            counted(other)
        elif gone:
            other.remove(gone)
        else:
            other.remove(["r0"])
            other.add(["r0"], -first["features"][:1], first["labels"][:1])
        artifact = installation.services.artifacts.put(session, "state", other.seal())
        version.state_id = artifact.id
        session.commit()
    contribute(installation, later)
    assert published(installation) == oracle(arrays)


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"edges": [[1.0, 1.0]] * COLUMNS}, 422, "must ascend"),
        ({"edges": [[0.0] * 63] * COLUMNS}, 422, "62"),
        ({"classes": ["one"]}, 422, "at least two"),
        ({"forest": {"trees": 0}}, 422, "trees"),
        ({"forest": {"group": 5}}, 422, "the number of features"),
        ({"forest": {"tress": 3}}, 422, "unknown field"),
        ({"edges": EDGES[:3]}, 422, "4 columns"),
    ],
)
def test_an_unusable_registration_is_a_named_problem(
    installation: Installation, changes: dict[str, Any], status: int, words: str
) -> None:
    answer = send(installation, rows(), **changes)
    assert answer.status_code == status, answer.text
    assert words in answer.text
    with Session(installation.services.engine) as session:
        assert not session.exec(select(Artifact)).all()


def test_missing_values_are_refused_unless_registered(installation: Installation) -> None:
    arrays = rows()
    arrays["features"][4, 2] = np.nan
    answer = send(installation, arrays)
    assert answer.status_code == 422
    assert "NaN" in answer.text
    register(installation, arrays, missing=True)
    request = submit(installation, "r4")
    installation.drain()
    assert shown(installation, request)["state"] == "certified"


def test_a_number_beyond_all_steps_fails_the_registration(installation: Installation) -> None:
    arrays = rows(numbers=True)
    arrays["labels"][7] = 1e9
    assert send(installation, arrays, classes=[]).status_code == 201
    installation.drain()
    model = networks.model(installation)
    assert model.state == "failed"
    assert "targets" in str(model.failure)
