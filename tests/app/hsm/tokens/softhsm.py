"""A SoftHSM of a test's own: tokens in a folder, which can be taken away.

Its library is looked for in `LETHE_TEST_PKCS11_MODULE` and where Debian has it. Where there is
none the tests fail, as those of PostgreSQL do.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lethe.signing.keys import PrivateKey, private_pem
from tests.servers import NoServerError

PIN = "271828"
CONFIGURATION = "SOFTHSM2_CONF"
PLACES = (
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib/aarch64-linux-gnu/softhsm/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
)


def module_path() -> str:
    """Return the path of SoftHSM's library; raises NoServerError."""
    given = os.environ.get("LETHE_TEST_PKCS11_MODULE")
    for path in (given,) if given else PLACES:
        if Path(path).exists():
            return path
    raise NoServerError(
        "no SoftHSM: apt-get install softhsm2, or set LETHE_TEST_PKCS11_MODULE to its library"
    )


@dataclass
class SoftHsm:
    """Tokens in `folder`; who uses them finds them by the variable SOFTHSM2_CONF."""

    folder: Path
    module: str

    @property
    def configuration(self) -> Path:
        """The file that SOFTHSM2_CONF names."""
        return self.folder / "softhsm2.conf"

    @property
    def tokens(self) -> Path:
        """Where the tokens are."""
        return self.folder / "tokens"

    def begin(self) -> None:
        """Write the configuration, and make the token `lethe`."""
        self.tokens.mkdir()
        self.configuration.write_text(
            f"directories.tokendir = {self.tokens}\nobjectstore.backend = file\nlog.level = ERROR\n"
        )
        self.add_token("lethe")

    def add_token(self, label: str) -> None:
        """Make a token."""
        self._run("--init-token", "--free", "--label", label, "--so-pin", PIN, "--pin", PIN)

    def add_key(
        self, key: PrivateKey, label: str, *, token: str = "lethe", id: str = "01"
    ) -> None:
        """Put a key into a token."""
        pem = self.folder / "imported.pem"
        pem.write_text(private_pem(key))
        place = ["--token", token, "--label", label, "--id", id, "--pin", PIN]
        self._run("--import", str(pem), *place)
        pem.unlink()

    def take_away(self) -> None:
        """Take all tokens away."""
        self.tokens.rename(self.folder / "away")
        self.tokens.mkdir()

    def bring_back(self) -> None:
        """Bring them back."""
        self.tokens.rmdir()
        (self.folder / "away").rename(self.tokens)

    def _run(self, *words: str) -> None:
        program = shutil.which("softhsm2-util")
        if program is None:
            raise NoServerError("no SoftHSM: apt-get install softhsm2")
        done = subprocess.run(
            [program, "--module", self.module, *words],
            env={**os.environ, CONFIGURATION: str(self.configuration)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
