"""Every method of the ridge family, from a signed request to a certificate, in any order."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, select

from app.schemas.models import NewModel
from app.vault.features import FeatureVault
from lethe.catalogue import RIDGE
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import Statement, parse_statement
from models import Artifact, Model, Record
from tests.installation import Installation
from tests.small import MODEL, ROWS, Caller, pack, rows
from workers.artifacts import decode_head
from workers.families.ridge import rows as ridge_rows
from workers.families.ridge import stored
from workers.families.ridge.rows import RowStream
from workers.judge.ridge.reading import leaves_of
from workers.methods.ridge import base

CLASSES = {
    "ridge-exact": "exact",
    "ridge-woodbury": "numerically-exact",
    "acu": "numerically-exact",
    "ridge-sketched": "certified-approximate",
}


def test_all_that_name_the_methods_agree() -> None:
    assert sorted(RIDGE) == list(base.method_names()) == sorted(CLASSES)
    schema: Any = NewModel.model_json_schema()
    assert schema["properties"]["method"]["enum"] == list(RIDGE)


def erase(installation: Installation, record: str, method: str | None = None) -> Statement:
    fields = {} if method is None else {"method": method}
    accepted = installation.caller.erase_records(record, fields=fields)
    assert accepted.status_code == 202, accepted.text
    installation.drain()
    shown = installation.caller.http.get(f"/v1/requests/{accepted.json()['id']}").json()
    assert shown["state"] == "certified", shown
    bundle = installation.caller.http.get(shown["certificate"]).content
    return parse_statement(parse_bundle(bundle).dsse_envelope.payload)


@pytest.mark.parametrize("method", RIDGE)
def test_a_model_registered_with_a_method_is_unlearned_with_it(
    installation: Installation, method: str
) -> None:
    installation.ready(method=method)
    for number in range(3):
        predicate = erase(installation, f"r{number}").predicate
        assert predicate.method.id == method, predicate.checks
        assert predicate.guarantee.class_ == CLASSES[method]
        assert len(predicate.checks) == 7
    installation.check()


def test_the_methods_take_turns_on_one_model(installation: Installation) -> None:
    installation.ready()
    order = ["ridge-woodbury", "acu", "ridge-exact", "acu", "ridge-woodbury", "ridge-exact"]
    for number, method in enumerate(order):
        predicate = erase(installation, f"r{number}", method).predicate
        assert (predicate.method.id, predicate.guarantee.class_) == (method, CLASSES[method])
    assert predicate.method.parameters["bits"] == "16"
    installation.check()


def test_resets_are_in_the_certificate(installation: Installation) -> None:
    installation.ready()
    first = erase(installation, "r0", "ridge-woodbury").predicate.method.parameters
    second = erase(installation, "r1", "ridge-woodbury").predicate.method.parameters
    assert (first["reset"], second["reset"]) == ("initial", "none")


@pytest.mark.parametrize("method", ["ridge-woodbury", "acu"])
def test_learning_and_unlearning_alternate_within_the_certified_bound(
    installation: Installation, method: str
) -> None:
    installation.ready(method=method)
    client = Caller(installation.caller.http, installation.caller.token, keyid="client")
    client.register_key(role="client")
    path = f"/v1/models/{MODEL}/contributions"
    for turn in range(3):
        more = pack(rows(seed=turn, count=4, first=100 * (turn + 1)))
        client.signed("POST", path, more, content_type="application/x-npz")
        installation.drain()
        predicate = erase(installation, f"r{turn}").predicate
    number = 1 + 2 * 3
    artifact = f"/v1/models/{MODEL}/versions/{number}/artifact"
    head, config = decode_head(installation.caller.operator("GET", artifact).content)
    kept: list[dict[str, Any]] = [
        rows(),
        *(rows(seed=t, count=4, first=100 * (t + 1)) for t in range(3)),
    ]
    x = np.concatenate([part["features"] for part in kept])[3:]  # without r0, r1 and r2
    y = np.eye(3)[np.concatenate([part["labels"] for part in kept])[3:]]
    codes, _ = config.quantiser.quantise(x)
    features = codes * 2.0 ** np.array(config.exponents)
    padded = np.vstack([features, np.sqrt(config.penalty) * np.eye(6)])
    refit = np.linalg.lstsq(padded, np.vstack([y, np.zeros((6, 3))]))[0]
    bound = float(predicate.guarantee.bounds["head"])
    assert np.linalg.norm(head - refit) <= bound + 1e-12
    assert bound < 1e-9


def test_the_posterior_is_compared_with_the_one_before_which_is_then_destroyed(
    installation: Installation,
) -> None:
    installation.ready()
    predicate = erase(installation, "r0").predicate
    assert predicate.checks[4].name == "posterior"
    assert "eigenvalues of G before - G after are at least" in predicate.checks[4].value
    with Session(installation.services.engine) as session:
        kept = session.exec(select(Artifact).where(Artifact.kind == "before")).all()
        assert len(kept) == 1
        assert kept[0].wrapped_key is None


def test_statistics_before_that_are_others_are_noticed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider shows the verifier statistics that never included the person."""
    installation.ready()
    honest = stored.encode_before

    def encode(statistics: Any, config: Any) -> Any:
        gram = statistics.gram.copy()
        gram[0, 0] += 2
        return honest(replace(statistics, gram=gram), config)

    monkeypatch.setattr(stored, "encode_before", encode)
    accepted = installation.caller.erase_records("r0")
    installation.drain()
    shown = installation.caller.http.get(f"/v1/requests/{accepted.json()['id']}").json()
    assert shown["state"] == "needs-decision"
    assert "5 posterior" in shown["reason"]


@pytest.mark.parametrize("at_once", [1, 9, 4096])
def test_the_verifier_reads_all_rows_each_time_anew(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Five clients have eight rows each: one block, or all of them, is in memory at once."""
    fetched: list[int] = []
    honest = FeatureVault.load_many

    def load_many(*arguments: Any) -> Any:
        fetched.append(arguments[-1])
        return honest(*arguments)

    monkeypatch.setattr(FeatureVault, "load_many", load_many)
    monkeypatch.setattr(ridge_rows, "MOST_ROWS", at_once)
    with Session(ready.services.engine) as session:
        model = session.exec(select(Model)).one()
        known = {one.record: bytes(one.commitment) for one in session.exec(select(Record))}
    assert model.id is not None
    stream = RowStream(ready.services, model.id)
    for _ in range(2):
        blocks = list(stream)
        leaves = [bytes(one) for block in blocks for one in leaves_of(block).commitments]
        names = [record for block in blocks for record in block.records]
        assert dict(zip(names, leaves, strict=True)) == known
        assert stream.read == ROWS
    assert fetched == [{1: 1, 9: 1, 4096: 100}[at_once]] * 2
