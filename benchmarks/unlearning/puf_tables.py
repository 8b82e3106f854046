"""PUF's Tables III to VI, and every method of the registry in the same columns."""

from collections.abc import Sequence

from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN
from benchmarks.unlearning.markdown import (
    amount,
    plain,
    points,
    seconds,
    table,
    times,
    with_gap,
)
from benchmarks.unlearning.summary import Seeds

NAMES = {
    ORIGINAL: "Original",
    RETRAIN: "Retrain",
    AGAIN: "Retrain, another seed",
    "natural": "Natural",
    "fed-eraser": "FedEraser",
    "pga": "PGA",
    "mode": "MoDe",
    "fed-au": "FedAU",
    "not": "NoT",
    "puf-special": "PUF-Special",
    "puf-regular": "PUF-Regular",
    "hf-kcu": "HF-KCU",
    "naive-ga": "NaiveGA",
    "sisa": "SISA",
}
TABLE3 = (
    ORIGINAL, RETRAIN, AGAIN, "natural", "fed-eraser", "pga", "mode", "fed-au", "not",
    "puf-special", "puf-regular", "puf-special one step",
)  # fmt: skip
TABLE4 = (
    RETRAIN, AGAIN, "natural", "fed-au", "not", "puf-special", "puf-regular",
    "puf-special one step",
)  # fmt: skip
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
            body.append((name_of(label), f"refused: {refusal}", *[""] * (len(head) - 2)))
            continue
        loss = f"{plain(seeds.mean(label, 'forget_loss'))}"
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


def every_method(seeds: Seeds) -> str:
    """Return what the papers' tables leave out, for everybody: functional gaps, both costs."""
    head = (
        "method", "test Δ", "forget Δ", "retained", "Song Δ", "Yeom Δ", "KL, nats", "agreement",
        "FLOPs (×)", "by formula (×)", "bytes (×)", "by formula (×)", "seconds",
    )  # fmt: skip
    body = []
    for label in ordered(seeds.labels):
        if refusal := seeds.refusal(label):
            body.append((name_of(label), f"refused: {refusal}", *[""] * (len(head) - 2)))
            continue
        body.append(
            (
                counted(seeds, label),
                *(points(seeds.gap(label, part)) for part in ("test", "forget")),
                points(seeds.mean(label, "retained")),
                *(points(seeds.gap(label, part)) for part in ("song", "yeom")),
                plain(seeds.mean(label, "kl")),
                points(seeds.mean(label, "agreement")),
                _cost(seeds, label, "flops"),
                times(seeds.ratio(label, "formula_flops")),
                _cost(seeds, label, "bytes"),
                times(seeds.ratio(label, "formula_bytes")),
                seconds(seeds.cost(label, "seconds")),
            )
        )
    return table(head, body)


def ordered(labels: Sequence[str]) -> list[str]:
    """Return labels as the papers have them, the others after them by name."""
    first = [ORIGINAL, RETRAIN, AGAIN, "natural", "puf-special", "puf-regular", "hf-kcu"]
    return [label for label in first if label in labels] + sorted(set(labels) - set(first))


def name_of(label: str) -> str:
    """Return how the papers call a contender; variants keep their label."""
    return NAMES.get(label, f"`{label}`")


def counted(seeds: Seeds, label: str, named: str = "") -> str:
    """Return the name, and in how many seeds it was measured where that is not all."""
    name, whole = named or name_of(label), len(seeds.seeds)
    measured = len(seeds.over(label, lambda one, _: one.values["test"]))
    if measured == whole:
        return name
    refused = seeds.refusals(label)
    said = [f"{measured} of {whole} seeds", *([f"refused in {refused}"] if refused else [])]
    return f"{name} ({', '.join(said)})"


def _row(seeds: Seeds, label: str) -> tuple[str, ...]:
    if refusal := seeds.refusal(label):
        return (name_of(label), f"refused: {refusal}", *[""] * (len(HEAD) - 2))
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
