"""Who is measured: every method there is, and the variants that the tables ask for.

Whatever recovers gets about the same budget, so that a table compares the steps. Settings were
chosen on seeds from 100 on, which no table reports; the baselines keep the defaults of their
files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.baselines.registry import ALL
from benchmarks.unlearning.settings import Plan

ORIGINAL, RETRAIN, AGAIN = "original", "retrain", "retrain-again"
OWN_TRAINING = ("exact-fun", "fats", "sisa")  # of a training of their own, not of FedAvg's
MAIN = ("natural", "puf-special", "puf-regular", "hf-kcu")  # PUF and HF-KCU guarded
# As the papers have them: their constants, no guard, and for HF-KCU no recovery.
SPECIAL, REGULAR = "puf-special fixed 2", "puf-regular fixed 20"
CORRECTED, PRINTED = "hf-kcu corrected", "hf-kcu as printed"
UNSCALED = f"{PRINTED} unscaled"  # without line 17 of Algorithm 1, its adaptive scaling
WEIGHTED = f"{PRINTED} causal=gradient"  # with line 16, which `PRINTED` replaces by rows
PRINTED_PUF = tuple(f"{label} as printed" for label in (SPECIAL, REGULAR))
RECOVERING = ("natural", "puf-special", "puf-regular", "hf-kcu", "not", "fed-au", "pga")

IN_TABLES = ("fed-eraser", "pga", "mode", "fed-au", "not", "naive-ga", "sisa")  # the papers'

# HF-KCU's table 1, which has an attack with shadow models, but the original and the retrained.
ATTACKED = (
    AGAIN, "naive-ga", "fed-eraser", "sisa", CORRECTED, PRINTED, "hf-kcu", "hf-kcu one step",
)  # fmt: skip

DAMPINGS = (0.1, 0.01, 0.001)  # HF-KCU, table 5

RECOVERY = {"rounds": 3, "epochs": 1.0}
ONE_STEP: Mapping[str, Mapping[str, Any]] = {
    "puf-special": {
        "unlearning_rate": 16.0,
        "guard": {"rise": 5.0, "shrink": 0.85, "trials": 30},
    },
    "puf-regular": {
        "unlearning_rate": 160.0,
        "guard": {"rise": 5.0, "shrink": 0.85, "trials": 30},
    },
    "hf-kcu": {
        "damping": 0.01,
        "iterations": 3,
        "curvature_rows": 0.1,
        "guard": {"rise": 1.5, "shrink": 0.85, "trials": 30},
        "recovery": {"rounds": 2, "epochs": 1.0},  # its step costs as much as a third round
    },
}  # one step as long as those who stay allow, then recovery
TUNED: Mapping[str, Mapping[str, Any]] = {
    **ONE_STEP,
    "puf-special": {
        "unlearning_rate": 2.0,
        "cycles": 4,
        "guard": {"rise": 8.0, "shrink": 0.7, "trials": 30, "forget": 1.75},
        "recovery": {"rounds": 1, "epochs": 1.0, "settle": 0.3},
    },
    "hf-kcu": {
        "form": "influence",
        "drift": "skip",
        "damping": 0.01,
        "iterations": 3,
        "curvature_rows": 0.05,
        "cycles": 3,
        "guard": {"rise": 8.0, "shrink": 0.7, "trials": 30, "forget": 2.25},
        "recovery": {"rounds": 1, "epochs": 1.0, "settle": 0.3},
    },
}  # several short steps, each as long as the rows that go still answer, each with recovery


@dataclass(frozen=True, slots=True)
class Contender:
    """A line of the tables: a method of the registry with settings, by a label."""

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)


FIRST = (Contender(ORIGINAL, ORIGINAL), Contender(RETRAIN, RETRAIN))  # all else needs them


def contender(method: str, label: str = "", **more: Any) -> Contender:
    """Return a method with the benchmark's settings, `more` on top of them."""
    settings = {**TUNED.get(method, {}), **more}
    if method in RECOVERING and "recovery" not in settings:
        settings["recovery"] = RECOVERY
    return Contender(label or method, method, settings)


def registered() -> tuple[Contender, ...]:
    """Return every method that can do without retraining, the main ones first.

    certified-newton is for logistic heads with weight decay, noisy-finetuning for small heads:
    no setting here has either.
    """
    others = sorted(set(ALL) - {*MAIN, RETRAIN, "certified-newton", "noisy-finetuning"})
    return tuple(contender(method) for method in (*MAIN, *others))


def ablations() -> tuple[Contender, ...]:
    """Return HF-KCU's components one by one, its damping, and PUF's fixed steps."""
    found = [
        contender("hf-kcu", "hf-kcu causal=gradient", causal="gradient"),
        contender("hf-kcu", "hf-kcu scaling=0.01", scaling=0.01),
        contender("hf-kcu", "hf-kcu newton", form="newton", drift="ask"),
        contender("hf-kcu", "hf-kcu asking for the drift", drift="ask"),
        contender("hf-kcu", "hf-kcu hessian", product="hessian"),
        contender("hf-kcu", "hf-kcu k=10", iterations=10),
        contender("hf-kcu", "hf-kcu all rows", curvature_rows=1.0),
        contender("hf-kcu", "hf-kcu no recovery", recovery={"rounds": 0}),
    ]
    found += [
        contender("hf-kcu", f"hf-kcu damping={value:g}", damping=value) for value in DAMPINGS
    ]
    return (*found, _fixed("puf-special", "puf-special fixed 1", 1.0))


def _fixed(method: str, label: str, rate: float) -> Contender:
    """Return PUF without a guard: one step of the given η_u, then recovery."""
    settings = {"guard": None, "unlearning_rate": rate, "recovery": RECOVERY}
    if method == "puf-special":
        settings["cycles"] = 1
    return Contender(label, method, settings)


