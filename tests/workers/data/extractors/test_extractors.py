import hashlib

import numpy as np
import pytest

from workers.data.extractors import registry
from workers.data.extractors.base import Extractor, ExtractorError, digest_of_files
from workers.data.extractors.described import format_description, parse_description
from workers.data.extractors.identity import Identity
from workers.data.extractors.random_relu import RandomRelu
from workers.errors import RefusedError

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
        ("identity", {"dimension": "nan"}, "another type"),
        ("identity", {"dimension": "inf"}, "another type"),
        ("identity", {"dimension": "0"}, "at least one column"),
        ("identity", {"dimension": "4", "seed": "1"}, "unknown"),
        ("identity", {"dimension": "4.5"}, "another type"),
        ("identity", {"dimension": "04"}, "not spelled as"),
        ("random-relu", {"inputs": "4", "outputs": "6", "seed": "0"}, "missing"),
        (
            "random-relu",
            {"inputs": "4", "outputs": "0", "seed": "0", "scale": "1.0"},
            "one column",
        ),
        ("random-relu", {"inputs": "4", "outputs": "6", "seed": "-1", "scale": "1.0"}, "seed"),
        ("random-relu", {"inputs": "4", "outputs": "6", "seed": "0", "scale": "0.0"}, "scale"),
        ("random-relu", {"inputs": "4", "outputs": "6", "seed": "0", "scale": "nan"}, "scale"),
        (
            "random-relu",
            {"inputs": "4", "outputs": "6", "seed": "0", "scale": "1"},
            "not spelled as",
        ),
        ("torch-module", {"inputs": "4"}, "path"),
        ("timm", {}, "path"),
    ],
)
def test_odd_registrations_are_refused(
    name: str, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        registry.get(name, parameters)


def test_a_pinned_digest_is_compared() -> None:
    pinned = Identity(4).digest
    assert registry.get("identity", {"dimension": "4"}, digest=pinned).digest == pinned
    for digest in (Identity(5).digest, "", pinned[:-1]):
        with pytest.raises(ExtractorError, match="differs from the pinned one"):
            registry.get("identity", {"dimension": "4"}, digest=digest)


def test_what_follows_from_the_data_may_be_left_out() -> None:
    assert registry.open_extractor("identity", {}, width=7).parameters == {"dimension": "7"}
    opened = registry.open_extractor("random-relu", {"outputs": "9"}, width=4)
    assert opened.digest == RandomRelu(4, 9, 0).digest
    with pytest.raises(RefusedError, match="missing"):
        registry.open_extractor("identity", {})


def test_files_enter_a_digest_by_role_and_content() -> None:
    files = {"a": b"1", "b": b"2"}
    digests = {
        digest_of_files("x", {"p": "1"}, files),
        digest_of_files("y", {"p": "1"}, files),
        digest_of_files("x", {"p": "2"}, files),
        digest_of_files("x", {"p": "1"}, {"a": b"2", "b": b"1"}),
        digest_of_files("x", {"p": "1"}, {"a": b"1"}),
    }
    assert len(digests) == 5
    assert digest_of_files("x", {"p": "1"}, dict(reversed(files.items()))) in digests
    spelled = '["x",{"p":"1"},{"a":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"}]'
    want = hashlib.sha256(spelled.encode()).hexdigest()
    assert digest_of_files("x", {"p": "1"}, {"a": b"1"}) == want


@pytest.mark.parametrize("extractor", [Identity(4), RandomRelu(4, 6, 3, 0.5)])
def test_a_description_names_the_extractor_and_passes_features_on(extractor: Extractor) -> None:
    text = format_description(extractor, 4)
    described = parse_description(text)
    assert (described.id, described.digest) == (extractor.id, extractor.digest)
    assert described.parameters == extractor.parameters
    x = inputs()
    assert described.extract(x) is x
    with pytest.raises(RefusedError, match="4 columns"):
        described.extract(x[:, 1:])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"identity"', '"Identity Ltd"'),
        ('"digest":"', '"digest":"x'),
        ('"dimension":4', '"dimension":"4"'),
        ('"dimension":4', '"dimension":1e999'),
        ('"dimension":4', '"dimension":' + "[" * 9999),
        (",", ", "),
        ("{", "["),
        ('"id"', '"name"'),
        ('"parameters":{"dimension":"4"}', '"parameters":["4"]'),
    ],
)
def test_other_descriptions_are_refused(old: str, new: str) -> None:
    text = format_description(Identity(4), 4)
    assert parse_description(text).id == "identity"
    with pytest.raises(ExtractorError, match="lethe features extract"):
        parse_description(text.replace(old, new, 1))
