"""Adds the derived keyid to a refusal, since the user did not type it."""

from collections.abc import Iterator
from contextlib import contextmanager

from lethe.client.errors import ProblemError
from lethe.signing.errors import KeyUnknownError
from lethe.signing.keys import PrivateKey, fingerprint


@contextmanager
def derived_keyid(keyid: str | None, key: PrivateKey) -> Iterator[str]:
    """Yield keyid or the key's fingerprint; a refusal as unknown then names the fingerprint."""
    if keyid is not None:
        yield keyid
        return
    derived = fingerprint(key)
    try:
        yield derived
    except ProblemError as error:
        if error.slug != KeyUnknownError.slug:
            raise
        detail = (
            f"{error.detail}; it was {derived}, the key's fingerprint: if the key is "
            "registered under another, give --keyid"
        )
        raise ProblemError(
            error.status, error.slug, error.title, detail, error.members
        ) from error
