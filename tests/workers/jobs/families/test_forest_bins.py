"""Forests with bins from held-out rows: those are erased like all rows, with a certificate.

The oracle computes the edges with numpy and fits a forest with these declared edges.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app.purge.search import search
from app.service.models.held_out import HeldOutRows
from lethe.estimators.forest.bins import Bins
from lethe.estimators.forest.forest import Forest
from lethe.estimators.forest.published import ForestConfig, PublishedForest
from models import Artifact, Model, ModelVersion, Record, Subject
from tests.installation import Installation, shown
from tests.small import Caller, pack
from tests.workers.jobs.desk.test_cases import opened, outcomes
from tests.workers.jobs.desk.test_people import EVE, packed
from tests.workers.jobs.families import test_forest_family as forests
from tests.workers.jobs.families import uploaded
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.test_forest_family import EDGES, OPTIONS
from tests.workers.jobs.families.uploaded import MODEL, ROWS
from tests.workers.jobs.lineage.test_held_out import installation_file, stored
from workers.families.forest.family import ForestFamily
from workers.families.recipe.rows import decode_block
from workers.jobs.execute import LOST

# Of 90 rows the last 30 are held out; r62 is Eve's, r3 and r63 are one customer's.
MARKED = np.arange(ROWS) >= 60
HELD_OUT = {f"r{i}" for i in range(60, ROWS)}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: a forest uses the same calls as all rows."""
    return sqlite_url


def rows() -> dict[str, Any]:
    return {**uploaded.rows(), "bins": MARKED}


def measured() -> dict[str, Any]:
    """Return the rows, with the held-out ones sent as such too, and Eve's address."""
    arrays = rows()
    emails = packed(*(EVE if i == 62 else "" for i in range(ROWS)))
    sent = {name: arrays[name] for name in ("features", "labels", *forests_ids())}
    evaluation = {f"held_out_{name}": array[MARKED] for name, array in sent.items()}
    return {
        **arrays,
        **evaluation,
        "identity_email": emails,
        "held_out_identity_email": emails[MARKED],
    }


def forests_ids() -> tuple[str, ...]:
    return ("clients", "records", "subjects")


def register(installation: Installation, arrays: dict[str, Any] | None = None) -> None:
    forests.register(installation, arrays or rows(), bins="held-out")


