"""What a fault is: how it is planted, which alerts are about it, and its remedy."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.alerts.installation import Watched

Plant = Callable[[Watched], Iterator[None]]


def base(alert: str) -> str:
    """Return the name of a rule: that of `LetheNotReady of keys` is LetheNotReady."""
    return alert.partition(" ")[0]


@dataclass(frozen=True)
class Fault:
    """A fault, and the alerts that must fire: each a rule's name, or "RULE of PART".

    also: what is a consequence of the same fault, and may fire beside it or not, as time goes;
    a rule's name stands for all its parts.
    """

    alerts: tuple[str, ...]
    planted: str
    remedy: str
    also: frozenset[str] = field(default_factory=frozenset)
    blind: bool = False  # the job `lethe` cannot be scraped, and most panels have no data
    is_short: bool = False  # `make test-full` plants it; the others `make alerts-check`

    @property
    def name(self) -> str:
        return self.alerts[0].replace(" of ", "-")

    def explains(self, firing: set[str]) -> bool:
        """Return whether the fault's alerts fire, and none that is about another one."""
        others = firing - {*self.alerts}
        return firing >= {*self.alerts} and all(self.also & {one, base(one)} for one in others)


class Faults(list[tuple[Fault, Plant]]):
    """Faults in the order in which they are planted."""

    def add(
        self,
        alerts: str | tuple[str, ...],
        planted: str,
        remedy: str,
        *also: str,
        short: bool = False,
        blind: bool = False,
    ) -> Callable[[Plant], None]:
        """Add a fault by a generator.

        It plants the fault and yields; then it looks where the rule's `remedy` says, applies
        the remedy, and may yield again: what comes after that is done once the alerts have
        ended.
        """
        names = (alerts,) if isinstance(alerts, str) else alerts
        made = Fault(names, planted, remedy, frozenset(also), blind, short)
        return lambda plant: self.append((made, plant))


@dataclass(frozen=True)
class Said:
    """What a process writes into its log from now on."""

    log: Path
    begin: int

    @classmethod
    def by(cls, made: Watched, process: str) -> "Said":
        log = made.processes.directory / f"{process}.log"
        return cls(log, log.stat().st_size)

    def times(self, words: str) -> int:
        """Return how often it wrote these words."""
        with self.log.open("rb") as file:
            file.seek(self.begin)
            return file.read().decode().count(words)
