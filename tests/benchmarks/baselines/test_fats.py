"""FATS against the oracle (a training that never drew the target), and its probabilities."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.baselines.fats import Fats, Sampled, local_steps
from benchmarks.baselines.history import PastRound, RecordedCase, with_rounds
from tests.workers.methods.network.small import equal
from tests.workers.training.fedavg.small import CONFIG, NETWORK, client_data
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Side, UnlearningRequest
from workers.methods.network.local_case import divide, local_case
from workers.training.fedavg.base import Clients
from workers.training.fedavg.client.flops import training_flops
from workers.training.fedavg.client.local import train_locally
from workers.training.fedavg.config import ServerConfig
from workers.training.fedavg.errors import CheckpointError, RoundFailedError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import make_tasks, sizes
from workers.training.networks.weights import initial_weights

MANY: Clients = {f"c{i}": client_data(6 + i, 40 + i) for i in range(9)}
SMALL = Fats(clients=2, batch=3, steps=2)
CLIENT = UnlearningRequest(frozenset({"c3"}))
ROWS = UnlearningRequest(rows={"c5": (0, 4)})
MIXED = UnlearningRequest(frozenset({"c1"}), {"c6": (2,), "c0": (0, 1, 2, 3, 4, 5)})
REQUESTS = {"client": CLIENT, "rows": ROWS, "mixed, a client without rows": MIXED}


def side(clients: Clients) -> Side:
    return Side(InProcess(clients), sizes(clients))


def trained(method: Fats, clients: Clients = MANY, seed: int = 3) -> Sampled:
    return method.train(NETWORK, side(clients), replace(CONFIG, seed=seed))


def case_of(method: Fats, request: UnlearningRequest, seed: int = 3) -> RecordedCase:
    found, config = trained(method, seed=seed), replace(CONFIG, seed=seed)
    case = local_case(NETWORK, found.weights, request, config, MANY)
    return with_rounds(case, found.history)


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("name", ["client", "rows"])
def test_it_is_bit_for_bit_the_training_without(name: str, seed: int) -> None:
    given = case_of(SMALL, REQUESTS[name], seed)
    found = SMALL.replay(given)
    stay = divide(MANY, REQUESTS[name])[0]
    if name == "client":
        oracle = trained(SMALL, stay, seed)
    else:
        oracle = renumbered(stay, REQUESTS[name], seed)
    assert equal(found.weights, oracle.weights)
    for one, other in zip(found.history, oracle.history, strict=True):
        assert equal(one.weights, other.weights)
    first = SMALL.first_touched(given)
    assert found.repeated == (CONFIG.rounds - first + 1 if first else 0)
    assert found.work.rounds == found.repeated


def renumbered(stay: Clients, request: UnlearningRequest, seed: int) -> Sampled:
    """A training from scratch in which those who stay know what their rows were numbered."""
    rows = {
        name: np.array(
            [i for i in range(len(MANY[name])) if i not in request.rows.get(name, ())]
        )
        for name in stay
    }
    return SMALL.train(NETWORK, side(stay), replace(CONFIG, seed=seed), numbers=rows)


def test_several_and_a_client_that_is_left_without_rows() -> None:
    given = case_of(SMALL, MIXED)
    found = SMALL.run(given)
    oracle = renumbered(divide(MANY, MIXED)[0], MIXED, 3)
    assert equal(found.weights, oracle.weights)
    assert found.claim == "exact-retrained"
    # 6 models of 15 numbers of 4 bytes.
    assert found.notes["state.bytes"] == str(6 * 15 * 4)


def test_what_was_never_drawn_costs_nothing() -> None:
    idle = []
    for seed in range(12):
        given = case_of(Fats(1, 2, 1), CLIENT, seed)
        if Fats(1, 2, 1).first_touched(given):
            continue
        found = Fats(1, 2, 1).run(replace(given, targets=None))
        assert equal(found.weights, given.weights)
        assert found.work.rounds == found.work.flops == 0
        assert found.notes["fats.rounds-repeated"] == "0"
        idle.append(seed)
    assert len(idle) > 1


SEEDS = 1500


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        # (1 - K/M)^R of a client; for a row also (1 - b/N)^E of the steps of its 11.
        (CLIENT, 1 - (1 - 2 / 9) ** 6),
        (UnlearningRequest(rows={"c5": (4,)}), 1 - (1 - 2 / 9 * (1 - (1 - 3 / 11) ** 2)) ** 6),
    ],
    ids=["client", "row"],
)
def test_the_probability_of_retraining(request_: UnlearningRequest, wanted: float) -> None:
    given = case_of(SMALL, request_)
    touched = sum(
        SMALL.first_touched(replace(given, config=replace(CONFIG, seed=seed))) > 0
        for seed in range(SEEDS)
    )
    deviation = np.sqrt(SEEDS * wanted * (1 - wanted))
    assert abs(touched - SEEDS * wanted) < 4 * deviation
    stated = (
        SMALL.client_stability(9, 6) if request_ is CLIENT else SMALL.row_stability(9, 11, 6)
    )
    assert stated == pytest.approx(wanted)


@pytest.mark.parametrize("rounds", [1, 10, 60])
def test_the_papers_bounds_hold(rounds: int) -> None:
    method = Fats(5, 64, 2)
    assert method.client_stability(100, rounds) <= rounds * 5 / 100 + 1e-12
    assert method.row_stability(100, 500, rounds) <= rounds * 2 * 5 * 64 / (100 * 500) + 1e-12
    assert method.client_stability(3, rounds) == method.row_stability(3, 60, rounds) == 1


def test_the_mean_is_plain_and_the_steps_are_sgd() -> None:
    """One step on all rows is the ordinary client's; two clients count alike."""
    method = Fats(clients=2, batch=100, steps=1)
    pair = {"c0": MANY["c0"], "c8": MANY["c8"]}
    config = replace(CONFIG, rounds=1, local=replace(CONFIG.local, epochs=1, batch_size=100))
    found = method.train(NETWORK, side(pair), config)
    start = initial_weights(NETWORK, CONFIG.seed)
    tasks = make_tasks(NETWORK, start, pair, config.local, round=1, seed=CONFIG.seed)
    one, two = (train_locally(task, pair[task.client]).delta for task in tasks)
    for name, part in start.items():
        wanted = part.double() + (one[name].double() + two[name].double()) / 2
        np.testing.assert_allclose(found.weights[name], wanted, atol=1e-6)
    update = local_steps(tasks[0], pair["c0"], [np.array([0, 1]), np.array([1])])
    assert (update.steps, update.samples) == (2, 6)
    assert update.flops == 3 * training_flops(NETWORK)


