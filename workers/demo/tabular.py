"""`lethe demo --family`: models of tables forget by signed request."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from lethe.identity import Identity, parse
from workers.data.federation import Federation, hold_out, record_ids
from workers.data.npz import load_npz
from workers.demo import program
from workers.demo.directory import check_directory
from workers.demo.plan import Wish
from workers.demo.run import MODEL, Demonstrated, demonstrate
from workers.demo.service import DemoError
from workers.demo.table import TableRow
from workers.registration import forest, script, shards, vectors
from workers.registration.recipe import (
    RecipeRegistration,
    RecipeRows,
    prepare_recipe,
    rows_of_federation,
)
from workers.training.recipes.files import decode

CLINICS = 20
ROWS_OF_A_PATIENT = 2
RECIPE = {
    "estimator": "sklearn.ensemble.HistGradientBoostingClassifier",
    "parameters": {"max_iter": 50, "learning_rate": 0.1},
    "seed": 0,
}


INDEX = {"index": "flat"}
SHARDS = {"count": 8, "aggregate": "mean"}
FOREST = {"trees": 50, "depth": 12, "thresholds": 16, "seed": 0}


@dataclass(frozen=True, slots=True)
class Kind:
    """How a family is demonstrated; a further one is an entry in KINDS and a choice.

    measure: describes a downloaded file's quality on held-out rows. guarantee: the required
    claim of each certificate.
    """

    prepare: Callable[[RecipeRows], RecipeRegistration]
    measure: Callable[[bytes, RecipeRegistration], str]
    guarantee: str
    words: str
    remark: str


def accuracy(
    predict: Callable[[bytes, RecipeRegistration], NDArray[Any]],
) -> Callable[[bytes, RecipeRegistration], str]:
    """Return a measure of files from their predicted class indices."""

    def measure(file: bytes, prepared: RecipeRegistration) -> str:
        share = float(np.mean(predict(file, prepared) == prepared.labels))
        return f"accuracy on {len(prepared.labels)} held-out rows: {share:.3f}"

    return measure


def as_vectors(rows: RecipeRows) -> RecipeRows:
    """Return rows with their features as float32, as an index takes them."""
    return replace(rows, features=rows.features.astype(np.float32))


KINDS = {
    "recipe": Kind(
        lambda rows: prepare_recipe(rows, RECIPE, ref=MODEL),
        accuracy(lambda file, prepared: decode(file).predict(prepared.features)),
        "exact-retrained",
        str(RECIPE["estimator"]),
        "Each certificate says that a second process fitted the same bytes again",
    ),
    "forest": Kind(
        lambda rows: forest.prepare_forest(rows, FOREST, ref=MODEL),
        accuracy(forest.predict),
        "exact",
        "an exact forest of 50 trees",
        "Each certificate says that a forest fitted to the rest has the same bytes",
    ),
    "shards": Kind(
        lambda rows: shards.prepare_shards(rows, RECIPE, SHARDS, ref=MODEL),
        accuracy(shards.predict),
        "exact-retrained",
        f"{RECIPE['estimator']} in {SHARDS['count']} shards",
        "Each certificate names the shards that were fitted again, and the others' digest",
    ),
    "script": Kind(
        lambda rows: script.prepare_script(rows, program.document(), ref=MODEL),
        accuracy(lambda file, prepared: program.predict(file, prepared.features)),
        "exact-retrained",
        "a training program in numpy, isolated from network and files",
        "Each certificate says that the judge's own run of the program wrote the same bytes",
    ),
    "vectors": Kind(
        lambda rows: vectors.prepare_vectors(as_vectors(rows), INDEX, ref=MODEL, folder=Path()),
        vectors.found_by_themselves,
        "exact",
        "a flat vector index",
        "Each certificate says that no erased vector or id is in the bytes of the new files",
    ),
}


def run(family: str, data: Path | None, out: Path, keep_serving: bool) -> None:
    """Run the demonstration of a family into `out`.

    Raises:
        DemoError: Something did not work; the message says what and where to look.
        ModelError: The data file cannot be used; nothing was deleted or made.
    """
    check_directory(out, data)
    federation = _breast_cancer() if data is None else load_npz(data)
    kind = KINDS[family]
    prepared = kind.prepare(rows_of_federation(federation))
    click.echo(f"Data: {data.name if data else 'breast_cancer of scikit-learn'}, ", nl=False)
    click.echo(f"{len(prepared.records)} records; {kind.words}")
    wishes = _wishes(federation, prepared)
    named = {record for wish in wishes for record in wish.records}
    spare = [record for record in prepared.records if record not in named][:50]

    def compare(outcomes: list[TableRow]) -> None:
        _compare(out, kind, prepared, outcomes)

    demonstrate(out, data, Demonstrated(prepared, wishes, spare, 3, compare), keep_serving)


def _breast_cancer() -> Federation:
    features, labels = load_breast_cancer(return_X_y=True)
    patients = [row // ROWS_OF_A_PATIENT for row in range(len(labels))]
    clients: NDArray[np.str_] = np.array([f"clinic-{one % CLINICS:02d}" for one in patients])
    return Federation(
        features=features,
        labels=labels.astype(np.int64),
        clients=clients,
        label_names=("malignant", "benign"),
        is_test=hold_out(clients, 0),
        records=record_ids(len(labels)),
        subjects=np.array([f"patient-{one:03d}" for one in patients]),
        identities={"email": np.array([f"patient{one}@example.org" for one in patients])},
    )


def _wishes(federation: Federation, prepared: RecipeRegistration) -> list[Wish]:
    """Return requests of all scopes: three that are fitted together, a client, and a person."""
    (client, size), *_ = Counter(prepared.clients).most_common()
    owners = zip(prepared.records, prepared.clients, prepared.subjects, strict=True)
    others = [(record, subject) for record, owner, subject in owners if owner != client]
    if len(others) < 10:
        raise DemoError("the demonstration needs ten records of further clients: add some")
    wishes = [Wish("1 record", (others[0][0],)), Wish("1 record", (others[1][0],))]
    subject = others[2][1]
    if federation.subjects is None:
        wishes.append(Wish("5 records", tuple(record for record, _ in others[2:7])))
    else:
        wishes.append(Wish("subject", subject=subject))
    wishes.append(Wish(f"client, {size} records", client=client))
    last, owner = others[-1]
    person = _person_of(federation, last)
    if person is not None and owner != subject:
        wishes.append(Wish("person", person=person))
    return wishes


def _person_of(federation: Federation, record: str) -> Identity | None:
    """Return an identity of the record's person; None if the data name none."""
    place = federation.records.tolist().index(record)
    for kind, column in sorted(federation.identities.items()):
        if column.dtype.kind == "U" and column[place]:
            return parse(f"{kind}={column[place]}")
    return None


def _compare(
    out: Path, kind: Kind, prepared: RecipeRegistration, outcomes: list[TableRow]
) -> None:
    """Show that the model after loads and predicts, and its quality, beside the one before."""
    if not len(prepared.labels):
        raise DemoError("the data hold no row out: there is nothing to measure by")
    for name in ("before", "after"):
        file = (out / "models" / f"{name}.safetensors").read_bytes()
        click.echo(f"{name:6} {kind.measure(file, prepared)}")
    if any(outcome.guarantee != kind.guarantee for outcome in outcomes):
        raise DemoError("an erasure was certified as something else: see the table")
    click.echo(kind.remark)
