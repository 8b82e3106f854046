"""Signing keys in environment variables, as secret stores of container platforms supply them.

A key file has the variable's name in place of a private key: `env:LETHE_LOG_KEY`.
"""

import os
import re
from dataclasses import dataclass

from app.hsm.errors import KeyAwayError
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import PrivateKey, load_private_key

SCHEME = "env:"
# The prefix keeps whoever can write a key file from having other programs' secrets read.
_NAME = re.compile(r"(LETHE_(?:[A-Z0-9]+_)*KEY)(?:_[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class EnvironmentKey:
    """The private key in the environment variable `name`, in PEM."""

    name: str

    def __str__(self) -> str:
        return SCHEME + self.name

    def numbered(self, number: int) -> "EnvironmentKey":
        """Return the variable of the key with this number: `LETHE_LOG_KEY_2`."""
        match = _NAME.fullmatch(self.name)
        assert match is not None
        return EnvironmentKey(f"{match[1]}_{number}")

    def load(self) -> PrivateKey:
        """Return the key. Raises KeyAwayError: the variable is not set, or is not a key."""
        text = os.environ.get(self.name, "")
        if not text:
            raise KeyAwayError(
                f"{self.name} is not set here: set it to the private key in PEM, in the "
                "environment of each process"
            )
        try:
            return load_private_key(text.encode())
        except KeyFormatError as error:
            raise KeyAwayError(f"{self.name}: {error.detail}") from None


def parse_environment_key(text: str) -> EnvironmentKey:
    """Read `env:NAME`. Raises KeyAwayError: the name cannot be one of a key."""
    name = text.strip().removeprefix(SCHEME)
    if not _NAME.fullmatch(name):
        raise KeyAwayError(
            "a key's variable is named LETHE_…_KEY, as in env:LETHE_LOG_KEY, or "
            "LETHE_…_KEY_NUMBER"
        )
    return EnvironmentKey(name)