def edges_of(column: Any) -> list[float]:
    """Return the edges of the held-out rows' values, by docs/forests.md."""
    values = sorted(set(column.tolist()))
    if len(values) <= 63:
        return [low / 2 + high / 2 for low, high in pairwise(values)]
    every = sorted(column.tolist())
    chosen = {every[k * len(every) // 63] for k in range(1, 63)}
    return sorted(edge for edge in chosen if edge < every[-1])


def expected(gone: Collection[str] = (), arrays: dict[str, Any] | None = None) -> bytes:
    """Return the forest of the retained rows, with edges of the held-out ones."""
    arrays = arrays or rows()
    stays = np.array([record not in gone for record in arrays["records"]])
    held_out = arrays["features"][stays & arrays["bins"]]
    edges = list(map(edges_of, held_out.T)) if len(held_out) else EDGES
    config = ForestConfig(bins=Bins.declared(edges), classes=3, least=1, prior=1, **OPTIONS)
    forest, kept = Forest(config), np.flatnonzero(stays & ~arrays["bins"])[::-1]
    forest.add(kept.astype(str).tolist(), arrays["features"][kept], arrays["labels"][kept])
    return forest.published().to_bytes()


def erase(installation: Installation, *records: str) -> Any:
    """Erase records; return the certificate's statement."""
    request = uploaded.submit(installation, *records)
    installation.drain()
    assert shown(installation, request)["state"] == "certified"
    assert "escalated" not in networks.events(installation, request)
    return networks.statement(installation, request).predicate


def test_a_held_out_row_is_erased_with_a_certificate_and_new_edges(
    installation: Installation,
) -> None:
    register(installation)
    assert uploaded.published(installation) == expected()
    said = erase(installation, "r62")
    assert (said.guarantee.class_, said.method.parameters["bins"]) == ("exact", "held-out")
    assert (said.retained_set.before.count, said.retained_set.after.count) == (90, 89)
    file = uploaded.published(installation)
    assert file == expected(["r62"]) != expected()
    before = installation.caller.operator("GET", f"/v1/models/{MODEL}/versions/1/artifact")
    assert before.status_code == 410
    edges = PublishedForest.from_bytes(file).config.bins.edges
    assert len(edges[0]) == 28  # between the 29 remaining values
    installation.check()


def test_a_request_erases_learned_and_held_out_rows_together(
    installation: Installation,
) -> None:
    register(installation)
    erase(installation, "r3", "r63")
    assert uploaded.published(installation) == expected(["r3", "r63"])
    erase(installation, "r4")  # the edges stay: the row is subtracted
    assert uploaded.published(installation) == expected(["r3", "r63", "r4"])
    installation.check()


def test_without_held_out_rows_the_registered_edges_are_the_bins(
    installation: Installation,
) -> None:
    register(installation)
    erase(installation, *sorted(HELD_OUT))
    assert uploaded.published(installation) == expected(HELD_OUT)
    erase(installation, "r1")
    assert uploaded.published(installation) == expected({*HELD_OUT, "r1"})


@pytest.mark.full
def test_many_held_out_rows_are_cut_at_their_quantiles(installation: Installation) -> None:
    arrays = {**rows(), "bins": np.arange(ROWS) >= 15}
    register(installation, arrays)
    assert uploaded.published(installation) == expected(arrays=arrays)
    erase(installation, "r20", "r2")
    assert uploaded.published(installation) == expected(["r20", "r2"], arrays)


def test_an_update_that_keeps_the_edges_of_an_erased_row_is_refuted(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted violation: the trees forget, but the bins do not."""
    register(installation)
    with monkeypatch.context() as patch:
        patch.setattr(ForestFamily, "serves", lambda *_: True)
        request = uploaded.submit(installation, "r62", "r3")
        installation.drain()
    assert "escalated" in networks.events(installation, request)
    assert shown(installation, request)["state"] == "certified"
    assert uploaded.published(installation) == expected(["r62", "r3"])


def test_a_state_with_edges_of_other_rows_is_not_believed(installation: Installation) -> None:
    register(installation)
    with Session(installation.services.engine) as session:
        version = session.exec(select(ModelVersion)).one()
        honest = Forest.open(installation.services.artifacts.get(session, version.state_id))
        edges = [own[:-1].tolist() for own in honest.config.bins.edges]
        config = ForestConfig(bins=Bins.declared(edges), classes=3, least=1, prior=1, **OPTIONS)
        other, arrays = Forest(config), rows()
        learned = ~MARKED
        names = arrays["records"][learned].tolist()
        other.add(names, arrays["features"][learned], arrays["labels"][learned])
        version.state_id = installation.services.artifacts.put(
            session, "state", other.seal()
        ).id
        session.commit()
    erase(installation, "r3")
    assert uploaded.published(installation) == expected(["r3"])


def test_a_row_that_is_said_to_be_held_out_by_another_certifies_nothing(
    installation: Installation,
) -> None:
    """Turning a learned row into a held-out one contradicts the log's commitment."""
    register(installation)
    services = installation.services
    with Session(services.engine) as session:
        owner = session.exec(select(Record.subject_id).where(Record.record == "r5")).one()
        block = decode_block(services.features.load(session, owner))
        assert block.weights is not None
        block.weights[block.records.index("r5")] = 0.0
        subject = session.get_one(Subject, owner)
        services.features.rewrite(session, subject, block.encode(), len(block.records))
        session.commit()
    request = uploaded.submit(installation, "r62")
    installation.drain()
    assert shown(installation, request)["state"] != "certified"
    with Session(services.engine) as session:
        assert session.exec(select(Model)).one().state == "quarantined"


@pytest.mark.parametrize("restored", [False, True])
def test_a_forest_is_mended_with_the_edges_of_the_rows_that_are_left(
    installation: Installation, restored: bool
) -> None:
    """restored: plants the violation that the block of an erased held-out row is restored."""
    register(installation)
    services = installation.services
    with Session(services.engine) as session:
        owner = session.exec(select(Record.subject_id).where(Record.record == "r62")).one()
        block = services.features.load(session, owner)
    erase(installation, "r62")
    with Session(services.engine) as session:
        model = session.exec(select(Model)).one()
        model.state, model.failure = "quarantined", "restored from a backup"
        if restored:
            services.features.rewrite(session, session.get_one(Subject, owner), block, 3)
        session.commit()
    answer = installation.caller.operator("POST", f"/v1/models/{MODEL}/mend")
    assert answer.status_code == 202, answer.text
    installation.drain()
    now = installation.caller.operator("GET", f"/v1/models/{MODEL}").json()
    if restored:
        assert (now["state"], now["failure"]) == ("quarantined", f"not mended: {LOST}")
    else:
        assert now["state"] == "ready"
        assert uploaded.published(installation) == expected(["r62"])


def test_a_person_who_is_only_held_out_leaves_the_bins_and_the_figures(
    installation: Installation,
) -> None:
    arrays = measured()
    arrays["records"] = np.where(arrays["records"] == "r62", "eves-row", arrays["records"])
    arrays["held_out_records"] = arrays["records"][MARKED]
    register(installation, arrays)
    case = opened(installation, EVE).json()
    (part,) = case["parts"]
    assert (part["records"], part["held_out_removed"]) == (1, 1)
    installation.drain()
    path = f"/v1/cases/{case['ref']}"
    assert outcomes(installation.caller.operator("GET", path).json()) == {MODEL: "certified"}
    assert uploaded.published(installation) == expected(["eves-row"], arrays)
    assert figure(installation)["rows"] == 29
    assert search(installation.settings, ["eves-row"]).leftovers == {}
    assert outcomes(opened(installation, EVE).json()) == {MODEL: "erased before"}
    installation.check()


def test_a_request_for_the_record_removes_it_from_the_held_out_rows_too(
    installation: Installation,
) -> None:
    register(installation, measured())
    erase(installation, "r62", "r3")
    assert figure(installation)["rows"] == 29
    (left,) = stored(installation)
    found = HeldOutRows.read(installation_file(installation, left.id))
    assert found.records == sorted(HELD_OUT - {"r62"})
    assert outcomes(opened(installation, EVE).json()) == {MODEL: "erased before"}
    installation.check()


def figure(installation: Installation) -> dict[str, Any]:
    """Return the current version's figure."""
    shown_model = installation.caller.operator("GET", f"/v1/models/{MODEL}").json()
    found: dict[str, Any] = shown_model["held_out"]
    return found


def test_no_row_of_the_bins_is_removed_without_a_request(installation: Installation) -> None:
    register(installation, measured())
    body = {"model": MODEL, "records": ["r62"]}
    answer = installation.caller.operator("POST", "/v1/people/remove-held-out", json=body)
    assert (answer.status_code, "request submit" in answer.text) == (409, True), answer.text
    assert figure(installation)["rows"] == 30


def test_what_is_contributed_is_learned_and_changes_no_edge(installation: Installation) -> None:
    arrays = rows()
    more = {name: array[:5] for name, array in uploaded.rows().items()}
    more["records"] = np.array([f"n{i}" for i in range(5)])
    more["clients"], more["features"] = np.array(["c9"] * 5), more["features"] * 3
    register(installation, arrays)
    client = Caller(installation.caller.http, installation.caller.token, keyid="c9")
    client.register_key(role="client", client="c9")
    path, kind = f"/v1/models/{MODEL}/contributions", "application/x-npz"
    marked = client.signed("POST", path, pack({**more, "bins": MARKED[:5]}), content_type=kind)
    assert (marked.status_code, "only a registration" in marked.text) == (422, True)
    assert client.signed("POST", path, pack(more), content_type=kind).status_code == 202
    installation.drain()
    more["bins"] = np.zeros(5, bool)
    both = {name: np.concatenate([arrays[name], more[name]]) for name in arrays}
    assert uploaded.published(installation) == expected(arrays=both)
    erase(installation, "n2", "r61")
    assert uploaded.published(installation) == expected(["n2", "r61"], both)


@pytest.mark.parametrize(
    ("marks", "changes", "words"),
    [
        (None, {}, "no row is one"),
        (np.zeros(ROWS, bool), {}, "no row is one"),
        (np.ones(ROWS, bool), {}, "mark all rows"),
        (np.zeros(ROWS), {}, "one boolean for each row"),
        (MARKED[1:], {}, "one boolean for each row"),
        (MARKED, {"bins": "declared"}, "an array that nothing reads"),
        (MARKED, {"bins": "public"}, "bins"),
    ],
)
def test_an_unusable_mark_is_a_named_problem(
    installation: Installation, marks: Any, changes: dict[str, Any], words: str
) -> None:
    arrays = uploaded.rows() if marks is None else {**uploaded.rows(), "bins": marks}
    answer = forests.send(installation, arrays, **{"bins": "held-out", **changes})
    assert answer.status_code == 422, answer.text
    assert words in answer.text
    with Session(installation.services.engine) as session:
        assert not session.exec(select(Artifact)).all()


def test_a_row_that_trees_learn_is_not_sent_as_held_out(installation: Installation) -> None:
    arrays = measured()
    arrays["held_out_records"] = np.array(["r0", *arrays["held_out_records"][1:]])
    answer = forests.send(installation, arrays, bins="held-out")
    assert (answer.status_code, "repeat an id" in answer.text) == (422, True), answer.text
