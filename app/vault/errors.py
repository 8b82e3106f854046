"""Errors of the vault."""

from lethe.errors import LetheError


class SealError(LetheError):
    """A sealed blob does not open: it was altered or moved, or the key is another."""

    slug = "vault-seal"
    title = "Stored data cannot be opened"
    status = 500


class MasterKeyError(LetheError):
    """The master key is missing or malformed."""

    slug = "vault-master-key"
    title = "No usable master key"
    status = 503


class NotStoredError(LetheError):
    """Nothing is stored under this id."""

    slug = "not-stored"
    title = "Not stored"
    status = 404


class ShreddedError(LetheError):
    """The key was destroyed on purpose, so the data can never be opened again."""

    slug = "shredded"
    title = "Erased"
    status = 410
