"""Errors of the vault."""

from lethe.errors import LetheError


class SealError(LetheError):
    """A sealed blob does not open: it was altered or moved, or the key is another."""

    slug, title, status = "vault-seal", "Stored data cannot be opened", 500


class MasterKeyError(LetheError):
    """The master key is missing or malformed."""

    slug, title, status = "vault-master-key", "No usable master key", 503


class NotStoredError(LetheError):
    """Nothing is stored under this id."""

    slug, title, status = "not-stored", "Not stored", 404


class ShreddedError(LetheError):
    """The key was destroyed on purpose, so the data can never be opened again."""

    slug, title, status = "shredded", "Erased", 410
