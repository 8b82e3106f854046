"""A model's noise key: secret, unique to the model, and committed to at registration."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.vault.master import (
    RootSecret,
    has_noise,
    noise_commitment,
    noise_key,
    open_tombstone_key,
    record_tag,
    upload_tag,
)
from models import Model
from workers.methods.certified import noise
from workers.methods.certified.method import CertifiedNewton
from workers.methods.network.registry import METHODS

MASTER = RootSecret(bytes(range(32)))
NOISY = {"settings": {"certified-newton": {"row_norm": 8.0, "sigma": 0.1}}}


def model(config: dict[str, Any] | None = None, secret: bytes = b"s" * 32) -> Model:
    ref = "m"
    sealed = MASTER.seal(secret, aad=f"tombstone|{ref}".encode())
    return Model(
        ref=ref,
        method="certified-newton",
        config=config or {},
        classes=[],
        extractor={},
        tombstone_key=sealed,
    )


def test_a_key_is_of_its_model_and_comes_out_the_same_again() -> None:
    first = noise_key(MASTER, model())
    assert first == noise_key(MASTER, model())
    assert len(first) == noise.KEY_BYTES
    assert first != noise_key(MASTER, model(secret=b"t" * 32))


def test_the_commitment_is_the_one_that_the_method_names() -> None:
    committed = noise_commitment(MASTER, model(NOISY))
    assert committed == {"noise": noise.commitment(noise_key(MASTER, model()))}


def _without() -> Iterator[dict[str, Any]]:
    yield {}
    yield {"settings": {}}
    yield {"settings": {"certified-newton": {"row_norm": 8.0}}}
    yield {"settings": {"certified-newton": {"row_norm": 8.0, "sigma": 0.0}}}
    yield {"settings": {"hf-kcu": {"sigma": 1.0}}}


@pytest.mark.parametrize("config", list(_without()))
def test_a_model_without_noise_commits_to_nothing(config: dict[str, Any]) -> None:
    assert not has_noise(config)
    assert noise_commitment(MASTER, model(config)) == {}


def test_no_record_has_the_key_as_its_tag() -> None:
    """Tags are stored in clear beside the records, so a key must never equal a tag."""
    key, secret = noise_key(MASTER, model()), open_tombstone_key(MASTER, model())
    for record in ("lethe certified noise key 1", "\xfflethe certified noise key 1"):
        assert record_tag(secret, record) != key


def test_the_name_is_that_of_the_method() -> None:
    assert METHODS["certified-newton"] is CertifiedNewton


def test_an_uploads_tag_is_of_its_model_contribution_and_bytes() -> None:
    digest = "ab" * 32
    tag = upload_tag(MASTER, model(), "one", digest)
    assert tag == upload_tag(MASTER, model(), "one", digest)
    others = [
        upload_tag(MASTER, model(secret=b"t" * 32), "one", digest),
        upload_tag(MASTER, model(), "two", digest),
        upload_tag(MASTER, model(), "one", "cd" * 32),
        record_tag(open_tombstone_key(MASTER, model()), f"one|{digest}").hex(),
        digest,
    ]
    assert len({tag, *others}) == 6
