"""Both papers' tables by their rows and column heads, written down from the papers by hand.

A row or a column that a paper has must be there under its name, in the paper's order; what is
added (gaps, seed noise) is asked for by name, too. "Speedup" is a column of times and one of
operations here, the papers' (×) columns are two numbers in one cell.
"""

from collections.abc import Sequence

import pytest

from benchmarks.unlearning import report
from benchmarks.unlearning.contenders import FIRST, planned
from benchmarks.unlearning.names import name_of
from benchmarks.unlearning.records import Record, Records
from benchmarks.unlearning.settings import SETTINGS

NOISE = "Retrain, another seed"
MEASURES = (
    "test",
    "forget",
    "retained",
    "forget_loss",
    "song",
    "yeom",
    "kl",
    "agreement",
    "logit_mse",
)
COSTS = ("flops", "bytes", "storage", "seconds", "formula_flops", "formula_bytes")
CLIENT = (
    "test acc.", "forget acc. (Δ)", "MIA Song (Δ)", "MIA Yeom (Δ)", "bytes (×)", "FLOPs (×)",
    "storage (×)", "paper",
)  # fmt: skip
PUFS = ("PUF-Special", "PUF-Regular", "PUF-Special, guarded", "PUF-Regular, guarded")
KCUS = (
    "HF-KCU, corrected",
    "HF-KCU as printed",
    "HF-KCU, guarded",
    "HF-KCU, guarded, one step",
)
# Section: (column heads, rows). The rows of the papers' tables, then what is added.
PUF = {
    "### 400 digits, Dirichlet 0.1, SimpleCNN, 20 rounds of 5 epochs": (
        CLIENT,
        (
            "Original", "Retrain", NOISE, "Natural", "FedEraser", "PGA", "MoDe", "FedAU", "NoT",
            *PUFS, "PUF-Special, guarded, one step",
        ),
    ),
    **{
        f"### {SETTINGS[name].about}": (
            CLIENT,
            ("Retrain", NOISE, "Natural", "FedAU", "NoT", *PUFS),
        )
        for name in ("cifar-samples-iid", "samples-iid", "cifar-samples", "samples")
    },
    **{
        f"### {SETTINGS[name].about}": (
            CLIENT,
            ("Original", "Retrain", NOISE, "FedAU", "NoT", *PUFS),
        )
        for name in ("cifar-two", "two")
    },
    "## PUF, Table VI: segmentation": (
        ("test Dice", "forget Dice (Δ)", "forget loss (Δ)", "bytes (×)", "FLOPs (×)", "paper"),
        ("Original", "Retrain", NOISE, "Natural", "PGA", "NoT", *PUFS),
    ),
}  # fmt: skip
SPEEDUP = ("FLOPs ×", "time ×", "CG residual", "paper")
COMPONENTS = (
    "the benchmark's setting", "with adaptive scaling, β 0.01", "full Newton step",
    "Hessian in place of Gauss–Newton", "10 iterations", "curvature of all retained rows",
    "without recovery",
)  # fmt: skip
TABLE4 = (
    "test acc.", "parameter gap", "MIA Song", "MIA Δ", "forget acc. Δ", "test acc. Δ", "KL, nats", "CG residual", "paper",
)  # fmt: skip
TABLE5 = ("test acc.", "CF", "forget acc. Δ", *SPEEDUP)
DAMPED = (
    "0.100, corrected, the paper's constants", "0.010, corrected, the paper's constants",
    "0.001, corrected, the paper's constants", "0.100", "0.010", "0.001",
    "retrain, another seed",
)  # fmt: skip
SWEPT = ("unlearned acc.", "retrained acc.", "acc. Δ", "seed noise", "forget acc. Δ", *SPEEDUP)
SKEWED = (SWEPT, ("0.1 (highly non-IID)", "0.5 (moderately non-IID)", "1 (mildly non-IID)"))
BACKDOOR = (
    ("clean acc.", "clean acc. lost", "ASR", "ASR Δ", "ASR reduction", "time (s)", "time ×", "CG residual", "paper"),
    ("Poisoned model", *KCUS, "Oracle retrain", NOISE),
)  # fmt: skip
HF_KCU = {
    "## HF-KCU, Table 1: digits": (
        ("test acc.", "CF", "MIA Song", "MIA Δ", "forget acc. Δ", *SPEEDUP),
        (
            "FedAvg (trained)", "Retrain", NOISE, "NaiveGA", "FedEraser", "SISA", *KCUS,
        ),
    ),
    "## HF-KCU, Table 2: data sets and networks": (
        ("acc. after", "acc. retrain", "acc. Δ", "seed noise", "CF", "FLOPs ×", "time ×", "CG residual", "seeds", "paper"),
        (*(SETTINGS[name].about for name in ("mnist", "vit", "resnet", "cifar-6000")), "FMNIST"),
    ),
    "## HF-KCU, Table 3: backdoor, CIFAR-10": BACKDOOR,
    "## HF-KCU, Table 3: backdoor, digits": BACKDOOR,
    "## HF-KCU, Table 4: components, cycles: digits": (
        TABLE4,
        (
            *COMPONENTS[:1], "causal weights by gradient norm (equation 7)", COMPONENTS[1],
            "asking for the drift", *COMPONENTS[2:], "corrected, the paper's constants",
            "Algorithm 1 as printed", "retrain, another seed", "w/o causal weighting",
        ),
    ),
    "## HF-KCU, Table 4: components, one step: digits": (
        TABLE4, (*COMPONENTS, "retrain, another seed")
    ),
    "## HF-KCU, Table 4: components, one step: cifar": (
        TABLE4, (*COMPONENTS, "retrain, another seed")
    ),
    "## HF-KCU, Table 4: components, one step: two": (
        TABLE4,
        (
            "the benchmark's setting", "causal weights by gradient norm (equation 7)",
            "corrected, the paper's constants", "Algorithm 1 as printed",
            "as printed, without adaptive scaling",
            "as printed, causal weights by equation 7 (line 16)",
        ),
    ),
    "## HF-KCU, Table 4: components, the paper's constants: cifar-12000-published": (
        TABLE4,
        (
            "corrected, the paper's constants", "Algorithm 1 as printed",
            "as printed, without adaptive scaling", "retrain, another seed",
            "w/o causal weighting",
        ),
    ),
    "## HF-KCU, Table 5: damping, the paper's constants: cifar-12000-published": (
        TABLE5, (*DAMPED[:3], "retrain, another seed")
    ),
    "## HF-KCU, Table 5: damping, cycles: digits": (TABLE5, DAMPED),
    "## HF-KCU, Table 5: damping, one step: cifar": (TABLE5, DAMPED),
    "## HF-KCU, Table 6: skew, CIFAR-10": SKEWED,
    "## HF-KCU, Table 6: skew, digits": SKEWED,
    "## HF-KCU, Table 7: clients, CIFAR-10": (SWEPT, ("10", "100", "200")),
    "## HF-KCU, Table 7: clients, digits": (SWEPT, ("10", "100", "200")),
    "## HF-KCU, Table 8: size of the model": (
        ("parameters", "method", "HF-KCU (s)", "retrain (s)", "time ×", "paper"),
        ("SimpleCNN", "ResNet-18", "ViT-Lite"),
    ),
    "## HF-KCU, Table 9: outputs": (
        ("method", "KL, nats", "logit MSE", "test acc. Δ", "MIA Song", "CG residual", "paper"),
        ("cifar-6000", "cifar", "mnist", "digits"),
    ),
}  # fmt: skip
CLOSE = (
    "test acc.", "test acc. Δ", "forget acc.", "forget acc. Δ", "retained acc.",
    "retained acc. Δ", "MIA Song", "MIA Song Δ", "MIA Yeom", "MIA Yeom Δ", "KL, nats",
    "agreement",
)  # fmt: skip
TOOK = ("FLOPs", "FLOPs ×", "bytes", "bytes ×", "storage", "seconds", "time ×")


