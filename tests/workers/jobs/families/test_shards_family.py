"""Shards from a signed request to a certificate; the oracle fits each shard separately.

It computes the assignment with hmac, and fits with scikit-learn alone.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sqlmodel import Session, select

from lethe.certificates.evidence import record_commitment
from lethe.signing.keys import generate_key
from models import Artifact, Model, ModelVersion, Record, RequestEvent, Subject
from tests.installation import Installation, shown
from tests.workers.jobs.families import uploaded
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.network.rechecking import download, rechecked
from tests.workers.jobs.families.uploaded import (
    CLASSES,
    COLUMNS,
    MODEL,
    ROWS,
    contribute,
    rows,
    submit,
)
from tests.workers.training.programs.small import script
from workers.errors import RefusedError
from workers.families.shards import rows as shard_rows
from workers.families.shards import update as shards_update
from workers.jobs import execute
from workers.lineage.versions import OTHER_FILES
from workers.training.recipes import process
from workers.training.recipes.files import FittedRecipe, decode, encode
from workers.training.recipes.fit import FitRows
from workers.training.recipes.fit import fit as fit_here
from workers.training.recipes.process import Limits
from workers.training.recipes.recipe import Recipe
from workers.training.shards import container
from workers.training.shards.container import ShardManifest, manifest_of
from workers.training.shards.predict import ShardedModel

SHARDS = 4
FOREST = {
    "estimator": "sklearn.ensemble.RandomForestClassifier",
    "parameters": {"n_estimators": 3},
    "seed": 5,
}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: shards use the same calls as all rows."""
    return sqlite_url


