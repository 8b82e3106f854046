"""Deep models from a signed request to a published version and its verification."""

import json
from hashlib import sha256
from typing import Any, get_args

import numpy as np
import pytest
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.schemas.families.networks import BY_REFERENCE, NetworkChoice, VerificationTerms
from app.settings import Settings
from benchmarks.baselines.registry import BASELINES
from lethe import canonical
from lethe.catalogue import NETWORK, Distance
from lethe.held_out import is_held_out
from lethe.log.entries import parse_leaf
from models import Artifact, ErasureRequest, LogEntry
from tests import small_network
from tests.installation import Installation, install
from tests.lethe.certificates.escalations import escalation_line
from tests.small import pack
from tests.workers.jobs.families.network import networks
from workers.judge.attacks.registry import ATTACKS, NEED_REFERENCES
from workers.judge.policy.document import digest, to_document
from workers.judge.policy.policy import LEAST_REFERENCES, MOST_REFERENCES, default
from workers.judge.samples.distances import DISTANCES
from workers.methods.network import registry as unlearning
from workers.training.networks import registry as architectures

ESCALATION = [
    "received",
    "executing",
    "executed",
    "verified",
    "escalated",
    "executed",
    "verified",
]


@pytest.mark.parametrize("method", ["puf-special", "puf-regular", "hf-kcu"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_no_test_has_the_power_to_show_escalates_to_retraining(
    installation: Installation, method: str
) -> None:
    networks.register(installation)
    request_id = networks.erase(installation, networks.whole("c1"), method=method)
    assert networks.events(installation, request_id) == [*ESCALATION, "certified"]
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "exact-retrained"
    assert all(check.passed for check in found.checks)
    assert found.method.parameters["asked"] == method
    assert escalation_line(found.method.parameters).startswith(f"{method}: INCONCLUSIVE (")
    assert int(found.method.parameters["escalation.flops"]) > 0
    rows = small_network.rows()
    gone = set(rows["records"][rows["clients"] == "c1"].tolist())
    assert networks.published(installation) == networks.retrained(rows, gone)
    # The version of the method itself was published, judged and withdrawn.
    assert [v.step for v in networks.versions(installation)] == [1, 1, 2]
    installation.check()


@pytest.mark.parametrize(
    ("method", "certifiable"), [("hf-kcu", False), ("retrain", True), (None, False)]
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_preview_says_that_the_policy_asks_for_more_records(
    installation: Installation, method: str | None, certifiable: bool
) -> None:
    networks.register(installation)
    wanted = {"model": small_network.MODEL, "scope": networks.some("r0", "r1")}
    body = json.dumps(wanted if method is None else {**wanted, "method": method}).encode()
    found = installation.caller.signed("POST", "/v1/requests/preview", body).json()
    assert found["records"] == 2
    assert (found["pairs"] >= found["needed"]) is certifiable
    named = found["method"] in (found["warnings"] or [""])[0]
    assert named is not certifiable
    # The receipt says the same, also as the answer to a repeated submission.
    for _ in range(2):
        headers = {"Idempotency-Key": "once"}
        sent = installation.caller.signed("POST", "/v1/requests", body, headers=headers)
        assert sent.json()["warnings"] == found["warnings"]


def test_a_retraining_is_certified_at_once(installation: Installation) -> None:
    networks.register(installation)
    request_id = networks.erase(installation, networks.some("r0", "r1"), method="retrain")
    assert networks.events(installation, request_id) == [
        "received",
        "executing",
        "executed",
        "verified",
        "certified",
    ]
    found = networks.statement(installation, request_id).predicate
    assert found.method.id == "retrain"
    assert networks.published(installation) == networks.retrained(
        small_network.rows(), {"r0", "r1"}
    )
    parameters = found.method.parameters
    assert int(parameters["cost.flops"]) > 0
    assert parameters["engine"] == "in-process"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_requests_one_after_another_forget_all_that_was_asked(
    installation: Installation,
) -> None:
    networks.register(installation)
    ids = [
        networks.submit(installation, networks.some("r0", "r5")),
        networks.submit(installation, networks.whole("c2"), method="retrain"),
        networks.submit(installation, networks.some("r9"), method="hf-kcu"),
    ]
    installation.drain()
    states = [networks.request(installation, one).state for one in ids]
    assert states == ["certified"] * 3
    rows = small_network.rows()
    gone = {"r0", "r5", "r9", *rows["records"][rows["clients"] == "c2"].tolist()}
    assert networks.published(installation) == networks.retrained(rows, gone)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_record_that_was_never_trained_on_is_purged_and_certified(
    installation: Installation,
) -> None:
    networks.register(installation)
    before = networks.published(installation)
    held = next(f"r{i}" for i in range(120) if is_held_out(7, 0.25, f"r{i}"))
    request_id = networks.erase(installation, networks.some(held))
    assert networks.statement(installation, request_id).predicate.guarantee.class_ == (
        "exact-retrained"
    )
    assert networks.published(installation) == before  # there was no trace to remove
    why = "puf-special: not run, none of the records was ever trained on"
    told = networks.statement(installation, request_id).predicate.method.parameters
    assert (told["asked"], escalation_line(told)) == ("puf-special", why)
    assert "escalated" in networks.events(installation, request_id)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_contribution_trains_anew_with_all_rows(installation: Installation) -> None:
    networks.register(installation)
    networks.erase(installation, networks.whole("c1"))
    caller = installation.caller
    caller.keyid = "feeder"
    assert caller.register_key(role="client", client="c3").status_code == 201
    more = small_network.rows(seed=1, count=16, first=120)
    more["clients"] = np.full(16, "c3")
    path = f"/v1/models/{small_network.MODEL}/contributions"
    answer = caller.signed("POST", path, pack(more), content_type="application/octet-stream")
    assert answer.status_code == 202, answer.text
    installation.drain()
    rows = small_network.rows()
    gone = set(rows["records"][rows["clients"] == "c1"].tolist())
    both = {name: np.concatenate([rows[name], more[name]]) for name in rows}
    assert networks.published(installation) == networks.retrained(both, gone)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_nothing_that_saw_the_erased_rows_but_their_scores_is_left_to_read(
    installation: Installation,
) -> None:
    networks.register(installation)
    networks.erase(installation, networks.whole("c1"))
    with Session(installation.services.engine) as session:
        found = session.exec(select(Artifact)).all()
        readable = sorted(a.kind for a in found if a.wrapped_key is not None)
    # Scores hold two models' outputs on the erased rows, and salted digests.
    assert readable == ["evidence", "head", "scores", "state"]
    assert all(job.checkpoint_id is None for job in networks.jobs(installation))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_policy_is_logged_before_the_first_row_is_seen(installation: Installation) -> None:
    networks.register(installation)
    with Session(installation.services.engine) as session:
        leaves = [parse_leaf(e.leaf) for e in session.exec(select(LogEntry)).all()]
    registered = next(leaf for leaf in leaves if leaf.event == "model.registered")
    policy = small_network.manifest()["policy"]
    text = json.dumps(policy, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert registered.digests["policy"] == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_methods_that_only_benchmarks_run_are_no_names_here(installation: Installation) -> None:
    networks.register(installation)
    for method in BASELINES:
        fields = {"model": small_network.MODEL, "method": method}
        answer = installation.caller.erase(networks.whole("c1"), fields=fields)
        assert answer.status_code == 422, method
        assert answer.json()["type"] == "urn:lethe:problem:method-unavailable"
    with Session(installation.services.engine) as session:
        assert session.exec(select(ErasureRequest)).first() is None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_method_that_lacks_something_refuses_and_names_another(
    installation: Installation,
) -> None:
    networks.register(installation)
    before = networks.published(installation)
    # A row of every client: no client is left for the regular round.
    everybody = networks.some("r0", "r1", "r2", "r3")
    request_id = networks.erase(installation, everybody, method="puf-regular")
    refused = networks.request(installation, request_id)
    assert refused.state == "refused"
    assert "retrain" in str(refused.reason)
    assert networks.published(installation) == before
    # The records' claims are released: another request for them is accepted.
    again = networks.erase(installation, everybody, method="retrain")
    assert networks.request(installation, again).state == "certified"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_every_method_runs_from_a_request(installation: Installation) -> None:
    """Each is certified, by itself or after the escalation."""
    networks.register(installation)
    ids = {
        method: networks.submit(installation, networks.some(f"r{place}"), method=method)
        for place, method in enumerate(NETWORK)
    }
    installation.drain()
    found = {method: networks.request(installation, one) for method, one in ids.items()}
    assert {m: r.reason for m, r in found.items() if r.state != "certified"} == {}
    gone = {f"r{place}" for place in range(len(NETWORK))}
    assert networks.published(installation) == networks.retrained(small_network.rows(), gone)


def test_the_names_that_the_api_knows_are_those_there_are() -> None:
    assert sorted(NETWORK) == sorted(unlearning.METHODS)
    named = NetworkChoice.model_json_schema()["properties"]["id"]["enum"]
    assert sorted(named) == list(architectures.known())
    attacks = VerificationTerms.model_json_schema()["properties"]["attacks"]["items"]["enum"]
    assert sorted(attacks) == sorted(ATTACKS)
    assert sorted(BY_REFERENCE) == sorted(NEED_REFERENCES)
    references = VerificationTerms.model_json_schema()["properties"]["references"]["anyOf"][0]
    assert (references["minimum"], references["maximum"]) == (LEAST_REFERENCES, MOST_REFERENCES)
    assert sorted(get_args(Distance)) == sorted(DISTANCES)


@pytest.mark.parametrize("references", [None, 16])
def test_the_api_digests_a_policy_as_its_judge_does(references: int | None) -> None:
    policy = default(1000, references=references, method="puf-special")
    document = VerificationTerms(**to_document(policy)).model_dump()
    assert document == to_document(policy)
    assert sha256(canonical.encode(document)).hexdigest() == digest(policy)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_step_that_is_never_safe_gives_way_to_retraining_in_the_log(
    installation: Installation,
) -> None:
    # One step of sixteen times the paper's size, free of cost.
    never = {"rise": 0.0, "trials": 1}
    networks.register(installation, settings={"puf-special": {"guard": never}})
    request_id = networks.erase(installation, networks.whole("c1"))
    assert networks.events(installation, request_id) == [
        "received",
        "executing",
        "escalated",
        "executed",
        "verified",
        "certified",
    ]
    method = networks.statement(installation, request_id).predicate.method
    assert method.id == "retrain"
    assert method.parameters["asked"] == "puf-special"
    assert escalation_line(method.parameters) == "puf-special: NoSafeStep"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_requests_that_wait_for_one_another_are_forgotten_in_one_step(
    settings: Settings, ledger: Ledger
) -> None:
    waiting = {"batch_min_requests": 3, "batch_max_wait_seconds": 3600}
    with install(settings.model_copy(update=waiting)) as made:
        networks.register(made)
        scopes = [networks.whole("c1"), networks.some("r0"), networks.some("r2", "r3")]
        ids = [networks.submit(made, scope) for scope in scopes]
        made.drain()
        assert [networks.request(made, one).state for one in ids] == ["certified"] * 3
        # Registration, one update for all, one retraining for all.
        assert [version.step for version in networks.versions(made)] == [1, 1, 2]
        counts = [networks.statement(made, one).predicate.scope.records for one in ids]
        assert counts == [30, 1, 2]
        rows = small_network.rows()
        gone = {"r0", "r2", "r3", *rows["records"][rows["clients"] == "c1"].tolist()}
        assert networks.published(made) == networks.retrained(rows, gone)
        made.check()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_masks_are_learned_and_forgotten_too(installation: Installation) -> None:
    rng = np.random.default_rng(0)
    masks = rng.integers(2, size=(12, 16, 16))
    rows = {
        "inputs": (masks[:, None] * 200).astype(np.uint8),
        "labels": masks,
        "clients": np.array([f"c{place % 3}" for place in range(12)]),
        "records": np.array([f"r{place}" for place in range(12)]),
    }
    shape = {"channels": 1, "height": 16, "width": 16, "classes": 2, "features": 8}
    networks.register(
        installation,
        rows,
        classes=["background", "object"],
        network={"id": "res-unet", "parameters": shape},
        input_shape=[1, 16, 16],
        training={"rounds": 1, "local": {"loss": "cross-entropy+dice", "learning_rate": 0.01}},
        settings={},
    )
    request_id = networks.erase(installation, networks.whole("c1"), method="retrain")
    asked = networks.request(installation, request_id)
    assert asked.state == "certified", asked.reason
    found = networks.statement(installation, request_id).predicate
    assert found.guarantee.class_ == "exact-retrained"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"input_shape": [7]}, "input_shape"),
        (
            {"network": {"id": "logistic", "parameters": {"features": 6, "classes": 4}}},
            "4 clas",
        ),
        ({"network": {"id": "logistic", "parameters": {"depth": 2}}}, "parameters"),
        ({"settings": {"puf-special": {"speed": 2}}}, "puf-special: a setting is unknown"),
        ({"policy": {**small_network.manifest()["policy"], "tau": "0.9"}}, "tau"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_registration_that_makes_no_model_fails_and_says_why(
    installation: Installation, changes: dict[str, Any], reason: str
) -> None:
    caller = installation.caller
    arrays = small_network.rows()
    if "input_shape" in changes:
        arrays["inputs"] = np.zeros((120, 7), np.float32)
    answer = caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(arrays))},
        data={"manifest": json.dumps(small_network.manifest(**changes))},
    )
    assert answer.status_code == 201, answer.text
    installation.drain()
    failed = networks.model(installation)
    assert failed.state == "failed"
    assert reason in str(failed.failure)
    with Session(installation.services.engine) as session:
        assert [a.wrapped_key for a in session.exec(select(Artifact))] == [None]
    # The corrected registration uses the same reference, and the last one counts.
    answer = caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(small_network.rows()))},
        data={"manifest": json.dumps(small_network.manifest())},
    )
    assert answer.status_code == 201, answer.text
    installation.drain()
    assert networks.model(installation).state == "ready"
    caller.register_key()
    request_id = networks.erase(installation, networks.some("r0"), method="retrain")
    assert networks.request(installation, request_id).state == "certified"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_last_client_can_leave_too(installation: Installation) -> None:
    """A training without rows returns its initial weights, and says so."""
    networks.register(installation)
    ids = [
        networks.submit(installation, networks.whole(f"c{number}"), method="hf-kcu")
        for number in range(small_network.CLIENTS)
    ]
    installation.drain()
    assert [networks.request(installation, one).state for one in ids] == ["certified"] * 4
    found = networks.statement(installation, ids[-1]).predicate
    assert found.retained_set.after.count == 0
    assert found.method.parameters["retrain.rounds"] == "0"
    rows = small_network.rows()
    assert networks.published(installation) == networks.retrained(
        rows, set(rows["records"].tolist()) - {"r0"}, rounds=0
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_without_held_out_rows_a_guarded_step_gives_way_to_retraining(
    installation: Installation,
) -> None:
    networks.register(installation, held_out=0)
    request_id = networks.erase(installation, networks.some("r0"))
    method = networks.statement(installation, request_id).predicate.method
    assert escalation_line(method.parameters).startswith("puf-special: no held-out rows")


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "sisa"},
        {"settings": {"pga": {"epochs": 2}}},
        {"classes": ["a", "b", "a"]},
        {"training": {"rounds": 3, "seed": 2**53}},
        {"policy": {**small_network.manifest()["policy"], "tau": "0.120"}},
        {"policy": {**small_network.manifest()["policy"], "attacks": ["lira"]}},
        {"policy": {**small_network.manifest()["policy"], "references": 16}},
        {"policy": {**small_network.manifest()["policy"], "distances": {"norm": "1"}}},
        {"policy": {**small_network.manifest()["policy"], "canary_limit": "0.1"}},
        {"family": "alice@example.org"},
    ],
    ids=[
        "default",
        "settings",
        "classes",
        "seed",
        "decimal",
        "attack",
        "references",
        "distance",
        "canary",
        "family",
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_can_never_work_is_refused_before_anything_is_stored(
    installation: Installation, changes: dict[str, Any]
) -> None:
    answer = installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(small_network.rows()))},
        data={"manifest": json.dumps(small_network.manifest(**changes))},
    )
    assert answer.status_code == 422, answer.text
    assert "alice" not in answer.text
    with Session(installation.services.engine) as session:
        assert session.exec(select(Artifact)).first() is None


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, -1e7])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_inputs_that_no_training_survives_are_refused(
    installation: Installation, value: float
) -> None:
    arrays = small_network.rows()
    arrays["inputs"][3, 2] = value
    answer = installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(arrays))},
        data={"manifest": json.dumps(small_network.manifest())},
    )
    assert answer.status_code == 422
    assert "scale" in answer.json()["detail"]
