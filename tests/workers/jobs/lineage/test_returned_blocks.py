"""A block restored from before an erasure does not get its rows learned again.

A copy of the database has the block and its wrapped key; no record is restored with it, so no
table that a start or fsck compares differs. Nor can rows be learned onto the sums of another
model.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app import steps
from lethe.signing.keys import generate_key
from models import Contribution, Model
from tests import small, small_network
from tests.installation import Installation, shown
from tests.small import pack
from tests.workers.jobs.attempts.test_mend import ask
from tests.workers.jobs.attempts.test_refuted_groups import fits_here
from tests.workers.jobs.families import (
    test_forest_family,
    test_recipe_family,
    test_shards_family,
    test_sums_family,
    test_vectors_family,
    uploaded,
)
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.lineage.test_kept_files import write
from workers.families.network import update as network_update
from workers.families.network.data.rows import Held, assemble
from workers.lineage.logged import OTHER_ROWS, RENAMED

__all__ = ["fits_here"]  # a fixture

KEPT = "wrapped_key, key_generation, shredded_at, client, subject"
COPY = [
    "CREATE TABLE kept_blocks AS SELECT * FROM feature_blocks",
    "CREATE TABLE kept_subjects AS SELECT * FROM subjects",
]
PUT_BACK = [
    "DELETE FROM feature_blocks",
    "INSERT INTO feature_blocks SELECT * FROM kept_blocks",
    f"UPDATE subjects SET ({KEPT}) = (SELECT {KEPT} FROM kept_subjects k WHERE k.id = "
    "subjects.id)",
]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: both read the rows by the same calls."""
    return sqlite_url


def part(arrays: dict[str, Any], own: slice) -> dict[str, Any]:
    return {name: array[own] for name, array in arrays.items()}


def recipe(installation: Installation) -> tuple[str, dict[str, Any]]:
    arrays = uploaded.rows()
    test_recipe_family.register(installation, arrays=part(arrays, slice(60)))
    return uploaded.MODEL, part(arrays, slice(60, None))


def sums(installation: Installation) -> tuple[str, dict[str, Any]]:
    arrays = test_sums_family.rows()
    test_sums_family.register(installation, part(arrays, slice(40)))
    return uploaded.MODEL, part(arrays, slice(40, None))


def network(installation: Installation) -> tuple[str, dict[str, Any]]:
    networks.register(installation)
    return small_network.MODEL, small_network.rows(seed=1, count=16, first=120)


def refused(
    installation: Installation, model: str, more: dict[str, Any], why: str = OTHER_ROWS
) -> None:
    """Contribute rows, and check their refusal: the stored rows are not the version's."""
    more["clients"] = np.full(len(more["labels"]), "c3")
    feeder = replace(installation.caller, keyid="feeder", key=generate_key("ed25519"))
    assert feeder.register_key(role="client", client="c3").status_code == 201
    path, kind = f"/v1/models/{model}/contributions", "application/x-npz"
    assert feeder.signed("POST", path, pack(more), content_type=kind).status_code == 202
    installation.drain()
    with Session(installation.services.engine) as session:
        last = session.exec(select(Contribution).where(Contribution.keyid == "feeder")).one()
    assert (last.state, last.failure) == ("failed", why)


@pytest.mark.parametrize(
    "begin",
    [
        recipe,
        pytest.param(sums, marks=pytest.mark.full),
        pytest.param(network, marks=[pytest.mark.full, pytest.mark.trains]),
    ],
)
def test_a_contribution_learns_no_row_that_was_erased(
    installation: Installation,
    begin: Callable[[Installation], tuple[str, dict[str, Any]]],
) -> None:
    model, more = begin(installation)
    write(installation, *COPY)
    scope = {"level": "sample", "records": ["r1"]}
    fields = {"model": model} | ({"method": "retrain"} if begin is network else {})
    request = installation.caller.erase(scope, fields=fields).json()["id"]
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    assert len(networks.versions(installation)) == 2
    write(installation, *PUT_BACK)
    refused(installation, model, more)
    assert len(networks.versions(installation)) == 2


