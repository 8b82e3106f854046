"""What the vault refuses to open."""

from lethe.errors import LetheError


class SealError(LetheError):
    """A sealed blob that does not open: altered, moved to another place, or another key."""

    slug = "vault-seal"
    title = "Stored data cannot be opened"
    status = 500


class MasterKeyError(LetheError):
    """The master key is missing or malformed."""

    slug = "vault-master-key"
    title = "No usable master key"
    status = 503


class NotStoredError(LetheError):
    """The vault holds nothing under this id."""

    slug = "not-stored"
    title = "Not stored"
    status = 404


class ShreddedError(LetheError):
    """The key was destroyed on purpose: nobody can open this any more."""

    slug = "shredded"
    title = "Erased"
    status = 410
