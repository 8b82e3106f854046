"""HF-KCU's Tables 1 to 9: the same rows and columns, with the gaps that they leave out.

"Lower is better" is not used for the attack: a model that never saw the rows is attacked with
some success too, and the column is |MIA - MIA of the retrained model|. Speed-ups are of counted
operations first, because seconds of a shared machine wander, and of seconds as in the paper.
Seed noise is the same gap between two retrainings that differ in their seed alone. The paper's
figures for HF-KCU stand beside its algorithm, corrected and as printed, not beside the guarded
cycles, which it does not have.
"""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.paper_figures import HEAD, figures, footnote
from benchmarks.unlearning.contenders import (
    AGAIN,
    CORRECTED,
    ORIGINAL,
    PRINTED,
    RETRAIN,
    SPECIAL,
)
from benchmarks.unlearning.markdown import (
    NONE,
    between,
    plain,
    points,
    refused,
    seconds,
    share,
    table,
    times,
    unrun,
)
from benchmarks.unlearning.names import counted, name_of
from benchmarks.unlearning.records import Record
from benchmarks.unlearning.settings import SHADOWS
from benchmarks.unlearning.summary import Interval, Seeds, interval, one_minus_ratio

TABLE1 = (
    ORIGINAL, RETRAIN, AGAIN, "naive-ga", "fed-eraser", "sisa", CORRECTED, PRINTED, "hf-kcu",
    "hf-kcu one step",
)  # fmt: skip
TABLE3 = (
    ORIGINAL, "natural", SPECIAL, "puf-special", "puf-special one step", CORRECTED, PRINTED,
    "hf-kcu", "hf-kcu one step", RETRAIN, AGAIN,
)  # fmt: skip
HF_KCU = (CORRECTED, PRINTED, "hf-kcu")  # the rows of Tables 2 and 6 to 9
MIA = ("MIA Shokri, shadow", "MIA Shokri, shadow Δ", "its AUC")
COLUMNS1 = (
    "method", "test acc.", "CF", "MIA Song", "MIA Δ", *MIA, "forget acc. Δ", "FLOPs ×",
    "time ×", "CG residual", HEAD,
)  # fmt: skip
COLUMNS2 = (
    "setting", "method", "acc. after", "acc. retrain", "acc. Δ", "seed noise", "CF", "FLOPs ×",
    "time ×", "CG residual", "seeds", HEAD,
)  # fmt: skip
COLUMNS3 = (
    "method", "clean acc.", "clean acc. lost", "ASR", "ASR Δ", "ASR reduction", "time (s)",
    "time ×", "FLOPs ×", "CG residual", HEAD,
)  # fmt: skip
COLUMNS8 = (
    "model", "parameters", "setting", "method", "HF-KCU (s)", "retrain (s)", "measured on",
    "time ×", "FLOPs ×", "CG residual", HEAD,
)  # fmt: skip
COLUMNS9 = (
    "setting", "method", "KL, nats", "logit MSE", "test acc. Δ", "MIA Song", "MIA Δ", *MIA,
    "CG residual", HEAD,
)  # fmt: skip
SHADOW = (
    "MIA Shokri, shadow: the share of forget rows, and of test rows of the same classes, that "
    f"an attacker trained on {SHADOWS} shadow models classifies correctly. Both sides have the "
    "same weight; 50 is chance. The attacked models were trained again, and Δ is to the "
    "retrained one among them. [Above](#rows-that-were-not-run): what missing rows take.\n"
)
WHOLE = "CIFAR-10, 10 clients"
CIFAR = "CIFAR-10"
RESIDUAL = (
    "CG residual: ‖g - Ax‖ / ‖g‖ after the solver's last iteration, the range over seeds and "
    "cycles; 1 without a step.\n"
)
ELSEWHERE = (
    "Times (s) are of [this page's machines](#where-it-was-measured), the paper's of NVIDIA "
    "GPUs that it does not name.\n"
)
MACHINES = (
    "Seconds are not comparable with the paper's, which are of NVIDIA GPUs and of data that it "
    'does not name. "Measured on" has the machine of the method and, where it differs, that of '
    "the retraining. Lines of a GPU are of twelve processes on one card; those not recorded "
    "are older than the record of machines. Time × is given only within one machine.\n"
)

Cells = Callable[[Seeds, str], tuple[str, ...]]


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


def residual(seeds: Seeds, label: str) -> str:
    """Return between which residuals the solver ended; – for what has no solver."""
    return between(seeds.residuals(label))