RESTORED = ("retained_pages", "records", "feature_blocks")
SET_BACK = [
    "PRAGMA defer_foreign_keys = ON",
    *(f"DELETE FROM {one}" for one in RESTORED),
    *PUT_BACK[-1:],
    *(f"INSERT INTO {one} SELECT * FROM kept_{one}" for one in reversed(RESTORED)),
    "UPDATE records SET claimed_by = NULL",
    "UPDATE model_versions SET number = 1000 WHERE number = 2",
    "UPDATE models SET current_version = 1",
]


@pytest.mark.parametrize(
    "begin",
    [
        recipe,
        pytest.param(sums, marks=pytest.mark.full),
        pytest.param(network, marks=[pytest.mark.full, pytest.mark.trains]),
    ],
)
@pytest.mark.parametrize("number", ["1", pytest.param("NULL", marks=pytest.mark.full)])
def test_nothing_is_learned_onto_a_version_from_before_an_erasure(
    installation: Installation,
    begin: Callable[[Installation], tuple[str, dict[str, Any]]],
    number: str,
) -> None:
    """Rows, blocks, keys and version of before, which have the digests of that version."""
    model, more = begin(installation)
    kept = ("subjects", *RESTORED)
    write(installation, *(f"CREATE TABLE kept_{one} AS SELECT * FROM {one}" for one in kept))
    scope = {"level": "sample", "records": ["r1"]}
    fields = {"model": model} | ({"method": "retrain"} if begin is network else {})
    request = installation.caller.erase(scope, fields=fields).json()["id"]
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    write(installation, *SET_BACK, f"UPDATE models SET current_version = {number}")
    refused(installation, model, more, RENAMED)
    assert len(networks.versions(installation)) == 2


