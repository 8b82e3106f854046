import numpy as np
import pytest

from workers.errors import RefusedError
from workers.extractors import registry
from workers.extractors.base import Extractor
from workers.extractors.identity import Identity
from workers.extractors.random_relu import RandomRelu

NAN = float("nan")


def inputs(rows: int = 5, columns: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)


def test_random_features_are_what_they_say() -> None:
    extractor = RandomRelu(inputs=4, outputs=6, seed=3, scale=0.5)
    x = inputs()
    want = [
        [
            max(
                0.0,
                sum(0.5 * float(x[n, i]) * extractor.projection[i, j] for i in range(4))
                + extractor.shift[j],
            )
            for j in range(6)
        ]
        for n in range(5)
    ]
    got = extractor.extract(x)
    assert got.shape == (5, 6)
    assert got.dtype == np.float64
    assert np.allclose(got, want, rtol=1e-12, atol=1e-12)
    assert (got == 0).any()
    assert (got > 0).any()


def test_the_seed_is_the_extractor() -> None:
    one, same = RandomRelu(4, 6, 3, 0.5), RandomRelu(4, 6, 3, 0.5)
    assert one.digest == same.digest
    assert np.array_equal(one.extract(inputs()), same.extract(inputs()))


def test_the_weights_of_a_seed_never_change() -> None:
    # A published seed must give these weights for ever: models depend on them.
    assert RandomRelu(2, 2, 0).projection.tolist() == [
        [0.08890469193522228, -0.09341224466100137],
        [0.4528471989539066, 0.07417558418617765],
    ]
    assert RandomRelu(2, 2, 0).digest == (
        "261ec4203e4fa4e87f6f7ce7f5666d20a58a91252b219eb90c39c809fb572dff"
    )


@pytest.mark.parametrize(
    "other",
    [RandomRelu(4, 6, 4, 0.5), RandomRelu(4, 6, 3), RandomRelu(4, 7, 3, 0.5), Identity(4)],
    ids=["seed", "scale", "width", "kind"],
)
def test_another_extractor_has_another_digest(other: Extractor) -> None:
    assert other.digest != RandomRelu(4, 6, 3, 0.5).digest


def test_identity_returns_its_inputs() -> None:
    x = inputs()
    assert Identity(4).extract(x) is x
    assert Identity(4).digest != Identity(5).digest


@pytest.mark.parametrize("extractor", [Identity(4), RandomRelu(4, 6, 3, 0.5)])
def test_the_registry_builds_it_again(extractor: Extractor) -> None:
    again = registry.get(extractor.id, extractor.parameters)
    assert again.digest == extractor.digest
    assert extractor.id in registry.known()


@pytest.mark.parametrize("extractor", [Identity(4), RandomRelu(4, 6, 3)])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((2, 3)), "4 columns"),
        (np.zeros(4), "4 columns"),
        (np.array([[0.0, 1.0, NAN, 0.0]]), "NaN"),
        (np.array([[0.0, 1.0, np.inf, 0.0]]), "infinity"),
        (np.zeros((2, 4), dtype=np.int64), "floats"),
    ],
    ids=["columns", "vector", "nan", "infinity", "integers"],
)
def test_odd_inputs_are_refused(extractor: Extractor, bad: np.ndarray, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        extractor.extract(bad)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("resnet", {}, "identity, random-relu"),
        ("identity", {}, "missing"),
        ("identity", {"dimension": NAN}, "no number"),
        ("identity", {"dimension": float("inf")}, "no number"),
        ("identity", {"dimension": 0}, "at least one column"),
        ("identity", {"dimension": 4, "seed": 1}, "unknown"),
        ("identity", {"dimension": 4.5}, "not canonical"),
        ("random-relu", {"inputs": 4, "outputs": 6, "seed": 0}, "missing"),
        ("random-relu", {"inputs": 4, "outputs": 0, "seed": 0, "scale": 1}, "one column"),
        ("random-relu", {"inputs": 4, "outputs": 6, "seed": -1, "scale": 1}, "seed"),
        ("random-relu", {"inputs": 4, "outputs": 6, "seed": 0, "scale": 0}, "scale"),
        ("random-relu", {"inputs": 4, "outputs": 6, "seed": 0, "scale": NAN}, "scale"),
    ],
)
def test_odd_registrations_are_refused(
    name: str, parameters: dict[str, float], message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        registry.get(name, parameters)