def table1(seeds: Seeds, attacked: Seeds) -> str:
    """Return the main results: accuracy, CF, attacks, speed-up, and what forgetting left.

    attacked: the lines of the attack with shadow models.
    """
    known = {ORIGINAL: "FedAvg (trained)"}
    setting = WHOLE if seeds.setting.startswith("cifar") else None

    def cells(seeds: Seeds, label: str) -> tuple[str, ...]:
        return _main_results(seeds, attacked, label)

    found = _beside(seeds, ("HF-KCU 1", setting), TABLE1, COLUMNS1, cells, known)
    return f"{found}\n{SHADOW}"


def table2(settings: Sequence[tuple[str, str, Seeds]]) -> str:
    """Return accuracies, CF and speed-up by data set and network.

    settings: title, the paper's row or nothing, results.
    """
    body = []
    for title, row, seeds in settings:
        for label in HF_KCU:
            paper = _of_paper("HF-KCU 2", "10 clients", row, label)
            cells = (
                *_accuracies(seeds, label),
                _faith(seeds, label),
                *_speed(seeds, label),
                residual(seeds, label),
                str(len(seeds.seeds)),
            )
            body.append(_row(seeds, label, (title, name_of(label)), cells, paper))
    missing = figures("HF-KCU 2", "10 clients", "FMNIST")
    body.append(("FMNIST", *unrun(name_of(CORRECTED), len(COLUMNS2) - 1, missing)))
    return f"{table(COLUMNS2, body)}\n{footnote('HF-KCU 2', '10 clients')}"


def table3(seeds: Seeds) -> str:
    """Return the backdoor: clean accuracy and its loss, attack success, reduction, time."""
    known = {ORIGINAL: "Poisoned model", RETRAIN: "Oracle retrain"}
    found = _beside(seeds, ("HF-KCU 3", CIFAR), TABLE3, COLUMNS3, _backdoor, known)
    return f"{found}\n{ELSEWHERE}"


def sweep(name: str, number: str, settings: Sequence[tuple[str, str, Seeds]]) -> str:
    """Return Tables 6 and 7: accuracies and speed-up along one quantity.

    settings: title, the paper's row, results. number is "HF-KCU 6" or "HF-KCU 7".
    """
    head = (
        name, "method", "unlearned acc.", "retrained acc.", "acc. Δ", "seed noise",
        "forget acc. Δ", "seed noise", "of the original", "FLOPs ×", "time ×", "CG residual",
        HEAD,
    )  # fmt: skip
    body = []
    for title, row, seeds in settings:
        for label in HF_KCU:
            cells = (
                *_accuracies(seeds, label),
                *(points(seeds.gap(part, "forget")) for part in (label, AGAIN, ORIGINAL)),
                *_speed(seeds, label),
                residual(seeds, label),
            )
            paper = _of_paper(number, CIFAR, row, label)
            body.append(_row(seeds, label, (title, name_of(label)), cells, paper))
    return f"{table(head, body)}\n{footnote(number, CIFAR)}"


def table8(settings: Sequence[tuple[str, int, Seeds]]) -> str:
    """Return seconds by size of the model."""
    body = []
    for title, size, seeds in settings:
        for label in HF_KCU:
            flops, took = _speed(seeds, label)
            cells = (
                seconds(seeds.cost(label, "seconds")),
                seconds(seeds.cost(RETRAIN, "seconds")),
                _devices(seeds, (label, RETRAIN)),
                took,
                flops,
                residual(seeds, label),
            )
            paper = _of_paper("HF-KCU 8", "k = 10", title, label)
            names = (title, f"{size:,}", f"`{seeds.setting}`", name_of(label))
            body.append(_row(seeds, label, names, cells, paper))
    return f"{table(COLUMNS8, body)}\n{MACHINES}\n{footnote('HF-KCU 8', 'k = 10')}"


def _devices(seeds: Seeds, labels: Sequence[str]) -> str:
    """Return where a method and the retraining were measured, once if in the same place."""
    found = {
        " and ".join(
            sorted({_device(one) for seed in seeds.seeds if (one := seeds.at(seed, label))})
        )
        or NONE: None
        for label in labels
    }
    return "; ".join(found)


def _device(record: Record) -> str:
    """Return the kind of machine of a record; lines from before name none."""
    device = record.machine.get("device")
    if device is None:
        return "not recorded"
    return "one thread of a CPU" if device == "cpu" else device