@pytest.mark.trains
def test_nothing_is_learned_beside_two_rows_of_one_record(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old block of an erased record, beside the one added back: one digest."""
    model, more = network(installation)

    def twice(*given: Any) -> list[Held]:
        first, *others = assemble(*given)
        return [first, replace(first, client="a0"), *others]

    monkeypatch.setattr(network_update, "assemble", twice)
    refused(installation, model, more)
    assert len(networks.versions(installation)) == 1


# The erased record's old block and key, whose subject has a newer block.
OLD = (
    "SELECT b.subject_id FROM kept_blocks b JOIN subjects s ON s.id = b.subject_id "
    "WHERE s.key_generation > b.key_generation"
)
PLANT = [
    f"DELETE FROM feature_blocks WHERE subject_id IN ({OLD})",
    "INSERT INTO feature_blocks SELECT * FROM kept_blocks WHERE subject_id NOT IN "
    "(SELECT subject_id FROM feature_blocks)",
    f"UPDATE subjects SET ({KEPT}) = (SELECT {KEPT} FROM kept_subjects k WHERE k.id = "
    "subjects.id) WHERE id IN (SELECT id FROM kept_subjects)",
]


def send(at: Installation, arrays: dict[str, Any], more: str = "") -> Contribution:
    """Contribute rows of the client c3; return what became of them."""
    keyid = f"feeder-of-{arrays['records'][0]}"
    feeder = replace(at.caller, keyid=keyid, key=generate_key("ed25519"))
    assert feeder.register_key(role="client", client="c3").status_code == 201
    path = f"/v1/models/{networks.model(at).ref}/contributions{more}"
    answer = feeder.signed("POST", path, pack(arrays), content_type="application/x-npz")
    assert answer.status_code == 202, answer.text
    at.drain()
    with Session(at.services.engine) as session:
        return session.exec(
            select(Contribution).where(Contribution.id == answer.json()["id"])
        ).one()


def added_back(at: Installation, family: Any) -> dict[str, Any]:
    """Erase row 3, and add its record back with other contents, of another subject."""
    family.register(at)
    arrays = part(family.rows(), slice(3, 4))
    write(at, *COPY)
    request = uploaded.submit(at, str(arrays["records"][0]))
    at.drain()
    assert shown(at, request)["state"] == "certified"
    fresh = {**part(family.rows(), slice(8, 9)), "records": arrays["records"]}
    fresh["subjects"] = np.array([name_beside(at, family)])
    assert send(at, fresh, "?add_back=true").state == "learned"
    return fresh


def name_beside(at: Installation, family: Any) -> str:
    """Return a new subject; with shards, one whose rows come to those of the erased one."""
    names = (f"z{number}" for number in range(1000))
    if family is not test_shards_family:
        return next(names)
    place = test_shards_family.of_subject(at, 3)
    return next(n for n in names if test_shards_family.shard(at, f"subject\0{n}") == place)


def put(at: Installation, state: str) -> None:
    with Session(at.services.engine) as session:
        model = session.exec(select(Model)).one()
        model.state, model.failure = state, None
        session.commit()


@pytest.mark.parametrize(
    "family",
    [
        test_vectors_family,
        test_recipe_family,
        pytest.param(test_sums_family, marks=pytest.mark.full),
        pytest.param(test_forest_family, marks=pytest.mark.full),
        pytest.param(test_shards_family, marks=pytest.mark.full),
    ],
    ids=lambda module: module.__name__.rsplit(".")[-1],
)
def test_no_version_is_made_of_two_rows_of_one_record(
    installation: Installation, family: Any
) -> None:
    """An old block of an erased record, beside the one added back: one digest."""
    at = installation
    fresh = added_back(at, family)
    write(at, *PLANT)
    more = {**fresh, "records": np.array(["new"])}
    learned = send(at, more).failure
    put(at, "quarantined")
    assert ask(at, networks.model(at).ref).status_code == 202
    at.drain()
    mended = networks.model(at).failure
    put(at, "ready")
    request = uploaded.submit(at, str(family.rows()["records"][11]))
    at.drain()
    forgotten = shown(at, request)
    assert (learned, mended) == (OTHER_ROWS, f"not mended: {OTHER_ROWS}")
    assert (forgotten["state"], forgotten["reason"]) == ("needs-decision", OTHER_ROWS)
    assert len(networks.versions(at)) == 3


def test_two_rows_of_one_record_are_refuted(installation: Installation) -> None:
    """Planted after the execution: the judge finds a row too many, and nothing is refitted."""
    at, family = installation, test_recipe_family
    added_back(at, family)
    request = uploaded.submit(at, "r11")
    steps.install(lambda step: write(at, *PLANT) if step == "verify.leased" else None)
    try:
        at.drain()
    finally:
        steps.install(None)
    assert "retained-set" in uploaded.refuted(at, request)
    found = shown(at, request)
    assert (found["state"], found["reason"]) == ("needs-decision", OTHER_ROWS)


def test_a_contribution_is_added_to_no_sums_of_another_model(
    installation: Installation,
) -> None:
    installation.ready()
    assert (
        installation.caller.register_model(small.rows(seed=4), ref="other").status_code == 201
    )
    installation.drain()
    write(
        installation,
        "UPDATE model_versions SET state_id = (SELECT v.state_id FROM model_versions v JOIN "
        "models m ON m.id = v.model_id WHERE m.ref = 'other') WHERE model_id = "
        "(SELECT id FROM models WHERE ref = 'small')",
    )
    feeder = replace(installation.caller, keyid="feeder", key=generate_key("ed25519"))
    assert feeder.register_key(role="client", client="c3").status_code == 201
    more = small.rows(seed=9, count=3, first=100)
    more["clients"] = np.full(3, "c3")
    path, kind = f"/v1/models/{small.MODEL}/contributions", "application/x-npz"
    assert feeder.signed("POST", path, pack(more), content_type=kind).status_code == 202
    installation.drain()
    with Session(installation.services.engine) as session:
        last = session.exec(select(Contribution).where(Contribution.keyid == "feeder")).one()
    assert (last.state, last.failure) == ("failed", OTHER_ROWS)
