"""Bad input to every family: a problem that names the field, nothing stored, nothing running.

What a registration stores is counted independently of the service: rows of every table, files,
and the size of the signed log.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, SQLModel, func, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Artifact, Model, Record
from tests import small, small_network
from tests.installation import Installation, install
from tests.small import pack
from tests.workers.jobs.families import test_vectors_family as indexes
from tests.workers.jobs.families import uploaded
from tests.workers.training.programs.small import script
from tests.workers.training.recipes.test_process import children as fits

LARGEST = 40_000  # bytes of an upload in these tests
TABLE = {"ref": "bad", "classes": ["no", "maybe", "yes"], "columns": 4}
TREES = {"estimator": "sklearn.tree.DecisionTreeClassifier", "parameters": {}}
Manifest = dict[str, Any]
# For each family: a valid manifest, and its member with the options.
FAMILIES: dict[str, tuple[Manifest, str]] = {
    "ridge": ({**small.manifest(), "ref": "bad"}, ""),
    "sums": ({**TABLE, "family": "sums", "sums": {"estimator": "gaussian-nb"}}, "sums"),
    "forest": (
        {
            "family": "forest",
            "ref": "bad",
            "classes": TABLE["classes"],
            "edges": [[-1.0, 0.0, 1.0]] * 4,
            "forest": {"trees": 3},
        },
        "forest",
    ),
    "recipe": ({**TABLE, "family": "recipe", "recipe": TREES}, "recipe"),
    "script": ({**TABLE, "family": "script", "script": script()}, "script"),
    "shards": (
        {**TABLE, "family": "shards", "recipe": TREES, "shards": {"count": 2}},
        "shards",
    ),
    "vectors": (
        {"family": "vectors", "ref": "bad", "columns": 8, "vectors": {"index": "flat"}},
        "vectors",
    ),
    "network": ({**small_network.manifest(), "ref": "bad"}, "training"),
}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: bad input is refused before any statement."""
    return sqlite_url