def table9(settings: Sequence[tuple[Seeds, Seeds]]) -> str:
    """Return how far the outputs on test rows are from the retrained model's.

    settings: results, and the lines of the attack with shadow models.
    """
    body = []
    for seeds, attacked in settings:
        for label in (*HF_KCU, AGAIN):
            cells = (
                plain(seeds.mean(label, "kl")),
                plain(seeds.mean(label, "logit_mse")),
                points(seeds.gap(label, "test")),
                points(seeds.mean(label, "song")),
                points(seeds.gap(label, "song")),
                *_shadow(seeds, attacked, label),
                residual(seeds, label),
            )
            cifar = seeds.setting.startswith("cifar")
            paper = _of_paper("HF-KCU 9", CIFAR, "HF-KCU" if cifar else "", label)
            body.append(_row(seeds, label, (seeds.setting, name_of(label)), cells, paper))
    return f"{table(COLUMNS9, body)}\n{footnote('HF-KCU 9', CIFAR)}\n{SHADOW}"


def _beside(
    seeds: Seeds,
    source: tuple[str, str | None],
    labels: Sequence[str],
    head: Sequence[str],
    cells: Cells,
    known: Mapping[str, str],
) -> str:
    """Return a table with the paper's row at the end of each; known: its names of some."""
    body = []
    for label in labels:
        name = known.get(label, name_of(label))
        paper = figures(*source, "HF-KCU" if label in (CORRECTED, PRINTED) else name)
        if label not in seeds.labels:
            body.append(unrun(name, len(head), paper))
        elif refusal := seeds.refusal(label):
            body.append(refused(name, refusal, len(head), paper))
        else:
            title = known.get(label) or counted(seeds, label)
            body.append((title, *cells(seeds, label), paper))
    return f"{table(head, body)}\n{RESIDUAL}\n{footnote(*source)}"


def _main_results(seeds: Seeds, attacked: Seeds, label: str) -> tuple[str, ...]:
    own = label == ORIGINAL
    return (
        points(seeds.mean(label, "test")),
        NONE if label in (ORIGINAL, RETRAIN) else _faith(seeds, label),
        points(seeds.mean(label, "song")),
        points(seeds.gap(label, "song")),
        *_shadow(seeds, attacked, label),
        points(seeds.gap(label, "forget")),
        *((NONE, NONE) if own else _speed(seeds, label)),
        residual(seeds, label),
    )


def _shadow(seeds: Seeds, attacked: Seeds, label: str) -> tuple[str, ...]:
    """Return the success of the attack with shadow models, its gap and its AUC."""
    if label not in attacked.labels:
        return "not run", "", ""
    if attacked.refusal(label):
        return "refused", "", ""
    found, whole = attacked.mean(label, "shadow"), len(seeds.seeds)
    few = f" ({found.seeds} of {whole} seeds)" if found.seeds < whole else ""
    return (
        f"{points(found)}{few}",
        points(attacked.gap(label, "shadow")),
        share(attacked.mean(label, "shadow_auc")),
    )


def _backdoor(seeds: Seeds, label: str) -> tuple[str, ...]:
    own = label == ORIGINAL
    flops, took = _speed(seeds, label)
    return (
        points(seeds.mean(label, "test")),
        NONE if own else points(interval(_lost(seeds, label))),
        points(seeds.mean(label, "asr")),
        points(seeds.gap(label, "asr")),
        NONE if own else f"{points(_reduction(seeds, label))} %",
        NONE if own else seconds(seeds.cost(label, "seconds")),
        NONE if own else took,
        NONE if own else flops,
        residual(seeds, label),
    )


def _row(
    seeds: Seeds, label: str, names: tuple[str, ...], cells: tuple[str, ...], paper: str
) -> tuple[str, ...]:
    """Return a row, or that it was not run or refused, with the paper's figures behind it."""
    if label not in seeds.labels:
        return (*names, "not run", *[""] * (len(cells) - 1), paper)
    if refusal := seeds.refusal(label):
        return (*names, f"refused: {refusal}", *[""] * (len(cells) - 1), paper)
    return (*names, *cells, paper)


def _of_paper(number: str, setting: str, row: str, label: str) -> str:
    """Return the paper's row beside its algorithm (corrected, as printed), – beside others."""
    return figures(number, setting, row if label in (CORRECTED, PRINTED) else "")


def _accuracies(seeds: Seeds, label: str) -> tuple[str, ...]:
    """Return a test accuracy, the retrained model's, their gap, and its seed noise."""
    return (
        points(seeds.mean(label, "test")),
        points(seeds.mean(RETRAIN, "test")),
        points(seeds.gap(label, "test")),
        points(seeds.gap(AGAIN, "test")),
    )


def _speed(seeds: Seeds, label: str) -> tuple[str, str]:
    """Return how many times less than retraining it took, in operations and in seconds."""
    return times(seeds.ratio(label, "flops")), times(seeds.ratio(label, "seconds"))


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