def test_somebody_who_does_not_answer_ends_a_training_that_is_to_be_exact() -> None:
    ghost = Side(InProcess(MANY), {"ghost": 3})
    with pytest.raises(RoundFailedError):
        SMALL.train(NETWORK, ghost, CONFIG)


def short(given: RecordedCase) -> RecordedCase:
    return replace(given, history=given.history[1:])


def warm(given: RecordedCase) -> RecordedCase:
    changed = PastRound(given.weights, {})
    return replace(given, history=(changed, *given.history[1:]))


BAD: dict[str, Callable[[], object]] = {
    "no history": lambda: SMALL.run(replace(case_of(SMALL, CLIENT), history=())),
    "a round missing": lambda: SMALL.run(short(case_of(SMALL, CLIENT))),
    "a start that had seen rows": lambda: SMALL.run(warm(case_of(SMALL, CLIENT))),
    "moments": lambda: SMALL.train(
        NETWORK, side(MANY), replace(CONFIG, server=ServerConfig(momentum=0.5))
    ),
    "participation": lambda: SMALL.train(
        NETWORK, side(MANY), replace(CONFIG, participation=0.5)
    ),
    "no client": lambda: Fats(clients=0),
    "no row": lambda: Fats(batch=0),
    "half a step": lambda: Fats(steps=0.5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_it_refuses(name: str) -> None:
    with pytest.raises(RefusedError):
        BAD[name]()


def test_no_checkpoint_is_taken() -> None:
    with pytest.raises(CheckpointError):
        SMALL.run(case_of(SMALL, CLIENT), Hooks(resume=b"what"))