@pytest.fixture(autouse=True)
def fits(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Fit in this process, and return the numbers of rows: a process takes seconds to start."""
    counted: list[list[int]] = []

    def fit_all(
        recipe: Recipe, tables: Sequence[FitRows], threads: int, limits: Limits
    ) -> list[bytes]:
        counted.append([len(one) for one in tables])
        return [fit_here(recipe, one, threads) for one in tables]

    monkeypatch.setattr(process, "fit_all", fit_all)
    return counted


def send(installation: Installation, arrays: dict[str, Any], **changes: Any) -> Any:
    manifest = {
        "family": "shards",
        "classes": CLASSES,
        "columns": COLUMNS,
        "recipe": FOREST,
        "shards": {"count": SHARDS},
        **changes,
    }
    return uploaded.send(installation, manifest, arrays)


def register(
    installation: Installation, arrays: dict[str, Any] | None = None, **changes: Any
) -> None:
    """Register shards and fit them."""
    uploaded.take(installation, send(installation, arrays or rows(), **changes))
    found = networks.model(installation)
    assert found.state == "ready", found.failure


def published(installation: Installation) -> list[bytes]:
    """Return the shards' own files, as any safetensors reader finds them."""
    arrays = load(uploaded.published(installation))
    return [arrays[name].tobytes() for name in sorted(arrays)]


def shard(installation: Installation, name: str, shards: int = SHARDS) -> int:
    """Return the shard of a name, computed here."""
    services = installation.services
    with Session(services.engine) as session:
        model = session.exec(select(Model)).one()
    secret = services.root_secret.open(model.tombstone_key, aad=f"tombstone|{MODEL}".encode())
    key = hmac.digest(secret, b"\xfflethe shard key 1", "sha256")
    found = hmac.digest(key, name.encode(), "sha256")
    return int.from_bytes(found[:8], "big") % shards


def of_subject(installation: Installation, record: int) -> int:
    return shard(installation, f"subject\0s{record % 30}")


def oracle(
    installation: Installation,
    place: Callable[[int], int],
    gone: Sequence[str] = (),
    arrays: dict[str, Any] | None = None,
) -> list[bytes]:
    """Fit each shard to its retained rows, with scikit-learn alone."""
    arrays = arrays or rows()
    with Session(installation.services.engine) as session:
        salts = {one.record: bytes(one.salt) for one in session.exec(select(Record))}
    names = [str(name) for name in arrays["records"]]
    kept = [i for i, name in enumerate(names) if name not in gone]
    assert salts.keys() == {names[i] for i in kept}
    kept.sort(key=lambda i: record_commitment(salts[names[i]], names[i]))
    recipe = decode(published(installation)[0]).recipe
    found = []
    for own in range(SHARDS):
        mine = [i for i in kept if place(i) == own]
        if not mine:
            found.append(encode(FittedRecipe(recipe, COLUMNS, (), None)))
            continue
        classes, labels = np.unique(arrays["labels"][mine], return_inverse=True)
        made: Any = RandomForestClassifier(n_estimators=3, random_state=5)
        if len(classes) == 1:
            made = DummyClassifier(strategy="most_frequent")
        weights = arrays.get("weights")
        made.fit(arrays["features"][mine], labels, None if weights is None else weights[mine])
        found.append(encode(FittedRecipe(recipe, COLUMNS, tuple(map(int, classes)), made)))
    return found


def check_is(installation: Installation, gone: Sequence[str] = ()) -> None:
    """Check that the published shards are those of the retained rows."""
    assert published(installation) == oracle(
        installation, lambda i: of_subject(installation, i), gone
    )


def test_an_erasure_fits_the_shards_that_held_the_rows(
    installation: Installation, fits: list[list[int]], tmp_path: Path
) -> None:
    register(installation)
    check_is(installation)
    before = published(installation)
    fits.clear()
    # Both of one person: in one shard, whatever the client.
    request = submit(installation, "r3", "r33")
    installation.drain()
    held = of_subject(installation, 3)
    assert [len(one) for one in fits] == [1, 1]  # for the erasure and the judge
    check_is(installation, ["r3", "r33"])
    after = published(installation)
    assert [a == b for a, b in zip(after, before, strict=True)] == [
        one != held for one in range(SHARDS)
    ]
    found = networks.statement(installation, request).predicate
    assert found.guarantee.class_ == "exact-retrained"
    assert found.guarantee.statement.startswith(f"Shards {held} of {SHARDS} were fitted again")
    assert [check.name for check in found.checks][-2:] == ["rows-before", "untouched-shards"]
    assert found.checks[-1].value.startswith(f"{SHARDS - 1} of {SHARDS}, sha256 ")
    digests = [hashlib.sha256(one[held]).hexdigest() for one in (before, after)]
    assert found.method.parameters[f"shard{held}"] == " ".join(digests)
    installation.check()
    check_rechecked(installation, request, tmp_path)


def test_weights_and_named_columns_are_part_of_each_shard(
    installation: Installation, fits: list[list[int]]
) -> None:
    whole = {**rows(), "weights": np.random.default_rng(1).uniform(0.1, 3, ROWS)}
    whole["features"][:, 3] = np.arange(ROWS) % 2  # the categories' numbers
    columns = {"features": [*"abcd"], "categories": {"d": ["x", "y"]}, "weighted": True}
    unknown = {**whole, "features": whole["features"] + [0, 0, 0, 1]}
    refused = send(installation, unknown, **columns)
    assert (refused.status_code, "column 3" in refused.text) == (422, True), refused.text
    register(installation, whole, **columns)
    client = replace(installation.caller, keyid="sender", key=generate_key("ed25519"))
    assert client.register_key(role="client").status_code == 201
    shown = client.signed("GET", f"/v1/models/{MODEL}/manifest").json()
    assert {name: shown[name] for name in columns} == columns
    request = submit(installation, "r3", "r33")
    installation.drain()
    assert networks.request(installation, request).state == "certified"

    def place(row: int) -> int:
        return of_subject(installation, row)

    mine, gone = published(installation), ["r3", "r33"]
    assert mine == oracle(installation, place, gone, whole)
    del whole["weights"]
    assert mine != oracle(installation, place, gone, whole)


def check_rechecked(installation: Installation, request: str, folder: Path) -> None:
    """Check that an auditor can repeat the checks of shards and registration offline."""
    download(installation, request, folder)
    for name, path in (("model", "/versions/current/artifact"), ("registration", "")):
        answer = installation.caller.operator("GET", f"/v1/models/{MODEL}{path}")
        (folder / name).write_bytes(answer.content)
    files = [f"--{name}={folder / name}" for name in ("model", "registration")]
    lines = {line["name"]: line["status"] for line in rechecked(folder, *files)["lines"]}
    assert (lines["8 untouched-shards"], lines["5 registration"]) == ("same", "same")
    assert "DIFFERS" not in lines.values()


def test_requests_in_several_shards_are_fitted_and_judged_together(
    installation: Installation, fits: list[list[int]]
) -> None:
    register(installation)
    fits.clear()
    ids = [submit(installation, f"r{i}") for i in range(3)]
    installation.drain()
    assert [networks.request(installation, one).state for one in ids] == ["certified"] * 3
    held = {of_subject(installation, i) for i in range(3)}
    assert [len(one) for one in fits] == [len(held), len(held)]
    check_is(installation, ["r0", "r1", "r2"])
    installation.check()


def execute_one(installation: Installation) -> None:
    job_id, stage = installation.dispatcher.nudges.popleft()
    assert stage == "execute"
    execute.run(installation.services, job_id)


def refuted_for(installation: Installation, request: str) -> str:
    """Return the checks that failed on the first attempt, once the second has passed."""
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    with Session(installation.services.engine) as session:
        query = select(RequestEvent).where(
            RequestEvent.request_id == request, RequestEvent.event == "request.escalated"
        )
        return str(session.exec(query).one().payload["checks"])


def test_what_is_wrong_in_a_named_shard_is_refuted(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A surplus row in the fit, and the rows of another assignment."""
    register(installation)
    honest = process.fit_all

    def leaves_one(recipe: Any, tables: Sequence[FitRows], *more: Any) -> list[bytes]:
        one = tables[0]
        twice = FitRows(np.vstack([one.features, one.features[:1]]), np.append(one.labels, 0))
        return honest(recipe, [twice, *tables[1:]], *more)

    with monkeypatch.context() as patch:
        patch.setattr(process, "fit_all", leaves_one)
        request = submit(installation, "r3")
        execute_one(installation)
    assert refuted_for(installation, request) == "6 re-execution"
    right, calls = shard_rows.sharded, 0

    def moves(model: Any, key: bytes, *more: Any) -> Any:
        nonlocal calls
        calls += 1  # the first is of the rows before, which the worker itself compares
        return right(model, key if calls == 1 else bytes(32), *more)

    with monkeypatch.context() as patch:
        patch.setattr(shards_update, "sharded", moves)
        request = submit(installation, "r4")
        execute_one(installation)
    assert "2 data" in refuted_for(installation, request)
    check_is(installation, ["r3", "r4"])
    installation.check()


def test_an_erased_row_hidden_in_another_shard_is_refuted(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation)
    arrays, held, honest = rows(), shard_rows.sharded, manifest_of
    own: Any = ()
    recipe = decode(published(installation)[0]).recipe
    other = next(one for one in range(SHARDS) if one != of_subject(installation, 3))

    def remembers(*given: Any) -> Any:
        nonlocal own
        own = held(*given)
        return own

    def hides(aggregate: str, files: list[bytes], digests: Any) -> Any:
        table = own[other].table
        features = np.vstack([table.features, arrays["features"][3]])
        labels = np.append(table.labels, arrays["labels"][3])
        files[other] = fit_here(recipe, FitRows(features, labels), 1)
        return honest(aggregate, files, digests)

    with monkeypatch.context() as patch:
        patch.setattr(shards_update, "sharded", remembers)
        patch.setattr(shards_update, "manifest_of", hides)
        request = submit(installation, "r3")
        execute_one(installation)
    assert refuted_for(installation, request) == "8 untouched-shards"
    check_is(installation, ["r3"])


def replaced(installation: Installation, kind: str, change: Callable[[bytes], bytes]) -> None:
    """Point the current version at another sealed file, as a writer of the tables can."""
    store = installation.services.artifacts
    with Session(installation.services.engine) as session:
        version = session.exec(select(ModelVersion)).one()
        name = f"{kind}_id"
        data = change(store.get(session, getattr(version, name)))
        setattr(version, name, store.put(session, kind, data).id)
        session.commit()


def test_a_file_with_a_changed_shard_stops_the_erasure(installation: Installation) -> None:
    """The published file, which no row names any more, would not be destroyed."""
    register(installation)
    other = next(one for one in range(SHARDS) if one != of_subject(installation, 3))

    def flip(data: bytes) -> bytes:
        manifest, files = container.decode(data)
        files[other] = files[other][:-1] + bytes([files[other][-1] ^ 1])
        return container.encode(manifest, files)

    replaced(installation, "head", flip)
    request = submit(installation, "r3")
    installation.drain()
    told = shown(installation, request)
    assert (told["state"], told["reason"]) == ("needs-decision", OTHER_FILES)
    assert len(networks.versions(installation)) == 1


def check_held(installation: Installation, request: str) -> None:
    """Check that a request waits for a person, with all rows and the version before."""
    installation.drain()
    assert shown(installation, request)["state"] == "needs-decision"
    assert networks.model(installation).current_version == 1
    with Session(installation.services.engine) as session:
        assert len(session.exec(select(Record)).all()) == ROWS


def test_another_manifest_publishes_nothing(installation: Installation) -> None:
    register(installation)
    zeros = "0" * 64

    def other(data: bytes) -> bytes:
        document = json.loads(data)
        document["shards"][0]["rows"] = zeros
        return ShardManifest.parse(document).to_bytes()

    replaced(installation, "state", other)
    check_held(installation, submit(installation, "r3"))


def test_rows_that_were_moved_to_another_shard_publish_nothing(
    installation: Installation,
) -> None:
    """A writer of the tables renames a subject: its rows would be in two shards."""
    register(installation)
    away = next(
        i
        for i in range(99)
        if shard(installation, f"subject\0x{i}") != of_subject(installation, 3)
    )
    with Session(installation.services.engine) as session:
        for one in session.exec(select(Subject)):
            if one.subject == "s3":
                one.subject = f"x{away}"
        session.commit()
    check_held(installation, submit(installation, "r3"))


def test_a_contribution_is_learned_by_the_shards_that_get_rows(
    installation: Installation, fits: list[list[int]]
) -> None:
    arrays = rows()
    kept = [i for i in range(ROWS) if i % 30 != 7]
    late = [i for i in range(ROWS) if i % 30 == 7]
    register(installation, {name: values[kept] for name, values in arrays.items()})
    fits.clear()
    later = {name: values[late] for name, values in arrays.items()}
    contribute(installation, later)
    assert [len(one) for one in fits] == [1]
    check_is(installation)


def test_shards_without_rows_and_classes_that_some_lack(installation: Installation) -> None:
    """Three persons: one shard is empty; two of them are erased, and then the last."""
    arrays = {name: values[:30] for name, values in rows().items()}
    # Of three classes the persons have one, two and two.
    arrays["subjects"] = np.array([f"s{i % 3}" for i in range(30)])
    arrays["labels"] = np.array([(0, 2 * (i % 2), 1 + i % 2)[i % 3] for i in range(30)])
    register(installation, arrays)

    def place(i: int) -> int:
        return shard(installation, f"subject\0s{i % 3}")

    def check(gone: Sequence[str]) -> None:
        files = oracle(installation, place, gone, arrays)
        assert published(installation) == files
        model = ShardedModel.from_bytes(
            container.encode(manifest_of("mean", files, files_of(files)), files)
        )
        sums = np.zeros((30, 3))
        fitted = [decode(one) for one in files if decode(one).estimator is not None]
        for one in fitted:
            found = one.estimator.predict_proba(arrays["features"])
            for column, label in enumerate(one.classes):
                sums[:, label] += found[:, column]
        assert np.array_equal(model.predict(arrays["features"]), sums.argmax(axis=1))

    check([])
    first = [f"r{i}" for i in range(30) if i % 3 != 1]
    request = submit(installation, *first)
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    check(first)
    request = submit(installation, *(f"r{i}" for i in range(30) if i % 3 == 1))
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    path = f"/v1/models/{MODEL}/versions/current/artifact"
    file = installation.caller.operator("GET", path).content
    with pytest.raises(RefusedError, match="no row is left"):
        ShardedModel.from_bytes(file).predict(arrays["features"])


def files_of(files: Sequence[bytes]) -> list[str]:
    return [hashlib.sha256(one).hexdigest() for one in files]


def test_records_are_assigned_by_themselves_where_no_person_is_known(
    installation: Installation,
) -> None:
    register(installation, shards={"count": SHARDS, "by": "record"})
    expected = oracle(installation, lambda i: shard(installation, f"record\0r{i}"))
    assert published(installation) == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shards": {"count": 1}}, "shards.count"),
        ({"shards": {"count": 4, "aggregate": "median"}}, "shards.aggregate"),
        ({"shards": {"count": 4, "salt": 1}}, "unknown field"),
        ({"recipe": {"estimator": "sklearn.svm.LinearSVC"}}, "choose vote"),
        ({"script": script()}, "either recipe or script"),
        ({"recipe": None, "script": script()}, "answer apart"),
        (
            {
                "recipe": None,
                "script": script(tolerance=0.01),
                "shards": {"count": 4, "aggregate": "apart"},
            },
            "equal bytes",
        ),
        (
            {
                "recipe": {"estimator": "sklearn.linear_model.Ridge"},
                "classes": [],
                "shards": {"count": 4, "aggregate": "vote"},
            },
            "choose mean",
        ),
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


def test_a_program_in_shards_is_run_for_those_that_held_the_rows(
    installation: Installation,
) -> None:
    """The oracle is numpy's least squares over the rows of each shard."""
    arrays = rows()
    register(
        installation,
        recipe=None,
        script=script(),
        shards={"count": 2, "by": "record", "aggregate": "apart"},
    )
    before = published(installation)
    held = shard(installation, "record\0r3", 2)
    request = submit(installation, "r3")
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    after = published(installation)
    assert after[1 - held] == before[1 - held]
    with Session(installation.services.engine) as session:
        salts = {one.record: bytes(one.salt) for one in session.exec(select(Record))}
    kept = [
        i for i in range(ROWS) if i != 3 and shard(installation, f"record\0r{i}", 2) == held
    ]
    kept.sort(key=lambda i: record_commitment(salts[f"r{i}"], f"r{i}"))
    theirs = np.linalg.lstsq(
        arrays["features"][kept], arrays["labels"][kept].astype(float), rcond=None
    )
    assert np.array_equal(load(after[held])["weights"], theirs[0])
