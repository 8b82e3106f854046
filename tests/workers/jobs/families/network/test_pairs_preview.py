"""A request whose method cannot pass on its records is told so before it is sent."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.ledger.storage import LogDamagedError
from app.reconcile.judgement import JUDGING
from app.service import acceptance, pairs
from app.service.scope import FETCH
from app.settings import Settings
from lethe.held_out import is_held_out
from lethe.pairs import least_pairs
from tests import small_network
from tests.installation import Installation, install
from tests.workers.jobs.families.network import networks
from workers.errors import RefusedError
from workers.judge.inference.intervals import spent
from workers.judge.policy.document import to_document
from workers.judge.policy.policy import default
from workers.judge.samples.samples import match

# 400 records form at most some 80 pairs, 1,700 some 340: enough for a first judgement only.
SIZES = {"small": 400, "large": 1700, "other": 100}
SHARE, SEED = 0.2, 7
FIRST, SECOND = 310, 369  # as on docs/policies.md


def rows() -> dict[str, Any]:
    found = small_network.rows(count=sum(SIZES.values()))
    found["clients"] = np.repeat(list(SIZES), list(SIZES.values()))
    found["subjects"] = np.array(
        [f"{client}-{place % 2}" for place, client in enumerate(found["clients"])]
    )
    return found


ROWS = rows()
HELD = np.array([is_held_out(SEED, SHARE, str(record)) for record in ROWS["records"]])


@pytest.fixture
def made(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    with install(settings) as found:
        training = {"rounds": 1, "seed": SEED, "local": {"batch_size": 64}}
        networks.register(found, ROWS, held_out=SHARE, training=training)
        yield found


def preview(made: Installation, scope: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = json.dumps({"model": small_network.MODEL, "scope": scope, **fields}).encode()
    answer = made.caller.signed("POST", "/v1/requests/preview", body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def drawn(erased: np.ndarray, seed: int) -> int:
    """Return how many pairs the judge draws if the rows with these places are erased."""
    forget = erased & ~HELD
    sides = [(ROWS["clients"][side], ROWS["labels"][side]) for side in (forget, HELD)]
    try:
        return len(match(sides[0], sides[1], seed.to_bytes(32, "big"), 0.5).forget)
    except RefusedError:
        return 0


def held_of(client: str) -> int:
    return int((HELD & (ROWS["clients"] == client)).sum())


@pytest.mark.parametrize("method", [None, "hf-kcu"])
def test_a_client_with_too_few_held_out_records_is_told(
    made: Installation, method: str | None
) -> None:
    fields = {} if method is None else {"method": method}
    found = preview(made, networks.whole("small"), **fields)
    assert (found["records"], found["pairs"], found["needed"]) == (400, held_of("small"), FIRST)
    (warning,) = found["warnings"]
    assert f"need {FIRST} pairs" in warning
    assert f"at most {held_of('small')}." in warning
    body = json.dumps(
        {"model": small_network.MODEL, "scope": networks.whole("small"), **fields}
    )
    for _ in range(2):  # the receipt says the same, also as the answer to a repetition
        headers = {"Idempotency-Key": "once"}
        sent = made.caller.signed("POST", "/v1/requests", body.encode(), headers=headers)
        assert sent.json()["warnings"] == [warning]


def test_a_client_with_enough_of_them_is_not(made: Installation) -> None:
    found = preview(made, networks.whole("large"))
    assert (found["records"], found["pairs"], found["needed"]) == (1700, FIRST, FIRST)
    assert found["warnings"] == []


def test_a_judgement_before_makes_it_too_few(made: Installation) -> None:
    digests = {"head": "0" * 64, "seed": "1" * 64}
    made.services.ledger.transact(
        lambda tx: record_model_event(tx, small_network.MODEL, JUDGING, digests)
    )
    found = preview(made, networks.whole("large"))
    assert found["pairs"] == held_of("large")
    assert SECOND - 1 <= found["needed"] <= SECOND
    assert len(found["warnings"]) == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_bound_is_never_below_what_the_judge_draws(made: Installation) -> None:
    rng = np.random.default_rng(3)
    records, clients, subjects = (ROWS[name] for name in ("records", "clients", "subjects"))
    scopes: list[tuple[dict[str, Any], np.ndarray]] = [
        (networks.whole(client), clients == client) for client in SIZES
    ]
    scopes += [
        ({"level": "subject", "subject": subject}, subjects == subject)
        for subject in sorted(set(subjects.tolist()))
    ]
    for count in (1, 40, 700, 1500):
        some = np.isin(np.arange(len(records)), rng.choice(len(records), count, replace=False))
        scopes.append((networks.some(*records[some].tolist()), some))
    for scope, erased in scopes:
        found = preview(made, scope)
        most = max(drawn(erased, seed) for seed in range(20))
        assert found["pairs"] >= min(most, found["needed"])
        # Nothing but the held-out and the erased records of each client is counted.
        exact = sum(
            min((erased & ~HELD & (clients == one)).sum(), held_of(one)) for one in SIZES
        )
        assert found["pairs"] == min(exact, found["needed"])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_count_ends_when_it_cannot_change(
    made: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counted(seed: int, share: float, record: str) -> bool:
        read.append(record)
        return is_held_out(seed, share, record)

    monkeypatch.setattr(pairs, "is_held_out", counted)
    trained = ROWS["records"][~HELD & (ROWS["clients"] == "large")]
    assert preview(made, networks.some(str(trained[0])))["pairs"] == 1
    assert len(read) <= 1 + FETCH  # of 1,700
    read.clear()
    assert preview(made, networks.some(*trained[:400].tolist()))["pairs"] == FIRST
    assert len(read) < 1700
    assert len(set(read)) == len(read)
    read.clear()
    preview(made, networks.whole("large"), method="retrain")
    assert read == []
    monkeypatch.setattr(pairs, "MOST_READ", 2 * FETCH)  # of 400
    assert preview(made, networks.whole("small"))["warnings"] == []
    assert len(read) == 2 * FETCH


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_executed_request_is_not_told_what_nobody_can_change(
    installation: Installation,
) -> None:
    networks.register(installation)
    wanted = {"model": small_network.MODEL, "scope": networks.some("r0", "r1")}
    body = json.dumps(wanted).encode()
    told = []
    for _ in range(2):
        headers = {"Idempotency-Key": "once"}
        sent = installation.caller.signed("POST", "/v1/requests", body, headers=headers)
        told.append(len(sent.json()["warnings"]))
        installation.drain()
    assert told == [1, 0]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_cannot_be_counted_takes_nobodys_receipt(
    made: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise LogDamagedError("an entry is missing")

    monkeypatch.setattr(acceptance, "count_pairs", refuse)
    wanted = {"model": small_network.MODEL, "scope": networks.whole("small")}
    for _ in range(2):
        headers = {"Idempotency-Key": "once"}
        body = json.dumps(wanted).encode()
        sent = made.caller.signed("POST", "/v1/requests", body, headers=headers)
        assert sent.status_code == 202, sent.text
        assert sent.json()["receipt"]["checkpoint"]


@pytest.mark.parametrize("judged", [0, 1, 9])
def test_the_level_is_shared_among_as_many_tests_as_the_judge_makes(judged: int) -> None:
    for changes in ({}, {"canary_limit": 0.3}, {"distances": {"output-kl": 0.1}}):
        policy = replace(default(1000, references=16), minimum_pairs=300, **changes)
        level = spent(policy.alpha, judged) / policy.tests()
        wanted = max(300, least_pairs(policy.tau, level, policy.power))
        assert pairs.pairs_needed(to_document(policy), judged) == wanted