@pytest.fixture
def installation(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """An installation that accepts only small uploads."""
    with install(settings.model_copy(update={"max_upload_bytes": LARGEST})) as made:
        assert made.caller.register_key().status_code == 201
        yield made


def arrays_of(family: str) -> dict[str, Any]:
    if family == "ridge":
        return small.rows()
    if family == "vectors":
        return indexes.rows()
    return small_network.rows() if family == "network" else uploaded.rows()


def stored(installation: Installation, earlier: list[str]) -> dict[str, object]:
    """Return how much is stored and running: rows by table, files, the log, new processes."""
    found: dict[str, object] = {}
    with Session(installation.services.engine) as session:
        for table in SQLModel.metadata.sorted_tables:
            query = select(func.count()).select_from(table)
            found[table.name] = session.exec(query).one()
    data = installation.settings.data_dir
    found["files"] = sorted(
        str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()
    )
    found["log"] = installation.services.ledger.guard.read().size
    found["queued"] = len(installation.dispatcher.nudges)
    found["processes"] = left_by(earlier)
    return found


def children() -> list[str]:
    """Return this process's children that still run.

    A template process waits for the next fit and has no rows; the fits that it forked count.
    """
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    own = [number for one in tasks for number in one.read_text().split()]
    started = [one for one in own if b"recipes.template" not in command(one)]
    return sorted({*started, *fits()})


def left_by(earlier: list[str]) -> list[str]:
    """Return the processes started since. One of an earlier test may end meanwhile."""
    return sorted(set(children()) - set(earlier))


def command(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def send(installation: Installation, manifest: Manifest, body: bytes) -> Any:
    return installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", body)},
        data={"manifest": json.dumps(manifest)},
    )


def with_value(array: Any, value: float) -> Any:
    found = array.copy()
    found[3, 1] = value
    return found


def bad(family: str) -> Iterator[tuple[str, Manifest, bytes, tuple[int, str]]]:
    """Yield the defect, the request, the status and a word of the problem."""
    manifest, options = FAMILIES[family]
    arrays = arrays_of(family)
    rows = "inputs" if family == "network" else "features"
    values = arrays[rows]

    def changed(**changes: Any) -> bytes:
        return pack({**arrays, **changes})

    yield "no archive", manifest, b"no archive", (422, ".npz")
    yield (
        "too large",
        manifest,
        changed(**{rows: np.repeat(values, 60, axis=1)}),
        (413, str(LARGEST)),
    )
    # Others treat it as missing.
    if family in ("ridge", "vectors", "network", "sums", "forest"):
        words = "clean" if family != "forest" else "features"
        yield "NaN", manifest, changed(**{rows: with_value(values, np.nan)}), (422, words)
    yield "infinity", manifest, changed(**{rows: with_value(values, np.inf)}), (422, rows)
    wider = np.concatenate([values, values[:, :1]], axis=1)
    yield "another width", manifest, changed(**{rows: wider}), (422, "")
    unknown = (422, "an array that nothing reads; known are")
    yield "an unknown array", manifest, changed(subject=arrays["clients"]), unknown
    missing = {name: one for name, one in arrays.items() if name != "clients"}
    yield "a missing array", manifest, pack(missing), (422, "clients")
    twice = np.array([arrays["records"][1], *arrays["records"][1:]])
    yield "an id twice", manifest, changed(records=twice), (422, "record ids repeat")
    if family != "vectors":
        outside = np.array([9, *arrays["labels"][1:]])
        yield "a label outside", manifest, changed(labels=outside), (422, "labels")
        others = np.array([*manifest.get("classes", ()), "other"])
        odd = (422, "label_names are not the model's classes")
        yield "labels of other names", manifest, changed(label_names=others), odd
        twice_named = {**manifest, "classes": ["a", "b", "a"]}
        yield "classes twice", twice_named, changed(), (422, "classes: ")
    # A sender's name is not repeated: the closest known name is given instead.
    yield "an unknown member", {**manifest, "clases": 3}, changed(), (422, "write classes")
    if options:
        strange = {**manifest, options: {**manifest[options], "colour": 3}}
        words = f'"{options}.(unknown field)'
        yield "an unknown option", strange, changed(), (422, words)
    yield "an unknown family", {**manifest, "family": "oracle"}, changed(), (422, "family")
    if family in ("recipe", "shards"):
        strange = {**manifest, "recipe": {**TREES, "estimator": "os.system"}}
        yield "a class outside the list", strange, changed(), (422, "recipe.estimator")
    if family == "vectors":
        for options_, field in (
            ({"index": "annoy"}, "vectors.index"),
            ({"index": "ivf", "centroids": "AAAA"}, "vectors.centroids"),
            ({"index": "ivf", "centroids": "no base64"}, "vectors.centroids"),
        ):
            yield "no index", {**manifest, "vectors": options_}, changed(), (422, field)


def test_bad_input_is_named_and_leaves_nothing(installation: Installation) -> None:
    earlier = children()
    before = stored(installation, earlier)
    wrong = []
    for family in FAMILIES:
        for name, manifest, body, (status, words) in bad(family):
            answer = send(installation, manifest, body)
            after = stored(installation, earlier)
            if answer.status_code != status or words not in answer.text or after != before:
                differs = [key for key in before if after[key] != before[key]]
                wrong.append((family, name, answer.status_code, answer.text[:300], differs))
                before = after
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_good_is_taken(installation: Installation, family: str) -> None:
    """Otherwise the test above would prove nothing."""
    answer = send(installation, FAMILIES[family][0], pack(arrays_of(family)))
    assert answer.status_code == 201, answer.text


def test_what_only_a_worker_finds_fails_the_model_and_keeps_no_row(
    installation: Installation,
) -> None:
    recipe = {**TREES, "parameters": {"depth": 3}}
    manifest = {**TABLE, "family": "recipe", "recipe": recipe}
    earlier = children()
    assert send(installation, manifest, pack(uploaded.rows())).status_code == 201
    installation.drain()
    with Session(installation.services.engine) as session:
        model = session.exec(select(Model)).one()
        assert (model.state, model.current_version) == ("failed", None)
        assert "depth" in str(model.failure)
        assert session.exec(select(Record)).first() is None
        assert all(one.wrapped_key is None for one in session.exec(select(Artifact)))
    assert left_by(earlier) == []
    installation.check()
