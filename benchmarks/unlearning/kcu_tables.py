"""HF-KCU's Tables 1 to 8: the same rows and columns, with the gaps that they leave out.

"Lower is better" is not used for the attack: a model that never saw the rows is attacked with
some success too, and the column is |MIA - MIA of the retrained model|. Speed-ups are of counted
operations first, because seconds of a shared machine wander; Table 8 has seconds.
"""

from collections.abc import Mapping, Sequence
from math import isnan, nan
from statistics import fmean

from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN
from benchmarks.unlearning.markdown import NONE, plain, points, seconds, table, times
from benchmarks.unlearning.puf_tables import counted, name_of
from benchmarks.unlearning.summary import Seeds

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
)
TABLE4: Mapping[str, str] = {
    "hf-kcu": "the benchmark's setting",
    "hf-kcu causal=gradient": "causal weights by gradient norm (equation 7)",
    "hf-kcu scaling=0.01": "with adaptive scaling, β 0.01",
    "hf-kcu asking for the drift": "asking for the drift",
    "hf-kcu newton": "full Newton step",
    "hf-kcu hessian": "Hessian in place of Gauss–Newton",
    "hf-kcu k=10": "10 iterations",
    "hf-kcu all rows": "curvature of all retained rows",
    "hf-kcu no recovery": "without recovery",
    "hf-kcu as printed": "Algorithm 1 as printed",
}
TABLE5 = ("hf-kcu damping=0.1", "hf-kcu damping=0.01", "hf-kcu damping=0.001")
Group = Mapping[str, Seeds]


def faithfulness(seeds: Seeds, label: str) -> float | None:
    """Return CF = 1 - |Acc - Acc_retrained| / |Acc_trained - Acc_retrained| on test rows.

    Both gaps are means over seeds: by seed the denominator is often almost zero (HF-KCU,
    A.11). None where it is zero or a result is missing.
    """
    above = seeds.over(label, lambda one, truth: _apart(one.values, truth.values))
    below = seeds.over(ORIGINAL, lambda one, truth: _apart(one.values, truth.values))
    if not above or not below or fmean(below) == 0:
        return None
    return 1 - fmean(above) / fmean(below)


def table1(seeds: Seeds) -> str:
    """Return the main results: accuracy, CF, attack, speed-up, and what forgetting left."""
    head = ("method", "acc.", "CF", "MIA Song", "MIA Δ", "forget acc. Δ", "FLOPs ×", "time ×")
    body = []
    for label in _present(seeds, TABLE1):
        if refusal := seeds.refusal(label):
            body.append((name_of(label), f"refused: {refusal}", *[""] * (len(head) - 2)))
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
                "" if own else times(seeds.ratio(label, "flops")),
                "" if own else times(seeds.ratio(label, "seconds")),
            )
        )
    return table(head, body)


def table2(settings: Sequence[tuple[str, Seeds]]) -> str:
    """Return accuracies, CF and speed-up by data set and network."""
    head = ("setting", "acc. after", "acc. retrain", "CF", "FLOPs ×", "time ×", "seeds")
    return table(
        head,
        (
            (
                about,
                points(seeds.mean("hf-kcu", "test")),
                points(seeds.mean(RETRAIN, "test")),
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
    """Return the backdoor: clean accuracy, attack success, its reduction, time."""
    head = ("method", "clean acc.", "ASR", "ASR reduction", "time (s)", "FLOPs ×")
    before = seeds.mean(ORIGINAL, "asr").mean
    body = []
    for label in _present(seeds, TABLE3):
        success, own = seeds.mean(label, "asr"), label == ORIGINAL
        less = 100 * (1 - success.mean / before) if before else nan
        body.append(
            (
                {ORIGINAL: "Poisoned model", RETRAIN: "Oracle retrain"}.get(
                    label, counted(seeds, label)
                ),
                points(seeds.mean(label, "test")),
                points(success),
                NONE if own or isnan(less) else f"{less:.1f} %",
                NONE if own else seconds(seeds.cost(label, "seconds")),
                NONE if own else times(seeds.ratio(label, "flops")),
            )
        )
    return table(head, body)


def table4(seeds: Seeds) -> str:
    """Return the components one by one."""
    head = ("variant", "acc.", "parameter gap", "MIA Song", "MIA Δ", "forget acc. Δ", "FLOPs ×")
    body = []
    for label in _present(seeds, tuple(TABLE4)):
        if refusal := seeds.refusal(label):
            body.append((TABLE4[label], f"refused: {refusal}", *[""] * (len(head) - 2)))
            continue
        body.append(
            (
                counted(seeds, label, TABLE4[label]),
                points(seeds.mean(label, "test")),
                plain(seeds.mean(label, "distance")),
                points(seeds.mean(label, "song")),
                points(seeds.gap(label, "song")),
                points(seeds.gap(label, "forget")),
                times(seeds.ratio(label, "flops")),
            )
        )
    return table(head, body)


def table5(seeds: Seeds) -> str:
    """Return the damping."""
    head = ("λ", "acc.", "CF", "forget acc. Δ", "FLOPs ×", "time ×")
    return table(
        head,
        (
            (
                label.partition("=")[2],
                points(seeds.mean(label, "test")),
                _faith(seeds, label),
                points(seeds.gap(label, "forget")),
                times(seeds.ratio(label, "flops")),
                times(seeds.ratio(label, "seconds")),
            )
            for label in _present(seeds, TABLE5)
        ),
    )


def sweep(name: str, settings: Sequence[tuple[str, Seeds]]) -> str:
    """Return Tables 6 and 7: accuracies and speed-up along one quantity."""
    head = (name, "unlearned acc.", "retrained", "forget acc. Δ", "of original", "FLOPs ×")
    return table(
        head,
        (
            (
                about,
                points(seeds.mean("hf-kcu", "test")),
                points(seeds.mean(RETRAIN, "test")),
                points(seeds.gap("hf-kcu", "forget")),
                points(seeds.gap(ORIGINAL, "forget")),
                times(seeds.ratio("hf-kcu", "flops")),
            )
            for about, seeds in settings
            if "hf-kcu" in seeds.labels
        ),
    )


def table8(settings: Sequence[tuple[str, int, Seeds]]) -> str:
    """Return seconds by size of the model."""
    head = ("model", "parameters", "HF-KCU (s)", "retrain (s)", "time ×")
    return table(
        head,
        (
            (
                about,
                f"{size:,}",
                seconds(seeds.cost("hf-kcu", "seconds")),
                seconds(seeds.cost(RETRAIN, "seconds")),
                times(seeds.ratio("hf-kcu", "seconds")),
            )
            for about, size, seeds in settings
            if "hf-kcu" in seeds.labels
        ),
    )


def _apart(one: Mapping[str, float], truth: Mapping[str, float]) -> float:
    return abs(one["test"] - truth["test"])


def _faith(seeds: Seeds, label: str) -> str:
    found = faithfulness(seeds, label)
    return NONE if found is None else f"{found:.2f}"


def _present(seeds: Seeds, labels: Sequence[str]) -> list[str]:
    return [label for label in labels if label in seeds.labels]
