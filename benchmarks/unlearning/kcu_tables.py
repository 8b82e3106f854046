"""HF-KCU's Tables 1 to 8: the same rows and columns, with the gaps that they leave out.

"Lower is better" is not used for the attack: a model that never saw the rows is attacked with
some success too, and the column is |MIA - MIA of the retrained model|. Speed-ups are of counted
operations first, because seconds of a shared machine wander, and of seconds as in the paper.
Seed noise is the same gap between two retrainings that differ in their seed alone.
"""

from collections.abc import Mapping, Sequence

from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN
from benchmarks.unlearning.markdown import (
    NONE,
    points,
    refused,
    seconds,
    share,
    table,
    times,
)
from benchmarks.unlearning.names import counted, name_of
from benchmarks.unlearning.summary import Interval, Seeds, interval, one_minus_ratio

TABLE1 = (
    ORIGINAL,
    RETRAIN,
    AGAIN,
    "naive-ga",
    "fed-eraser",
    "sisa",
    "hf-kcu",
    "hf-kcu one step",
)
TABLE3 = (
    ORIGINAL,
    "natural",
    "puf-special",
    "puf-special one step",
    "hf-kcu",
    "hf-kcu one step",
    "hf-kcu as printed",
    RETRAIN,
    AGAIN,
)


def faithfulness(seeds: Seeds, label: str) -> Interval:
    """Return CF = 1 - |Acc - Acc_retrained| / |Acc_trained - Acc_retrained| on test rows.

    Both gaps are means over seeds: by seed the denominator is often almost zero (HF-KCU,
    A.11). NaN where it is zero or a result is missing.
    """
    pairs = []
    for seed in seeds.seeds:
        one, first, truth = (seeds.at(seed, name) for name in (label, ORIGINAL, RETRAIN))
        if one is not None and one.values and first is not None and truth is not None:
            pairs.append((_apart(one.values, truth.values), _apart(first.values, truth.values)))
    return one_minus_ratio(pairs)


def table1(seeds: Seeds) -> str:
    """Return the main results: accuracy, CF, attack, speed-up, and what forgetting left."""
    head = (
        "method", "test acc.", "CF", "MIA Song", "MIA Δ", "forget acc. Δ", "FLOPs ×", "time ×",
    )  # fmt: skip
    body = []
    for label in _present(seeds, TABLE1):
        if refusal := seeds.refusal(label):
            body.append(refused(name_of(label), refusal, len(head)))
            continue
        own = label == ORIGINAL
        body.append(
            (
                "FedAvg (trained)" if own else counted(seeds, label),
                points(seeds.mean(label, "test")),
                NONE if label in (ORIGINAL, RETRAIN) else _faith(seeds, label),
                points(seeds.mean(label, "song")),
                points(seeds.gap(label, "song")),
                points(seeds.gap(label, "forget")),
                NONE if own else times(seeds.ratio(label, "flops")),
                NONE if own else times(seeds.ratio(label, "seconds")),
            )
        )
    return table(head, body)


def table2(settings: Sequence[tuple[str, Seeds]]) -> str:
    """Return accuracies, CF and speed-up by data set and network."""
    head = (
        "setting", "acc. after", "acc. retrain", "acc. Δ", "seed noise", "CF", "FLOPs ×",
        "time ×", "seeds",
    )  # fmt: skip
    return table(
        head,
        (
            (
                about,
                *_accuracies(seeds),
                _faith(seeds, "hf-kcu"),
                times(seeds.ratio("hf-kcu", "flops")),
                times(seeds.ratio("hf-kcu", "seconds")),
                str(len(seeds.seeds)),
            )
            for about, seeds in settings
            if "hf-kcu" in seeds.labels
        ),
    )


