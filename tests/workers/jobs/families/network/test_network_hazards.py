"""A cheating provider of deep models is noticed before a certificate is issued."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sqlmodel import Session, select

from models import Certificate, Model
from tests import small_network
from tests.installation import Installation
from tests.lethe.certificates.escalations import escalation_line
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.network.rechecking import download, rechecked
from tests.workers.jobs.families.network.test_network_certified import leaves
from tests.workers.jobs.lineage.changed_rows import uncompared
from workers.families.network import (
    case as network_case,
)
from workers.families.network import (
    training as network_training,
)
from workers.families.network import (
    update as network_update,
)
from workers.families.network.config import NetworkConfig, network_config
from workers.families.network.data import before as network_before
from workers.families.network.data.blocks import InputBlock
from workers.families.network.data.rows import (
    assemble,
    holdings,
    row_digests,
    rows_digest,
)
from workers.lineage import versions
from workers.lineage.versions import salts_of
from workers.methods.network.base import Hooks, Unlearned, UnlearningCase
from workers.methods.network.retrain import retraining
from workers.training.fedavg.base import Work
from workers.training.networks.weights import decode_weights, encode_weights, initial_weights
from workers.updates.draft import ShreddedArtifact

Patch = pytest.MonkeyPatch
GONE = ("r0", "r4")  # of c0, at least one of them trained on


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: judgements do not depend on it."""
    return sqlite_url


def changed(patch: Patch, change: Callable[..., Any]) -> None:
    """Change weights and state between a training and its version."""
    honest = network_training.encoded

    def encoded(config: Any, weights: Any, state: Any) -> Any:
        return honest(config, *change(config, dict(weights), state))

    patch.setattr(network_training, "encoded", encoded)


def one_ulp(patch: Patch) -> None:
    def change(_: Any, weights: Any, state: Any) -> Any:
        name = sorted(weights)[0]
        moved = weights[name].clone()
        moved.view(-1)[0] = torch.nextafter(moved.view(-1)[0], torch.tensor(torch.inf))
        return {**weights, name: moved}, state

    changed(patch, change)


def not_a_number(patch: Patch) -> None:
    honest = network_training.encoded

    def encoded(config: Any, weights: Any, state: Any) -> Any:
        return replace(honest(config, weights, state), head=b"no model file")

    patch.setattr(network_training, "encoded", encoded)


def state_is_garbage(patch: Patch) -> None:
    patch.setattr(network_training, "encode_state", lambda _: b"{}")


def one_record_left_in(patch: Patch) -> None:
    honest = network_training.retrained

    def retrained(job: Any, config: Any, rows: Any, salted: Any, *more: Any) -> Any:
        leaving, *rest = more or ((),)
        return honest(job, config, rows, salted, set(sorted(leaving)[1:]), *rest)

    patch.setattr(network_update, "retrained", retrained)


def one_round_more(patch: Patch) -> None:
    honest = retraining

    def longer(network: Any, side: Any, config: Any, *more: Any, **named: Any) -> Any:
        return honest(network, side, replace(config, rounds=config.rounds + 1), *more, **named)

    patch.setattr(network_training, "retraining", longer)


def another_start(patch: Patch) -> None:
    patch.setattr(
        network_training, "initial_weights", lambda network, seed: initial_weights(network, 8)
    )


def nothing_trained_and_all_missing(patch: Patch) -> None:
    def change(config: Any, _: Any, state: Any) -> Any:
        clients = [f"c{number}" for number in range(small_network.CLIENTS)]
        missing = tuple((round, client) for round in (1, 2, 3) for client in clients)
        start = initial_weights(config.network, config.training.seed)
        return start, replace(state, missing=missing)

    changed(patch, change)


def trained_on_one_client(patch: Patch) -> None:
    """With all other answers claimed missing, although no client can drop out."""
    honest = retraining

    def alone(network: Any, side: Any, config: Any, *more: Any, **named: Any) -> Any:
        rows = {"c3": side.rows["c3"]}
        return honest(network, replace(side, rows=rows), config, *more, **named)

    def change(_: Any, weights: Any, state: Any) -> Any:
        missing = tuple((n, c) for n in (1, 2, 3) for c in ("c0", "c1", "c2"))
        return weights, replace(state, missing=missing)

    patch.setattr(network_training, "retraining", alone)
    changed(patch, change)


def rows_kept(patch: Patch) -> None:
    patch.setattr(InputBlock, "without", lambda self, _: self)


def content_kept_under_another_id(patch: Patch) -> None:
    honest = InputBlock.without

    def without(self: InputBlock, erased: set[str]) -> InputBlock | None:
        rest = honest(self, erased)
        if rest is not None and "r0" in erased & set(self.records):
            inputs = rest.inputs.copy()
            inputs[0] = self.inputs[self.records.index("r0")]
            rest = InputBlock(rest.records, inputs, rest.labels)
        return rest

    patch.setattr(InputBlock, "without", without)


