"""Table VIII against the numbers of Tables III to V that were computed with it."""

import pytest

from benchmarks.unlearning.accounting import (
    CostSetting,
    MethodCost,
    fed_au,
    fed_eraser,
    mode,
    no_t,
    pga,
    puf_regular,
    puf_special,
    recovery,
)
from workers.training.networks.registry import network
from workers.training.networks.weights import count

P = count(network("resnet18", {"classes": 100, "stem": 7, "pool": 0}))
# CIFAR-100, IID, E = 1: 50,000 images at 10 clients, 200 rounds.
IID = CostSetting(P, clients=10, unlearning=1, flops=0.15e9, samples=5000)
TWO = CostSetting(P, clients=10, unlearning=2, flops=0.15e9, samples=5000)
MIT = CostSetting(3_319_392, clients=10, unlearning=1, flops=1.7e9, samples=5000)

# Recovery rounds are means over ten runs; each row's two columns agree on them.
PUBLISHED: list[tuple[str, MethodCost, tuple[str, str, str]]] = [
    ("Retrain", recovery(IID, 200), ("1.62e+11", "1.35e+15", "4.49e+07")),
    ("Retrain, two clients", recovery(TWO, 200), ("1.44e+11", "1.20e+15", "4.49e+07")),
    ("Retrain, MiT-B0", recovery(MIT, 50), ("1.19e+10", "3.82e+15", "1.33e+07")),
    ("FedEraser", fed_eraser(IID, 200, 0.5), ("1.62e+11", "6.75e+14", "8.98e+10")),
    ("PUF-Special", puf_special(IID) + recovery(IID, 4.1), ("3.40e+09", "2.84e+13", "4.49e+07")),
    ("PUF-Regular", puf_regular(IID) + recovery(IID, 5.2), ("5.10e+09", "4.26e+13", "4.49e+07")),
    ("PUF-Special, two", puf_special(TWO) + recovery(TWO, 3.2), ("2.48e+09", "2.07e+13", "4.49e+07")),
    ("NoT", no_t(IID) + recovery(IID, 6.5), ("5.25e+09", "4.39e+13", "4.49e+07")),
    ("MoDe", mode(IID, 6, 10) + recovery(IID, 4.54), ("1.75e+10", "1.46e+14", "8.98e+07")),
    ("FedAU", fed_au(IID) + recovery(IID, 3.3), ("2.67e+09", "2.23e+13", "4.49e+07")),
    ("PGA", pga(IID, 5) + recovery(IID, 12.1), ("9.87e+09", "8.54e+13", "4.49e+08")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cost", "printed"), PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_the_published_costs(
    name: str, cost: MethodCost, printed: tuple[str, str, str]
) -> None:
    for got, wanted in zip(
        (cost.communication, cost.computation, cost.storage), printed, strict=True
    ):
        assert got == pytest.approx(float(wanted), rel=0.0051)


def test_an_auxiliary_classifier_alone_is_sent() -> None:
    setting = CostSetting(P, 10, 1, 0.15e9, 5000, classifier=51_300)
    assert fed_au(setting) == MethodCost(2 * 51_300 * 4, 0, 4 * P)


def test_local_epochs_count() -> None:
    ten = CostSetting(P, 10, 1, 0.15e9, 5000, epochs=10)
    assert recovery(ten, 200).computation == pytest.approx(1.35e16)
    assert puf_special(ten).communication == puf_special(IID).communication
