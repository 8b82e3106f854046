"""Three witnesses of a ledger, of which the second is down and the third lies; two sign."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.ledger.sequencer import Ledger
from app.settings import Settings
from app.witnesses.gather import Gatherer
from app.witnesses.policy import load_policy
from lethe.log.policy import Policy, parse_policy
from lethe.witness.home import create
from tests.lethe.witness.liars import Behaviour, lying, nowhere
from tests.lethe.witness.logs import serving


def two_lines(body: bytes) -> tuple[int, bytes]:
    """Answer as no witness does."""
    return 200, b"\xe2\x80\x94 liar.example AAAA\n"


@dataclass
class Three:
    """Honest (two keys at one URL), down, lying; `policy` says whose quorum counts."""

    directory: Path
    urls: list[str]
    keys: list[list[str]]

    def policy(self, quorum: str) -> str:
        (first, post_quantum), (down, _), (liar, _) = self.keys
        lines = [
            f"witness honest {first} {self.urls[0]}",
            f"witness honest-pq {post_quantum} {self.urls[0]}/",
            f"witness down {down} {self.urls[1]}",
            f"witness liar {liar} {self.urls[2]}",
            "group both all honest honest-pq",
            "group three 2 both down liar",
            f"quorum {quorum}",
        ]
        return "".join(f"{line}\n" for line in lines)

    def write(self, settings: Settings, quorum: str, **more: object) -> Settings:
        """Write the policy, and return settings that name it."""
        path = self.directory / f"{quorum}.policy"
        path.write_text(self.policy(quorum))
        return settings.model_copy(update={"witness_policy": str(path), **more})

    def parsed(self, quorum: str) -> Policy:
        return parse_policy(self.policy(quorum).encode())


@contextmanager
def three_witnesses(
    directory: Path, ledger: Ledger, lie: Behaviour = two_lines, last: bytes | None = None
) -> Iterator[Three]:
    directory.mkdir()
    keys = [
        [
            one.verifier.vkey
            for one in create(directory / name, f"{name}.example", [ledger.verifier])
        ]
        for name in ("honest", "down", "liar")
    ]
    with serving(directory / "honest") as honest, lying(lie, last) as liar:
        yield Three(directory, [honest, nowhere(), liar], keys)


@contextmanager
def gathering(ledger: Ledger, settings: Settings) -> Iterator[Gatherer]:
    policy = load_policy(settings, ledger.keys)
    assert policy is not None
    gatherer = Gatherer(ledger, policy, settings)
    try:
        yield gatherer
    finally:
        gatherer.close()