def trained_on_what_was_kept(patch: Patch) -> None:
    """The content of r0 is under the id of r12, and the new model has seen it there."""
    content_kept_under_another_id(patch)
    honest = network_update.forget

    def forget(job: Any, before: Any, members: Any) -> Any:
        update = honest(job, before, members)
        services, lease = job.services, job.lease
        config = network_config(job.model)
        gone = set(GONE)
        with services.reading() as session:
            held = assemble(services, session, lease.model_id)
            salted = salts_of(session, lease.model_id)
        kept = [
            replace(one, block=rest)
            for one in held
            if (rest := one.block.without(gone)) is not None
        ]
        rows = holdings(kept, config)
        made = network_training.retrained(job, config, rows, salted)
        return replace(update, result=made)

    patch.setattr(network_update, "forget", forget)


def nothing_is_shredded(patch: Patch) -> None:
    patch.setattr(versions, "shred", lambda *_: ShreddedArtifact(_[2], "0" * 64))


CHEATS = [
    one_ulp,
    not_a_number,
    state_is_garbage,
    one_record_left_in,
    one_round_more,
    another_start,
    nothing_trained_and_all_missing,
    trained_on_one_client,
    rows_kept,
    content_kept_under_another_id,
    trained_on_what_was_kept,
    nothing_is_shredded,
]


@pytest.mark.parametrize("cheat", CHEATS, ids=[cheat.__name__ for cheat in CHEATS])
def test_a_retraining_that_is_none_is_refuted(
    installation: Installation, monkeypatch: Patch, cheat: Callable[[Patch], None]
) -> None:
    networks.register(installation)
    cheat(monkeypatch)
    request_id = networks.erase(installation, networks.some(*GONE), method="retrain")
    assert "escalated" in networks.events(installation, request_id)
    # The refit cheats too, or is honest: then the model is as it should be.
    state = networks.request(installation, request_id).state
    if state == "certified":
        wanted = networks.retrained(small_network.rows(), set(GONE))
        assert networks.published(installation) == wanted
    else:
        assert state == "needs-decision"
        with Session(installation.services.engine) as session:
            assert not session.exec(select(Certificate)).all()


def test_a_version_whose_row_is_not_as_logged_is_no_witness(
    installation: Installation, monkeypatch: Patch
) -> None:
    """An attacker with the tables makes the version before agree with a later change."""
    networks.register(installation)
    trained_on_what_was_kept(monkeypatch)
    honest = network_case.prepare

    def prepare(job: Any, session: Any, case: Any, seed: bytes) -> Any:
        model_id = job.lease.model_id
        stored = holdings(assemble(job.services, session, model_id), network_config(case.model))
        digests = row_digests(stored, salts_of(session, model_id)).values()
        gone = [bytes.fromhex(digest) for digest in case.plan.rows_gone]
        case.before.statistics_digest = rows_digest([*digests, *gone])
        return honest(job, session, case, seed)

    monkeypatch.setattr(network_case, "prepare", prepare)
    request_id = networks.erase(installation, networks.some(*GONE), method="retrain")
    assert networks.request(installation, request_id).state == "needs-decision"
    with Session(installation.services.engine) as session:
        assert not session.exec(select(Certificate)).all()


def test_a_training_that_was_changed_since_it_was_registered_is_refuted(
    installation: Installation, monkeypatch: Patch
) -> None:
    uncompared(monkeypatch)
    networks.register(installation)
    with Session(installation.services.engine) as session:
        model = session.exec(select(Model)).one()
        model.config = {
            **model.config,
            "training": {**model.config["training"], "rounds": 1, "seed": 9},
        }
        session.add(model)
        session.commit()
    request_id = networks.erase(installation, networks.some(*GONE), method="retrain")
    assert networks.request(installation, request_id).state == "needs-decision"


# From here on a model that memorises: many random features, random labels.
WIDE, ROWS = 1200, 800
ERASED = [f"r{number}" for number in range(300)]


def memorised() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "inputs": rng.normal(size=(ROWS, WIDE)).astype(np.float32),
        "labels": rng.integers(2, size=ROWS),
        "clients": np.array([f"c{number % 2}" for number in range(ROWS)]),
        "records": np.array([f"r{number}" for number in range(ROWS)]),
    }


def register_memorising(
    installation: Installation, rounds: int = 3, batch_size: int = 16, **asked: Any
) -> None:
    policy = {
        **small_network.manifest()["policy"],
        **{"attacks": ["yeom"], "tau": "0.2", "minimum_pairs": 60, "alpha": "0.2"},
        **{"power": "0.5", "coverage": "0.6", "tail_rate": "0.1", "tail_limit": "0.6"},
        **{"minimum_retained": 60, "retained_loss": "0.2", "test_loss": "0.4"},
        **asked,
    }
    local = {"batch_size": batch_size, "learning_rate": 0.5, "epochs": 6}
    networks.register(
        installation,
        memorised(),
        classes=["0", "1"],
        network={"id": "logistic", "parameters": {"features": WIDE, "classes": 2}},
        input_shape=[WIDE],
        held_out=0.4,
        training={"rounds": rounds, "seed": 7, "local": local},
        policy=policy,
        settings={"natural": {"recovery": {"rounds": 0}}},
    )


