"""PUF's Tables III to VI: the same columns, and of the methods those that a table has."""

from collections.abc import Sequence

from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN
from benchmarks.unlearning.markdown import (
    amount,
    plain,
    points,
    refused,
    table,
    times,
    with_gap,
)
from benchmarks.unlearning.names import counted, name_of
from benchmarks.unlearning.summary import Seeds

TABLE3 = (
    ORIGINAL, RETRAIN, AGAIN, "natural", "fed-eraser", "pga", "mode", "fed-au", "not",
    "puf-special", "puf-regular", "puf-special one step",
)  # fmt: skip
TABLE4 = (
    ORIGINAL, RETRAIN, AGAIN, "natural", "fed-au", "not", "puf-special", "puf-regular",
    "puf-special one step",
)  # fmt: skip
TABLE5 = TABLE4  # neither has PGA and MoDe, which know one client alone
TABLE6 = (ORIGINAL, RETRAIN, AGAIN, "natural", "pga", "not", "puf-special", "puf-regular")
HEAD = (
    "method", "test acc.", "forget acc. (Δ)", "MIA Song (Δ)", "MIA Yeom (Δ)", "bytes (×)",
    "FLOPs (×)", "storage (×)",
)  # fmt: skip


def client_table(seeds: Seeds, labels: Sequence[str] = TABLE3) -> str:
    """Return the rows and columns of Tables III to V for one setting."""
    return table(HEAD, (_row(seeds, label) for label in labels if label in seeds.labels))


def segmentation_table(seeds: Seeds) -> str:
    """Return Table VI: Dice in place of accuracies, the loss of the forget set."""
    head = (
        "method", "test Dice", "forget Dice (Δ)", "forget loss (Δ)", "bytes (×)", "FLOPs (×)",
    )  # fmt: skip
    body = []
    for label in TABLE6:
        if label not in seeds.labels:
            continue
        if refusal := seeds.refusal(label):
            body.append(refused(name_of(label), refusal, len(head)))
            continue
        loss = plain(seeds.mean(label, "forget_loss"))
        body.append(
            (
                counted(seeds, label),
                points(seeds.mean(label, "test")),
                with_gap(seeds.mean(label, "forget"), seeds.gap(label, "forget")),
                f"{loss} ({plain(seeds.gap(label, 'forget_loss'))})",
                _cost(seeds, label, "bytes"),
                _cost(seeds, label, "flops"),
            )
        )
    return table(head, body)


def _row(seeds: Seeds, label: str) -> tuple[str, ...]:
    if refusal := seeds.refusal(label):
        return refused(name_of(label), refusal, len(HEAD))
    measured = (
        with_gap(seeds.mean(label, part), seeds.gap(label, part))
        for part in ("forget", "song", "yeom")
    )
    costs = (_cost(seeds, label, part) for part in ("bytes", "flops", "storage"))
    return (counted(seeds, label), points(seeds.mean(label, "test")), *measured, *costs)


def _cost(seeds: Seeds, label: str, name: str) -> str:
    if label == ORIGINAL:
        return ""
    return f"{amount(seeds.cost(label, name))} ({times(seeds.ratio(label, name))})"