@pytest.fixture(scope="module")
def page() -> str:
    """The page of two seeds of whatever is planned for each setting."""
    return report.render(made_up())


def made_up() -> Records:
    """Two seeds of everything that is planned, all alike but for the seed."""
    records = [
        Record(
            name,
            seed,
            part.label,
            "p",
            {part: 0.5 + 0.1 * seed for part in (*MEASURES, "distance", "asr")},
            dict.fromkeys(COSTS, 2.0),
        )
        for name, setting in SETTINGS.items()
        for seed in (0, 1)
        for part in (*FIRST, *planned(setting.plan))
    ]
    return {record.key: record for record in records}


def tables(page: str, title: str) -> list[tuple[list[str], list[str]]]:
    """Return the column heads and the first cells of each table of a section."""
    lines = iter(page.splitlines())
    found: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if line == title:
            break
    inside = False
    for line in lines:
        if line.startswith("#"):
            break
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and not inside:
            found.append((cells, []))
        elif cells and cells[0] != "---":
            found[-1][1].append(cells[0])
        inside = bool(cells)
    return found


def missing(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return what is not there, or not in this order."""
    rest = iter(found)
    return [name for name in wanted if not any(other == name for other in rest)]


@pytest.mark.parametrize("title", [*PUF, *HF_KCU])
def test_every_table_has_its_papers_rows_and_columns(page: str, title: str) -> None:
    heads, rows = {**PUF, **HF_KCU}[title]
    [(found_heads, found_rows)] = tables(page, title)
    assert not missing(heads, found_heads)
    assert not missing(rows, found_rows)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_setting_has_every_measure_of_every_method_and_its_seed_noise(
    page: str, name: str
) -> None:
    (close, who), (took, payers) = tables(page, f"## Every measure: {name}")
    score = "Dice" if name == "masks" else "acc."
    assert not missing([head.replace("acc.", score) for head in CLOSE], close)
    assert not missing(TOOK, took)
    contenders = {name_of(part.label) for part in (*FIRST, *planned(SETTINGS[name].plan))}
    assert set(who) == contenders
    assert set(payers) == contenders - {"Original"}
    assert NOISE in who


def test_a_missing_row_is_told() -> None:
    assert missing(["a", "c"], ["a", "b", "c"]) == []
    assert missing(["a", "c"], ["c", "a"]) == ["c"]


def test_parameters_are_those_of_the_networks(page: str) -> None:
    assert "nan" not in page
    assert (
        "| ResNet-18 | 11,173,962 | `resnet` | HF-KCU, guarded | 2.0 ± 0.0 | 2.0 ± 0.0 | "
        "not recorded | 1.0× | 1.0× | – | – |" in page
    )
