"""Shards from a signed request to a certificate; the oracle fits each shard by itself.

It computes the assignment with hmac, and fits with scikit-learn alone.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from sklearn.ensemble import RandomForestClassifier
from sqlmodel import Session, select

from lethe.certificates.retained import record_commitment
from models import Model, Record
from tests.installation import Installation
from tests.small import pack
from tests.workers.jobs import networks
from workers.training.recipes import process
from workers.training.recipes.files import FittedRecipe, decode, encode
from workers.training.recipes.fit import FitRows
from workers.training.recipes.fit import fit as fit_here
from workers.training.recipes.process import Limits
from workers.training.recipes.recipe import Recipe

MODEL, ROWS, COLUMNS, SHARDS = "churn", 90, 4, 4
FOREST = {
    "estimator": "sklearn.ensemble.RandomForestClassifier",
    "parameters": {"n_estimators": 3},
    "seed": 5,
}
CLASSES = ["no", "maybe", "yes"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: what shards store goes through the same calls as all rows."""
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


def rows() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, COLUMNS))
    labels = (features[:, 0] > 0).astype(np.int64) + (features[:, 1] > 1)
    return {
        "features": features,
        "labels": labels,
        "clients": np.array([f"c{i % 5}" for i in range(ROWS)]),
        "records": np.array([f"r{i}" for i in range(ROWS)]),
        "subjects": np.array([f"s{i % 30}" for i in range(ROWS)]),
    }


def send(installation: Installation, arrays: dict[str, Any], **changes: Any) -> Any:
    manifest = {
        "family": "shards",
        "ref": MODEL,
        "classes": CLASSES,
        "columns": COLUMNS,
        "recipe": FOREST,
        "shards": {"count": SHARDS},
        **changes,
    }
    assert installation.caller.register_key().status_code in (200, 201)
    return installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(arrays))},
        data={"manifest": json.dumps(manifest)},
    )


def register(
    installation: Installation, arrays: dict[str, Any] | None = None, **changes: Any
) -> None:
    """Register shards and fit them."""
    answer = send(installation, arrays or rows(), **changes)
    assert answer.status_code == 201, answer.text
    installation.drain()
    found = networks.model(installation)
    assert found.state == "ready", found.failure


def submit(installation: Installation, *records: str) -> str:
    scope = {"level": "sample", "records": list(records)}
    answer = installation.caller.erase(scope, fields={"model": MODEL})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def published(installation: Installation) -> list[bytes]:
    """Return the shards' own files, as any reader of safetensors finds them."""
    path = f"/v1/models/{MODEL}/versions/current/artifact"
    answer = installation.caller.operator("GET", path)
    assert answer.status_code == 200
    arrays = load(answer.content)
    return [arrays[name].tobytes() for name in sorted(arrays)]


def shard(installation: Installation, name: str, shards: int = SHARDS) -> int:
    """Return the shard of a name, computed here."""
    services = installation.services
    with Session(services.engine) as session:
        model = session.exec(select(Model)).one()
    secret = services.master.open(model.tombstone_key, aad=f"tombstone|{MODEL}".encode())
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
    """Fit each shard to the rows that stay of it, with scikit-learn alone."""
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
        made = RandomForestClassifier(n_estimators=3, random_state=5)
        made.fit(arrays["features"][mine], labels)
        found.append(encode(FittedRecipe(recipe, COLUMNS, tuple(map(int, classes)), made)))
    return found


def check_is(installation: Installation, gone: Sequence[str] = ()) -> None:
    """Insist that the published shards are those of the rows that stay."""
    assert published(installation) == oracle(
        installation, lambda i: of_subject(installation, i), gone
    )


def test_an_erasure_fits_the_shards_that_held_the_rows(
    installation: Installation, fits: list[list[int]]
) -> None:
    register(installation)
    check_is(installation)
    before = published(installation)
    fits.clear()
    # Of one person: in one shard, whatever the client.
    request = submit(installation, "r3", "r33")
    installation.drain()
    held = of_subject(installation, 3)
    assert [len(one) for one in fits] == [1, 1]  # to erase, and to judge
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
