"""HF-KCU's Tables 4 and 5: its components and its damping, in cycles and in one step.

In cycles a ceiling on the loss of the forget set ends every step, so that all variants end
alike. In one step only those who stay hold it back, and what a variant forgets until then
tells the directions apart.
"""

from collections.abc import Mapping

from benchmarks.paper_figures import HEAD, figures, footnote
from benchmarks.unlearning.contenders import (
    AGAIN,
    CORRECTED,
    DAMPINGS,
    PRINTED,
    UNSCALED,
    WEIGHTED,
    damped,
)
from benchmarks.unlearning.kcu_tables import CIFAR, RESIDUAL, faithfulness, residual
from benchmarks.unlearning.markdown import plain, points, refused, share, table, times, unrun
from benchmarks.unlearning.names import counted
from benchmarks.unlearning.settings import SETTINGS
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
}
PUBLISHED: Mapping[str, str] = {
    CORRECTED: "corrected, the paper's constants",
    PRINTED: "Algorithm 1 as printed",
    UNSCALED: "as printed, without adaptive scaling",
}
LINE16 = "as printed, causal weights by equation 7 (line 16)"
ROWS: Mapping[str, str] = {
    CORRECTED: "HF-KCU (full)",
    PRINTED: "HF-KCU (full)",
    WEIGHTED: "HF-KCU (full)",
    UNSCALED: "w/o adaptive scaling",
}
UNWEIGHTED = "w/o causal weighting"
ALONE = "one client leaves, whose weight is 1"
SEVERAL = (
    "two clients leave, and the method weights them by rows or by equation 7, as above: it has "
    "no setting without weights"
)
UNRUN: Mapping[str, str] = {
    UNWEIGHTED: ALONE,
    "w/o influence decay": "not in Algorithm 1",
    "uniform influence": "not in Algorithm 1",
}
NOISE = "retrain, another seed"
WEIGHTS = (
    "Causal weights: each of the two leaving clients has one, and they sum to 1. Line 16 of "
    "Algorithm 1 takes them from equation 7, by the norms of the clients' gradients. All rows "
    'but those of "equation 7" weight by rows instead, "Algorithm 1 as printed" too. The '
    "weighted gradient is then the mean over all leaving rows, which is what the corrected "
    "step would have without causal weights. Without weights, Algorithm 1 would apply the "
    "steps of both clients in full; that was not run.\n"
)


def table4(seeds: Seeds, form: str | None = CYCLES) -> str:
    """Return the components one by one; nothing where no variant was measured.

    form: of Lethe's variants, None for the paper's algorithm alone, its rows not run too.
    """
    head = (
        "variant", "test acc.", "parameter gap", "MIA Song", "MIA Δ", "forget acc. Δ",
        "test acc. Δ", "KL, nats", "FLOPs ×", "CG residual", HEAD,
    )  # fmt: skip
    variants = {f"{form}{part}": title for part, title in COMPONENTS.items()} if form else {}
    if form and not (set(variants) - {form}) & set(seeds.labels):
        return ""
    several = _several(seeds)
    weighted = {WEIGHTED: LINE16} if several else {}
    named = {**variants, **PUBLISHED, **weighted, AGAIN: NOISE}
    body = []
    for label, title in named.items():
        paper = figures("HF-KCU 4", CIFAR, ROWS.get(label, ""))
        if label not in seeds.labels:
            if label in {**PUBLISHED, **weighted}:
                body.append(unrun(title, len(head), paper))
            continue
        if refusal := seeds.refusal(label):
            body.append(refused(title, refusal, len(head), paper))
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
                residual(seeds, label),
                paper,
            )
        )
    reasons = {**UNRUN, UNWEIGHTED: SEVERAL} if several else UNRUN
    body += [
        unrun(row, len(head), figures("HF-KCU 4", CIFAR, row), f"not run: {why}")
        for row, why in reasons.items()
    ]
    told = f"{table(head, body)}\n{RESIDUAL}\n{footnote('HF-KCU 4', CIFAR)}"
    return f"{told}\n{WEIGHTS}" if several else told


def _several(seeds: Seeds) -> bool:
    """Return whether several clients leave, each with a causal weight below 1."""
    setting = SETTINGS.get(seeds.setting)
    return setting is not None and setting.request == "two-clients"


def table5(seeds: Seeds, form: str | None = CYCLES) -> str:
    """Return the damping; nothing where none was measured. form: as in `table4`."""
    head = ("λ", "test acc.", "CF", "forget acc. Δ", "FLOPs ×", "time ×", "CG residual", HEAD)
    lethes = {f"{form} damping={value:g}": f"{value:.3f}" for value in DAMPINGS} if form else {}
    if form and not set(lethes) & set(seeds.labels):
        return ""
    papers = {damped(value): f"{value:.3f}" for value in DAMPINGS}
    body = []
    for label, title in (papers | lethes | {AGAIN: NOISE}).items():
        own = label in papers
        paper = figures("HF-KCU 5", CIFAR, title if own else "")
        named = f"{title}, corrected, the paper's constants" if own else title
        if label not in seeds.labels:
            if own:
                body.append(unrun(named, len(head), paper))
            continue
        body.append(
            (
                counted(seeds, label, named),
                points(seeds.mean(label, "test")),
                share(faithfulness(seeds, label)),
                points(seeds.gap(label, "forget")),
                times(seeds.ratio(label, "flops")),
                times(seeds.ratio(label, "seconds")),
                residual(seeds, label),
                paper,
            )
        )
    return f"{table(head, body)}\n{footnote('HF-KCU 5', CIFAR)}"
