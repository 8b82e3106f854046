"""HF-KCU's Tables 4 and 5: its components and its damping, in cycles and in one step.

In cycles a ceiling on the loss of the forget set ends every step, so that all variants end
alike. In one step only those who stay hold it back, and what a variant forgets until then
tells the directions apart.
"""

from collections.abc import Mapping

from benchmarks.unlearning.contenders import AGAIN, DAMPINGS
from benchmarks.unlearning.kcu_tables import faithfulness
from benchmarks.unlearning.markdown import plain, points, refused, share, table, times
from benchmarks.unlearning.names import counted
from benchmarks.unlearning.summary import Seeds

CYCLES, ONE_STEP = "hf-kcu", "hf-kcu one step"
# What is changed, as the label has it behind the form's, and what the papers call it.
COMPONENTS: Mapping[str, str] = {
    "": "the benchmark's setting",
    " causal=gradient": "causal weights by gradient norm (equation 7)",
    " scaling=0.01": "with adaptive scaling, β 0.01",
    " asking for the drift": "asking for the drift",
    " newton": "full Newton step",
    " hessian": "Hessian in place of Gauss–Newton",
    " k=10": "10 iterations",
    " all rows": "curvature of all retained rows",
    " no recovery": "without recovery",
    " as printed": "Algorithm 1 as printed",
}
NOISE = "retrain, another seed"


def table4(seeds: Seeds, form: str = CYCLES) -> str:
    """Return the components one by one; nothing where no variant was measured."""
    head = (
        "variant", "test acc.", "parameter gap", "MIA Song", "MIA Δ", "forget acc. Δ",
        "test acc. Δ", "KL, nats", "FLOPs ×",
    )  # fmt: skip
    named = {f"{form}{part}": title for part, title in COMPONENTS.items()} | {AGAIN: NOISE}
    if not (set(named) - {form, AGAIN, "hf-kcu as printed"}) & set(seeds.labels):
        return ""
    body = []
    for label, title in named.items():
        if label not in seeds.labels:
            continue
        if refusal := seeds.refusal(label):
            body.append(refused(title, refusal, len(head)))
            continue
        body.append(
            (
                counted(seeds, label, title),
                points(seeds.mean(label, "test")),
                plain(seeds.mean(label, "distance")),
                points(seeds.mean(label, "song")),
                *(points(seeds.gap(label, part)) for part in ("song", "forget", "test")),
                plain(seeds.mean(label, "kl")),
                times(seeds.ratio(label, "flops")),
            )
        )
    return table(head, body)


def table5(seeds: Seeds, form: str = CYCLES) -> str:
    """Return the damping; nothing where none was measured."""
    head = ("λ", "test acc.", "CF", "forget acc. Δ", "FLOPs ×", "time ×")
    named = {f"{form} damping={value:g}": f"{value:.3f}" for value in DAMPINGS}
    if not set(named) & set(seeds.labels):
        return ""
    body = []
    for label, title in (named | {AGAIN: NOISE}).items():
        if label not in seeds.labels:
            continue
        body.append(
            (
                counted(seeds, label, title),
                points(seeds.mean(label, "test")),
                share(faithfulness(seeds, label)),
                points(seeds.gap(label, "forget")),
                times(seeds.ratio(label, "flops")),
                times(seeds.ratio(label, "seconds")),
            )
        )
    return table(head, body)