GIVEN = {"damping": 0.01, "iterations": 10, "guard": None, "recovery": {"rounds": 0}}
AS_PRINTED = {**GIVEN, "variant": "as-printed", "product": "hessian", "scaling": 0.01}


def published() -> tuple[Contender, ...]:
    """Return the papers' algorithms with the papers' constants, without a guard.

    PUF with η_u 2 (Special) and 20 (Regular). HF-KCU with k = 10 and damping 0.01: the
    corrected step, and Algorithm 1 with the values of the paper's section 5.1.
    """
    return (
        _fixed("puf-special", SPECIAL, 2.0),
        _fixed("puf-regular", REGULAR, 20.0),
        _corrected(CORRECTED, GIVEN["damping"]),
        Contender(PRINTED, "hf-kcu", AS_PRINTED),
    )


def printed_puf() -> tuple[Contender, ...]:
    """Return PUF with lines 15 and 16 of its Algorithm 1, which leave |D_i| out, as printed."""
    published_puf = zip(PRINTED_PUF, published(), strict=False)
    return tuple(
        Contender(label, part.method, {**part.settings, "weighting": "as-printed"})
        for label, part in published_puf
    )


def damped(value: float) -> str:
    """Return the label of the corrected step with the paper's constants and this damping."""
    return CORRECTED if value == GIVEN["damping"] else f"{CORRECTED} damping={value:g}"


def published_ablations() -> tuple[Contender, ...]:
    """Return rows of HF-KCU's tables 4 and 5 with the paper's constants, but for one.

    The corrected step with the other dampings, and Algorithm 1 as printed without scaling.
    """
    return (
        *(_corrected(damped(value), value) for value in DAMPINGS if value != GIVEN["damping"]),
        _unscaled(),
    )


def printed_ablations() -> tuple[Contender, ...]:
    """Return Algorithm 1 as printed without scaling, and with line 16's causal weights.

    Line 16 is equation 7, which differs from weights by rows where several clients go.
    """
    return _unscaled(), Contender(WEIGHTED, "hf-kcu", {**AS_PRINTED, "causal": "gradient"})


def _unscaled() -> Contender:
    return Contender(UNSCALED, "hf-kcu", {**AS_PRINTED, "scaling": None})


def _corrected(label: str, damping: Any) -> Contender:
    settings = {**GIVEN, "damping": damping, "form": "influence", "drift": "skip"}
    return Contender(label, "hf-kcu", settings)


def one_step() -> tuple[Contender, ...]:
    """Return PUF-Special and HF-KCU in one guarded step, then recovery."""
    return tuple(_one_step(method) for method in ("puf-special", "hf-kcu"))


def one_step_ablations() -> tuple[Contender, ...]:
    """Return HF-KCU's components and damping where no ceiling on the forget set ends a step.

    Of causal weights there is nothing to tell with one client who goes: `causal`.
    """
    changes: list[tuple[str, dict[str, Any]]] = [
        ("scaling=0.01", {"scaling": 0.01}),
        ("newton", {"form": "newton"}),
        ("hessian", {"product": "hessian"}),
        ("k=10", {"iterations": 10}),
        ("all rows", {"curvature_rows": 1.0}),
        ("no recovery", {"recovery": {"rounds": 0}}),
        *((f"damping={value:g}", {"damping": value}) for value in DAMPINGS),
    ]
    return tuple(_one_step("hf-kcu", name, change) for name, change in changes)


def ablated(label: str) -> bool:
    """Return whether a label is a variant that only the tables of components are about."""
    variants = (
        *ablations(),
        *one_step_ablations(),
        *published_ablations(),
        *printed_ablations(),
        *causal(),
    )
    return label in {part.label for part in variants}


def causal() -> tuple[Contender, ...]:
    """Return equation 7's causal weights, which differ from rows where several clients go."""
    return (
        contender("hf-kcu", "hf-kcu causal=gradient", causal="gradient"),
        _one_step("hf-kcu", "causal=gradient", {"causal": "gradient"}),
    )


def _one_step(
    method: str, name: str = "", change: Mapping[str, Any] | None = None
) -> Contender:
    settings = {"recovery": RECOVERY, **ONE_STEP[method], **(change or {})}
    return Contender(f"{method} one step {name}".rstrip(), method, settings)


def shadowed(plan: Plan) -> tuple[Contender, ...]:
    """Return the rows of HF-KCU's tables 1 and 9 that a plan has, but the first two."""
    return tuple(part for part in planned(plan) if part.label in ATTACKED)


def planned(plan: Plan) -> tuple[Contender, ...]:
    """Return the contenders of a setting's plan, in the order in which they are measured."""
    again = Contender(AGAIN, RETRAIN)
    main = (*(contender(method) for method in MAIN), *published())
    others = registered()[len(MAIN) :]
    parts = (*one_step_ablations(), *published_ablations())
    if plan == "everything":
        return (*main, again, *one_step(), *others, *ablations(), *parts, *printed_puf())
    if plan == "components":
        return (*main, again, *one_step(), *others, *parts)
    if plan == "all":
        return (*main, again, *one_step(), *others)
    if plan in ("puf", "pair"):
        several = (*causal(), *printed_ablations()) if plan == "pair" else ()
        return (*main, again, *one_step(), contender("fed-au"), contender("not"), *several)
    if plan == "masks":
        pufs = tuple(part for part in main if part.method != "hf-kcu")
        return (*pufs, again, contender("pga"), contender("not"))
    if plan == "backdoor":
        return (*main, again, *one_step())
    if plan == "scale":
        return (*main, again)
    own = published_ablations() if plan == "published" else ()
    return (*main, again, *one_step(), *(contender(method) for method in IN_TABLES), *own)
