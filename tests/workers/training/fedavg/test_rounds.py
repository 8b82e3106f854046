"""Equal bits: twice, in another order, resumed; and FedAvg where it is gradient descent."""

import hashlib
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from tests.workers.training.fedavg.small import CLIENTS, CONFIG, LOCAL, NETWORK, ROWS, Backwards
from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData, Work
from workers.training.fedavg.client.data import split
from workers.training.fedavg.config import LocalConfig, ServerConfig, TrainingConfig
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import Trained, make_tasks, sample, sizes, train
from workers.training.fedavg.seeds import derive
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import encode_weights, initial_weights, with_weights


def digest(trained: Trained, named: Network = NETWORK) -> str:
    data = encode_weights(named.id, named.parameters, trained.weights)
    return hashlib.sha256(data).hexdigest()


VARIANTS = {
    "fedavg": CONFIG,
    "momentum": replace(CONFIG, server=ServerConfig(momentum=0.9)),
    "adam": replace(CONFIG, server=ServerConfig("adam", learning_rate=0.1)),
    "yogi, some clients": replace(
        CONFIG, server=ServerConfig("yogi", learning_rate=0.1), participation=0.5
    ),
    "local momentum": replace(CONFIG, local=replace(LOCAL, momentum=0.9, weight_decay=1e-3)),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equal_bits(name: str) -> None:
    config = VARIANTS[name]
    saved: list[bytes] = []
    once = train(NETWORK, ROWS, config, InProcess(CLIENTS), save=saved.append, data="d")
    again = train(NETWORK, sizes(CLIENTS), config, InProcess(CLIENTS))
    backwards = train(
        NETWORK,
        dict(reversed(list(ROWS.items()))),
        config,
        Backwards(dict(reversed(list(CLIENTS.items())))),
    )
    assert digest(once) == digest(again) == digest(backwards)
    assert once.records == again.records == backwards.records
    assert len(saved) == config.rounds
    for checkpoint in saved:
        resumed = train(NETWORK, ROWS, config, InProcess(CLIENTS), resume=checkpoint, data="d")
        assert digest(resumed) == digest(once)
        assert resumed.records == once.records
    other = train(NETWORK, ROWS, replace(config, seed=4), InProcess(CLIENTS))
    assert digest(other) != digest(once)


def test_equal_bits_of_a_convolutional_network() -> None:
    named = network("simple-cnn", {"height": 8, "width": 8, "classes": 3})
    images = torch.sin(torch.arange(24 * 64.0)).view(24, 1, 8, 8)
    owners = torch.arange(24) % 3
    clients = split(ClientData(images, owners), owners.numpy())
    config = TrainingConfig(rounds=3, seed=1, local=replace(LOCAL, augment="crop-flip"))
    saved: list[bytes] = []
    once = train(
        named, sizes(clients), config, InProcess(clients, threads=1), save=saved.append
    )
    resumed = train(
        named, sizes(clients), config, InProcess(clients, threads=1), resume=saved[1]
    )
    assert digest(once, named) == digest(resumed, named)


def test_bits_do_not_depend_on_how_many_clients_trainat_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with random crops: what one client draws must not reach another."""
    images = torch.sin(torch.arange(96 * 256.0)).view(96, 1, 16, 16)
    owners = torch.arange(96) % 4
    clients = split(ClientData(images, owners % 3), owners.numpy())
    named = network("simple-cnn", {"height": 16, "width": 16, "classes": 3})
    config = TrainingConfig(rounds=2, seed=1, local=replace(LOCAL, augment="crop-flip"))
    found = []
    for cores in (1, 4):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        engine = InProcess(clients, threads=1)
        assert engine.at_once(9) == cores
        found.append(digest(train(named, sizes(clients), config, engine), named))
    assert found[0] == found[1]


def test_more_rounds_go_on_from_a_checkpoint() -> None:
    saved: list[bytes] = []
    train(NETWORK, ROWS, replace(CONFIG, rounds=2), InProcess(CLIENTS), save=saved.append)
    long = train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS), resume=saved[-1])
    assert digest(long) == digest(train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS)))


def test_one_full_step_of_all_clients_is_gradient_descent() -> None:
    """With one step on all rows, Σ (n_i/n) Δ_i is the gradient of the pooled loss."""
    local = LocalConfig(epochs=1, batch_size=1000, learning_rate=0.5)
    config = TrainingConfig(rounds=8, seed=0, local=local)
    federated = train(NETWORK, ROWS, config, InProcess(CLIENTS)).weights
    module = with_weights(NETWORK, initial_weights(NETWORK, 0))
    inputs = torch.cat([data.inputs for data in CLIENTS.values()])
    targets = torch.cat([data.targets for data in CLIENTS.values()])
    for _ in range(8):
        loss = functional.cross_entropy(module(inputs), targets)
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(module.parameters(), gradients, strict=True):
                weight.sub_(0.5 * gradient)
    for name, weight in module.named_parameters():
        torch.testing.assert_close(federated[name], weight.detach(), rtol=1e-5, atol=1e-6)


def test_training_learns() -> None:
    config = replace(CONFIG, rounds=20)
    trained = train(NETWORK, ROWS, config, InProcess(CLIENTS))
    everyone = ClientData(
        torch.cat([data.inputs for data in CLIENTS.values()]),
        torch.cat([data.targets for data in CLIENTS.values()]),
    )
    before = evaluate(NETWORK, initial_weights(NETWORK, config.seed), everyone)
    after = evaluate(NETWORK, trained.weights, everyone)
    assert after.accuracy > 0.9 > before.accuracy
    assert after.loss < 0.5 * before.loss
    assert trained.records[-1].loss < trained.records[0].loss


def test_the_work_is_counted_and_the_bytes_are_those_sent() -> None:
    trained = train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS))
    steps = 6 * 2 * (2 + 3 + 2)  # rounds, epochs, batches of 4 of 7, 12 and 5 rows
    flops_of_a_row = 3 * 4 * 3 * 2 - 2 * 4 * 3  # forward and dW; the inputs need no gradient
    work = trained.work
    assert (work.rounds, work.steps) == (6, steps)
    assert work.flops == 6 * 2 * 24 * flops_of_a_row
    weights = 4 * 15
    assert 3 * 6 * weights < work.bytes_up < 3 * 6 * (weights + 1000)
    assert 3 * 6 * weights < work.bytes_down < 3 * 6 * (weights + 2000)
    assert work.seconds > 0
    assert Work(1, 2, 3, 4, 5, 6.0) + Work(1, 1, 1, 1, 1, 1.0) == Work(2, 3, 4, 5, 6, 0.0)


def test_after_each_round_one_may_stop() -> None:
    seen: list[int] = []
    saved: list[bytes] = []
    trained = train(
        NETWORK,
        ROWS,
        CONFIG,
        InProcess(CLIENTS),
        after=lambda _, record: seen.append(record.round) or record.round == 3,  # type: ignore[func-returns-value]
        save=saved.append,
        every=5,
    )
    assert seen == [1, 2, 3]
    assert len(trained.records) == 3
    assert len(saved) == 1


def test_no_round_is_the_initial_model() -> None:
    trained = train(NETWORK, ROWS, replace(CONFIG, rounds=0), InProcess(CLIENTS))
    start = initial_weights(NETWORK, CONFIG.seed)
    assert all(torch.equal(trained.weights[name], start[name]) for name in start)


def test_participation_is_drawn_by_seed_and_round() -> None:
    names = [f"c{i:02d}" for i in range(20)]
    config = TrainingConfig(rounds=1, seed=9, participation=0.25)
    drawn = [sample(names, config, round) for round in range(1, 401)]
    assert all(len(set(chosen)) == 5 and chosen == sorted(chosen) for chosen in drawn)
    assert drawn == [sample(reversed(names), config, round) for round in range(1, 401)]
    # 400 rounds of 5 in 20: each is asked 100 times, with a deviation of 8.7.
    asked = [sum(name in chosen for chosen in drawn) for name in names]
    assert min(asked) > 60
    assert max(asked) < 140
    assert sample(names, replace(config, seed=10), 1) != drawn[0]
    assert sample(names, replace(config, participation=1), 1) == names
    assert len(sample(names, replace(config, participation=0.01), 1)) == 1
    assert len(sample(names, replace(config, participation=0.01, min_clients=3), 1)) == 3


def test_too_few_clients_are_refused() -> None:
    with pytest.raises(RefusedError, match="each round needs 4"):
        train(NETWORK, ROWS, replace(CONFIG, min_clients=4), InProcess(CLIENTS))
    with pytest.raises(RefusedError, match="0 clients"):
        train(NETWORK, {}, CONFIG, InProcess({}))


def test_seeds_do_not_meet() -> None:
    weights = initial_weights(NETWORK, 0)
    seeds = {
        task.seed
        for seed in range(5)
        for round in range(1, 6)
        for task in make_tasks(NETWORK, weights, ROWS, LOCAL, round=round, seed=seed)
    }
    assert len(seeds) == 5 * 5 * 3
    assert derive(1, "a", "b") != derive(1, "a,b") != derive(1, "ab")
    assert derive(1, 2) != derive(2, 1)
    assert derive(1, "2") != derive(1, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"rounds": -1}, {"rounds": 1.0}, {"seed": -1}, {"seed": 2**63}, {"participation": 0},
        {"participation": 1.1}, {"min_clients": 0}, {"max_norm": -1}, {"timeout": float("nan")},
    ],
)  # fmt: skip
def test_odd_configurations_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RefusedError, match=next(iter(fields))):
        TrainingConfig(**{"rounds": 1, "seed": 0, **fields})  # type: ignore[arg-type]