def by_method(patch: Patch, weights_of: Callable[[UnlearningCase], Any], claim: str) -> None:
    """Execute every request by a method that gives these weights."""

    class Method:
        id, version = "puf-special", "9"

        def run(self, case: UnlearningCase, hooks: Hooks) -> Unlearned:
            return Unlearned(weights_of(case), Work(), claim, {})  # type: ignore[arg-type]

    patch.setattr(NetworkConfig, "method", lambda *_: Method())


def never_seen(case: UnlearningCase) -> Any:
    """Return the result of a training from the start, which no approximation can improve on."""
    start = initial_weights(case.network, 7)
    trained = retraining(
        case.network, case.retained, case.config, start, data="x", hooks=Hooks()
    )
    return trained.weights


def test_what_forgot_and_can_show_it_is_certified_as_approximate(
    installation: Installation, monkeypatch: Patch, tmp_path: Path
) -> None:
    register_memorising(installation)
    by_method(monkeypatch, never_seen, "empirical-approximate")
    request_id = networks.erase(installation, networks.some(*ERASED))
    assert "escalated" not in networks.events(installation, request_id)
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == found.verifier.id == "empirical-approximate"
    named = {check.name: check for check in found.checks}
    assert all(check.passed for check in found.checks)
    # A reader sees how many were tested, and what the model showed before.
    assert "pairs" in named["samples"].value
    assert named["rows-before"].passed
    assert named["model-before"].passed
    installation.check()
    # A second party reaches the same verdict from the files that the certificate names.
    download(installation, request_id, tmp_path)
    (tmp_path / "model").write_bytes(networks.published(installation))
    given = ["--scores", str(tmp_path / "scores"), "--model", str(tmp_path / "model")]
    again = rechecked(tmp_path, *given)
    assert again["result"] == "AGREES"
    unseen = {line["name"] for line in again["lines"] if line["status"] == "not recomputed"}
    unnumbered = {name.partition(" ")[2] for name in unseen}
    assert unnumbered == {"purge", "model-before", "document", "judgement"}
    (began,) = leaves(installation, "model.judging")
    (said,) = [line for line in again["lines"] if line["name"] == "scores: judgement"]
    assert said["certified"] == f"sha256 {began['seed']}"
    assert began["head"] == found.model.version_after.digest


def test_what_did_nothing_is_refuted(installation: Installation, tmp_path: Path) -> None:
    register_memorising(installation)
    request_id = networks.erase(installation, networks.some(*ERASED), method="natural")
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "exact-retrained"
    assert escalation_line(found.method.parameters).startswith("natural: FAIL (")
    download(installation, request_id, tmp_path)
    again = rechecked(tmp_path, "--scores", str(tmp_path / "escalation.scores"))
    assert [line["status"] for line in again["lines"] if line["name"] == "attempt 1"] == [
        "same"
    ]


def test_rows_that_never_were_cannot_be_tested_in_place_of_those_that_went(
    installation: Installation, monkeypatch: Patch
) -> None:
    """Other rows and a model that memorised them: attacks find them before, and not after."""
    register_memorising(installation)
    old = networks.published(installation)
    honest = network_before.encode

    def encode(model: bytes, rows: Any, salted: Any, leaving: Any) -> bytes:
        rng = np.random.default_rng(5)
        network, weights = decode_weights(model)
        fresh = {}
        for client, own in rows.items():
            inputs = torch.from_numpy(rng.normal(size=own.data.inputs.shape).astype(np.float32))
            fresh[client] = replace(own, data=replace(own.data, inputs=inputs))
        inputs = torch.cat([own.data.inputs for own in fresh.values()])
        targets = torch.cat([own.data.targets for own in fresh.values()])
        signs = torch.nn.functional.one_hot(targets, 2).float() - 0.5
        known = {
            name: (signs.T @ inputs) / 20 if part.ndim == 2 else torch.zeros(2)
            for name, part in weights.items()
        }
        file = encode_weights(network.id, network.parameters, known)
        return honest(file, fresh, salted, leaving)

    monkeypatch.setattr(network_before, "encode", encode)
    request_id = networks.erase(installation, networks.some(*ERASED), method="natural")
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "exact-retrained"
    assert networks.published(installation) != old


def test_a_method_does_not_choose_its_judge(
    installation: Installation, monkeypatch: Patch
) -> None:
    register_memorising(installation)
    by_method(monkeypatch, never_seen, "exact")
    request_id = networks.erase(installation, networks.some(*ERASED))
    assert networks.request(installation, request_id).state == "refused"


def test_a_worker_without_torch_leaves_networks_to_others(
    installation: Installation, monkeypatch: Patch
) -> None:
    networks.register(installation)
    monkeypatch.setattr("workers.families.base.find_spec", lambda _: None)
    request_id = networks.erase(installation, networks.some("r0"), method="retrain")
    assert networks.request(installation, request_id).state == "executing"
    monkeypatch.undo()
    installation.recover()
    assert networks.request(installation, request_id).state == "certified"
