"""Verdicts counted, and the share accepted with its Clopper–Pearson interval."""

from collections.abc import Iterable
from dataclasses import dataclass

from workers.judge.base import Result
from workers.judge.inference.intervals import Interval, clopper_pearson

LEVEL = 0.05
VERDICTS: tuple[Result, ...] = ("PASS", "FAIL", "INCONCLUSIVE")


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened to one provider in one block of trials.

    guarantee: the class claimed. setting: the data. provider: who claimed. block: the trained
    models that its trials share, or None where every trial has a problem of its own.
    refused_by: the names of checks that did not pass, each with the number of trials.
    """

    guarantee: str
    setting: str
    provider: str
    honest: bool
    block: str | None
    verdicts: dict[Result, int]
    refused_by: dict[str, int]

    @property
    def trials(self) -> int:
        """How many claims were judged."""
        return sum(self.verdicts.values())


@dataclass(frozen=True, slots=True)
class Rate:
    """One line of the table: all blocks of one provider in one setting.

    worst: the greatest share accepted in a block for a cheat, the least for the honest.
    ever: the blocks in which any trial was accepted.
    """

    guarantee: str
    setting: str
    provider: str
    honest: bool
    blocks: int
    verdicts: dict[Result, int]
    refused_by: dict[str, int]
    worst: float
    ever: int

    @property
    def trials(self) -> int:
        """How many claims were judged."""
        return sum(self.verdicts.values())

    @property
    def accepted(self) -> float:
        """The share of trials that ended with PASS."""
        return self.verdicts["PASS"] / self.trials

    @property
    def interval(self) -> Interval:
        """The 95 % Clopper–Pearson interval, as if every trial were independent."""
        return clopper_pearson(self.verdicts["PASS"], self.trials, LEVEL)

    @property
    def block_interval(self) -> Interval:
        """The 95 % interval of the share of blocks in which any trial was accepted.

        Blocks are independent where the trials within one are not.
        """
        return clopper_pearson(self.ever, self.blocks, LEVEL)


def rates(tallies: Iterable[Tally]) -> list[Rate]:
    """Return one rate for each class, setting and provider, in the order they first occur."""
    groups: dict[tuple[str, str, str, bool], list[Tally]] = {}
    for tally in tallies:
        key = (tally.guarantee, tally.setting, tally.provider, tally.honest)
        groups.setdefault(key, []).append(tally)
    return [_rate(*key, group) for key, group in groups.items()]


def _rate(
    guarantee: str, setting: str, provider: str, honest: bool, group: list[Tally]
) -> Rate:
    verdicts = {name: sum(one.verdicts[name] for one in group) for name in VERDICTS}
    reasons: dict[str, int] = {}
    for one in group:
        for name, count in one.refused_by.items():
            reasons[name] = reasons.get(name, 0) + count
    shares = [share for one in group for share in _shares(one)]
    return Rate(
        guarantee,
        setting,
        provider,
        honest,
        len(shares),
        verdicts,
        dict(sorted(reasons.items(), key=lambda item: -item[1])),  # equals by check number
        min(shares) if honest else max(shares),
        sum(share > 0 for share in shares),
    )


def _shares(one: Tally) -> list[float]:
    """Return the share accepted in each block; a tally with a block is the whole of it."""
    passed = one.verdicts["PASS"]
    if one.block is None:
        return [1.0] * passed + [0.0] * (one.trials - passed)
    return [passed / one.trials]