def table3(seeds: Seeds) -> str:
    """Return the backdoor: clean accuracy and its loss, attack success, reduction, time."""
    head = (
        "method", "clean acc.", "clean acc. lost", "ASR", "ASR Δ", "ASR reduction", "time (s)",
        "time ×", "FLOPs ×",
    )  # fmt: skip
    body = []
    for label in _present(seeds, TABLE3):
        success, own = seeds.mean(label, "asr"), label == ORIGINAL
        named = {ORIGINAL: "Poisoned model", RETRAIN: "Oracle retrain"}
        body.append(
            (
                named.get(label) or counted(seeds, label),
                points(seeds.mean(label, "test")),
                NONE if own else points(interval(_lost(seeds, label))),
                points(success),
                points(seeds.gap(label, "asr")),
                NONE if own else f"{points(_reduction(seeds, label))} %",
                NONE if own else seconds(seeds.cost(label, "seconds")),
                NONE if own else times(seeds.ratio(label, "seconds")),
                NONE if own else times(seeds.ratio(label, "flops")),
            )
        )
    return table(head, body)


def sweep(name: str, settings: Sequence[tuple[str, Seeds]]) -> str:
    """Return Tables 6 and 7: accuracies and speed-up along one quantity."""
    head = (
        name, "unlearned acc.", "retrained acc.", "acc. Δ", "seed noise", "forget acc. Δ",
        "seed noise", "of the original", "FLOPs ×", "time ×",
    )  # fmt: skip
    return table(
        head,
        (
            (
                value,
                *_accuracies(seeds),
                *(points(seeds.gap(label, "forget")) for label in ("hf-kcu", AGAIN, ORIGINAL)),
                times(seeds.ratio("hf-kcu", "flops")),
                times(seeds.ratio("hf-kcu", "seconds")),
            )
            for value, seeds in settings
            if "hf-kcu" in seeds.labels
        ),
    )


def table8(settings: Sequence[tuple[str, int, Seeds]]) -> str:
    """Return seconds by size of the model."""
    head = ("model", "parameters", "HF-KCU (s)", "retrain (s)", "time ×", "FLOPs ×")
    return table(
        head,
        (
            (
                about,
                f"{size:,}",
                seconds(seeds.cost("hf-kcu", "seconds")),
                seconds(seeds.cost(RETRAIN, "seconds")),
                times(seeds.ratio("hf-kcu", "seconds")),
                times(seeds.ratio("hf-kcu", "flops")),
            )
            for about, size, seeds in settings
            if "hf-kcu" in seeds.labels
        ),
    )


def _accuracies(seeds: Seeds) -> tuple[str, ...]:
    """Return HF-KCU's test accuracy, the retrained model's, their gap, and its seed noise."""
    return (
        points(seeds.mean("hf-kcu", "test")),
        points(seeds.mean(RETRAIN, "test")),
        points(seeds.gap("hf-kcu", "test")),
        points(seeds.gap(AGAIN, "test")),
    )


def _lost(seeds: Seeds, label: str) -> list[float]:
    """Return the original model's test accuracy minus a method's, by seed."""
    found = []
    for seed in seeds.seeds:
        first, one = seeds.at(seed, ORIGINAL), seeds.at(seed, label)
        if first is not None and one is not None and one.values:
            found.append(first.values["test"] - one.values["test"])
    return found


def _reduction(seeds: Seeds, label: str) -> Interval:
    """Return by how much less often the trigger works than before: 1 - ASR / ASR before."""
    pairs = []
    for seed in seeds.seeds:
        first, one = seeds.at(seed, ORIGINAL), seeds.at(seed, label)
        if first is not None and one is not None and one.values:
            pairs.append((one.values["asr"], first.values["asr"]))
    return one_minus_ratio(pairs)


def _apart(one: Mapping[str, float], truth: Mapping[str, float]) -> float:
    return abs(one["test"] - truth["test"])


def _faith(seeds: Seeds, label: str) -> str:
    return share(faithfulness(seeds, label))


def _present(seeds: Seeds, labels: Sequence[str]) -> list[str]:
    return [label for label in labels if label in seeds.labels]
