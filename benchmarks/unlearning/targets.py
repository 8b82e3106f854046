"""What the methods are held to, seed by seed: much cheaper, forgotten, and still of use."""

from dataclasses import dataclass

from benchmarks.unlearning.contenders import (
    AGAIN,
    CORRECTED,
    ORIGINAL,
    REGULAR,
    RETRAIN,
    SPECIAL,
)
from benchmarks.unlearning.markdown import points, table
from benchmarks.unlearning.names import name_of
from benchmarks.unlearning.summary import Seeds, gap, ratio

CHEAPER = 20.0  # times less counted operations than retraining
CLOSED = 1 / 3  # of the original model's gap in forget accuracy may be left
LOST = 0.02  # test accuracy below the retrained model's, at most
JUDGED = (
    SPECIAL,
    REGULAR,
    CORRECTED,
    "puf-special",
    "puf-regular",
    "hf-kcu",
    "puf-special one step",
    "hf-kcu one step",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One method in one seed.

    share: of the original model's gap that is left. test: its accuracy minus the retrained
    model's. refused: it gave no model.
    """

    label: str
    seed: int
    cheaper: float
    share: float
    test: float
    refused: bool = False

    @property
    def met(self) -> tuple[bool, bool, bool]:
        """Whether the three targets are met: compute, forgetting, test accuracy."""
        if self.refused:
            return False, False, False
        return self.cheaper >= CHEAPER, self.share <= CLOSED, self.test >= -LOST


def verdicts(seeds: Seeds, labels: tuple[str, ...] = JUDGED) -> list[Verdict]:
    """Return the verdict of each method in each seed that has it."""
    found = []
    for label in labels:
        for seed in seeds.seeds:
            one, truth = seeds.at(seed, label), seeds.at(seed, RETRAIN)
            first = seeds.at(seed, ORIGINAL)
            if one is None:
                continue
            assert truth is not None  # `seeds` has both
            assert first is not None
            if one.refused:
                found.append(Verdict(label, seed, 0.0, 1.0, 0.0, refused=True))
                continue
            before = gap(first, truth, "forget")
            found.append(
                Verdict(
                    label,
                    seed,
                    cheaper=ratio(one, truth, "flops"),
                    share=gap(one, truth, "forget") / before if before else 1.0,
                    test=one.values["test"] - truth.values["test"],
                )
            )
    return found


def render(seeds: Seeds) -> str:
    """Return the verdicts as a table, one line for each method and seed, and a summary."""
    found = verdicts(seeds)
    body = []
    for one in found:
        if one.refused:
            body.append((name_of(one.label), str(one.seed), "refused", "", "", "no"))
            continue
        marks = [_mark(met) for met in one.met]
        body.append(
            (
                name_of(one.label),
                str(one.seed),
                f"{one.cheaper:.1f}× {marks[0]}",
                f"{100 * one.share:.0f} % {marks[1]}",
                f"{100 * one.test:+.1f} {marks[2]}",
                "**yes**" if all(one.met) else "no",
            )
        )
    head = ("method", "seed", "compute ≥ 20×", "gap left ≤ 33 %", "test ≥ −2.0", "all met")
    text = table(head, body)
    for label in dict.fromkeys(one.label for one in found):
        mine = [one.met for one in found if one.label == label]
        compute, forget, test = (sum(column) for column in zip(*mine, strict=True))
        whole = sum(all(met) for met in mine)
        text += (
            f"\n{name_of(label)}: all three in {whole} of {len(mine)} seeds "
            f"(compute {compute}, forgetting {forget}, test {test}).\n"
        )
    if AGAIN in seeds.labels:
        text += (
            "\nThe original model's gap in forget accuracy is "
            f"{points(seeds.gap(ORIGINAL, 'forget'))} points. Two retrainings that differ only "
            f"in their seed are {points(seeds.gap(AGAIN, 'forget'))} points apart there, "
            f"and {points(seeds.gap(AGAIN, 'test'))} in test accuracy.\n"
        )
    return text


def _mark(met: bool) -> str:
    return "✓" if met else "✗"
