"""Every measure of every method in one setting: how close to retraining, and what it took."""

from collections.abc import Callable, Iterable, Sequence

from benchmarks.unlearning.contenders import ORIGINAL
from benchmarks.unlearning.markdown import amount, plain, points, refused, seconds, table, times
from benchmarks.unlearning.names import counted, name_of, ordered
from benchmarks.unlearning.summary import Seeds

SHARES = ("test", "forget", "retained", "song", "yeom")
TOOK = (
    "method", "FLOPs", "FLOPs ×", "by formula ×", "bytes", "bytes ×", "by formula ×",
    "storage", "seconds", "time ×",
)  # fmt: skip


def closeness(seeds: Seeds, score: str = "acc.") -> str:
    """Return accuracies, attacks, their gaps to the retrained model, KL and agreement.

    score: what accuracies are called, Dice for a segmentation.
    """
    titles = [*(f"{part} {score}" for part in SHARES[:3]), "MIA Song", "MIA Yeom"]
    pairs = [head for title in titles for head in (title, f"{title} Δ")]
    labels = ordered(seeds.labels)
    return _rows(("method", *pairs, "KL, nats", "agreement"), seeds, labels, _close)


def expense(seeds: Seeds) -> str:
    """Return operations, bytes, storage and seconds, counted and by the papers' formulas."""
    labels = [label for label in ordered(seeds.labels) if label != ORIGINAL]
    return _rows(TOOK, seeds, labels, _took)


def _close(seeds: Seeds, label: str) -> Iterable[str]:
    for part in SHARES:
        yield points(seeds.mean(label, part))
        yield points(seeds.gap(label, part))
    yield plain(seeds.mean(label, "kl"))
    yield points(seeds.mean(label, "agreement"))


def _took(seeds: Seeds, label: str) -> Iterable[str]:
    for part in ("flops", "bytes"):
        yield amount(seeds.cost(label, part), interval=True)
        yield times(seeds.ratio(label, part))
        yield times(seeds.ratio(label, f"formula_{part}"))
    yield amount(seeds.cost(label, "storage"))
    yield seconds(seeds.cost(label, "seconds"))
    yield times(seeds.ratio(label, "seconds"))


def _rows(
    head: Sequence[str],
    seeds: Seeds,
    labels: Sequence[str],
    cells: Callable[[Seeds, str], Iterable[str]],
) -> str:
    body = []
    for label in labels:
        if refusal := seeds.refusal(label):
            body.append(refused(name_of(label), refusal, len(head)))
        else:
            body.append((counted(seeds, label), *cells(seeds, label)))
    return table(head, body)
