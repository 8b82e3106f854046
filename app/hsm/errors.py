"""What can be wrong with a private key that is not in its key file."""

from lethe.errors import LetheError


class KeyAwayError(LetheError):
    """A signing key is not where its key file says; nothing is signed with it meanwhile."""

    slug, title, status = "key-away", "A signing key cannot be reached", 503


class HsmError(KeyAwayError):
    """An HSM does not answer, or does not have the key."""

    slug, title = "hsm", "The HSM does not sign"
