"""What can be wrong with a key in an HSM."""

from lethe.errors import LetheError


class HsmError(LetheError):
    """An HSM does not answer, or does not have the key; nothing is signed with it meanwhile."""

    slug, title, status = "hsm", "The HSM does not sign", 503
