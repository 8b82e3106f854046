"""PUF's Tables III to VI: its columns and rows, and beside each row the paper's figures."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.paper_figures import HEAD, figures, footnote, rows_of, tables
from benchmarks.unlearning.contenders import (
    AGAIN,
    ORIGINAL,
    PRINTED_PUF,
    REGULAR,
    RETRAIN,
    SPECIAL,
)
from benchmarks.unlearning.markdown import (
    amount,
    plain,
    points,
    refused,
    table,
    times,
    unrun,
    with_gap,
)
from benchmarks.unlearning.names import counted, name_of
from benchmarks.unlearning.summary import Seeds

GUARDED = ("puf-special", "puf-regular", "puf-special one step")
TABLE3 = (
    ORIGINAL, RETRAIN, AGAIN, "natural", "fed-eraser", "pga", "mode", "fed-au", "not",
    SPECIAL, REGULAR, *PRINTED_PUF, *GUARDED,
)  # fmt: skip
TABLE4 = (
    ORIGINAL, RETRAIN, AGAIN, "natural", "fed-au", "not", SPECIAL, REGULAR, *GUARDED,
)  # fmt: skip
TABLE5 = TABLE4  # neither has PGA and MoDe, which know one client alone
TABLE6 = (
    ORIGINAL, RETRAIN, AGAIN, "natural", "pga", "not", SPECIAL, REGULAR, "puf-special",
    "puf-regular",
)  # fmt: skip
COLUMNS = (
    "method", "test acc.", "forget acc. (Δ)", "MIA Song (Δ)", "MIA Yeom (Δ)", "bytes (×)",
    "FLOPs (×)", "storage (×)", HEAD,
)  # fmt: skip
DICE = (
    "method", "test Dice", "forget Dice (Δ)", "forget loss (Δ)", "bytes (×)", "FLOPs (×)", HEAD,
)  # fmt: skip
# The paper's setting that stands nearest to one of here: data, or at least partition.
CIFAR10 = "CIFAR-10, Non-IID, ResNet-18, E=1"
SKEWED, EVEN = "CIFAR-100, Non-IID, ResNet-18, E=1", "CIFAR-100, IID, ResNet-18, E=1"
PROSTATE = "ProstateMRI, U-NET"
BESIDE: Mapping[str, Mapping[str, str]] = {
    "PUF III": {
        **dict.fromkeys(
            (
                "cifar",
                "cifar-6000",
                "cifar-12000",
                "cifar-12000-published",
                "resnet",
                "resnet-full",
            ),
            CIFAR10,
        ),
        **dict.fromkeys(("mnist-60000-published", "mnist", "digits", "quick"), SKEWED),
        "iid": EVEN,
    },
    "PUF IV": {
        **dict.fromkeys(("cifar-samples", "samples"), SKEWED),
        **dict.fromkeys(("cifar-samples-iid", "samples-iid"), EVEN),
    },
    "PUF V": dict.fromkeys(("cifar-two", "two"), SKEWED),
    "PUF VI": {"masks": PROSTATE},
}

Cells = Callable[[Seeds, str], tuple[str, ...]]


def client_table(seeds: Seeds, name: str, labels: Sequence[str]) -> str:
    """Return the rows and columns of Tables III to V for one setting; name is "PUF III"."""
    return _beside(seeds, name, labels, COLUMNS, _client)


def segmentation_table(seeds: Seeds) -> str:
    """Return Table VI: Dice in place of accuracies, the loss of the forget set."""
    return _beside(seeds, "PUF VI", TABLE6, DICE, _segmentation)


def elsewhere() -> str:
    """Return the settings of the paper's tables that no setting of here stands beside."""
    body = []
    for name, settings in tables().items():
        if name not in BESIDE:
            continue
        for setting in settings:
            if setting not in BESIDE[name].values():
                body += [
                    (name, setting, row, figures(name, setting, row))
                    for row in rows_of(name, setting)
                ]
    return table(("table", "setting", "method", HEAD), body)


def _beside(
    seeds: Seeds, name: str, labels: Sequence[str], head: Sequence[str], cells: Cells
) -> str:
    """Return a table with the paper's row at the end of each, and where those are from."""
    setting = BESIDE[name].get(seeds.setting)
    body = []
    for label in labels:
        if label in PRINTED_PUF and label not in seeds.labels:
            continue  # on digits alone
        paper = figures(name, setting, name_of(label))
        if label not in seeds.labels:
            body.append(unrun(name_of(label), len(head), paper))
        elif refusal := seeds.refusal(label):
            body.append(refused(name_of(label), refusal, len(head), paper))
        else:
            body.append((counted(seeds, label), *cells(seeds, label), paper))
    return f"{table(head, body)}\n{footnote(name, setting)}"


def _client(seeds: Seeds, label: str) -> tuple[str, ...]:
    measured = (
        with_gap(seeds.mean(label, part), seeds.gap(label, part))
        for part in ("forget", "song", "yeom")
    )
    costs = (_cost(seeds, label, part) for part in ("bytes", "flops", "storage"))
    return (points(seeds.mean(label, "test")), *measured, *costs)


def _segmentation(seeds: Seeds, label: str) -> tuple[str, ...]:
    loss = plain(seeds.mean(label, "forget_loss"))
    return (
        points(seeds.mean(label, "test")),
        with_gap(seeds.mean(label, "forget"), seeds.gap(label, "forget")),
        f"{loss} ({plain(seeds.gap(label, 'forget_loss'))})",
        _cost(seeds, label, "bytes"),
        _cost(seeds, label, "flops"),
    )


def _cost(seeds: Seeds, label: str, name: str) -> str:
    if label == ORIGINAL:
        return ""
    return f"{amount(seeds.cost(label, name))} ({times(seeds.ratio(label, name))})"
