"""How contenders are called in tables and figures, and in which order they stand."""

from collections.abc import Mapping, Sequence

from benchmarks.unlearning.contenders import (
    AGAIN,
    CORRECTED,
    ORIGINAL,
    PRINTED,
    PRINTED_PUF,
    REGULAR,
    RETRAIN,
    SPECIAL,
)
from benchmarks.unlearning.summary import Seeds

NAMES: Mapping[str, str] = {
    ORIGINAL: "Original",
    RETRAIN: "Retrain",
    AGAIN: "Retrain, another seed",
    "natural": "Natural",
    "fed-eraser": "FedEraser",
    "pga": "PGA",
    "mode": "MoDe",
    "fed-au": "FedAU",
    "not": "NoT",
    SPECIAL: "PUF-Special",
    REGULAR: "PUF-Regular",
    PRINTED_PUF[0]: "PUF-Special as printed",
    PRINTED_PUF[1]: "PUF-Regular as printed",
    "puf-special": "PUF-Special, guarded",
    "puf-regular": "PUF-Regular, guarded",
    "puf-special one step": "PUF-Special, guarded, one step",
    CORRECTED: "HF-KCU, corrected",
    PRINTED: "HF-KCU as printed",
    "hf-kcu": "HF-KCU, guarded",
    "hf-kcu one step": "HF-KCU, guarded, one step",
    "naive-ga": "NaiveGA",
    "neg-grad": "NegGrad",
    "neg-grad-plus": "NegGrad+",
    "random-label": "Random labels",
    "finetune": "Finetune",
    "l1-sparsity": "L1-sparsity",
    "scrub": "SCRUB",
    "wood-fisher": "WoodFisher",
    "exact-fun": "Exact-Fun",
    "fats": "FATS",
    "sisa": "SISA",
}
FIRST = (
    ORIGINAL, RETRAIN, AGAIN, "natural", SPECIAL, REGULAR, *PRINTED_PUF, "puf-special",
    "puf-regular", CORRECTED, PRINTED, "hf-kcu",
)  # fmt: skip


def name_of(label: str) -> str:
    """Return how the papers call a contender; variants keep their label."""
    return NAMES.get(label, f"`{label}`")


def ordered(labels: Sequence[str]) -> list[str]:
    """Return labels as the papers have them, the others after them by name."""
    return [label for label in FIRST if label in labels] + sorted(set(labels) - set(FIRST))


def counted(seeds: Seeds, label: str, named: str = "") -> str:
    """Return the name, and in how many seeds it was measured where that is not all."""
    name, whole = named or name_of(label), len(seeds.seeds)
    measured = len(seeds.over(label, lambda one, _: one.values["test"]))
    if measured == whole:
        return name
    refused = seeds.refusals(label)
    said = [f"{measured} of {whole} seeds", *([f"refused in {refused}"] if refused else [])]
    return f"{name} ({', '.join(said)})"
