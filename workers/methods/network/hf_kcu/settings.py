"""The settings of HF-KCU, checked once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

from workers.errors import RefusedError
from workers.methods.network.cycles import Cycles
from workers.methods.network.guard import StepGuard
from workers.methods.network.hf_kcu.products import Curvature
from workers.methods.network.recovery import Recovery

Causal = Literal["rows", "gradient"]


@dataclass(frozen=True, slots=True)
class Settings:
    """HF-KCU with its settings.

    The defaults of form, damping, step and guard came nearest to retraining on digits: over
    five seeds of 20 rounds they closed 0.76 of the gap in forget accuracy at 0.4 points of
    test accuracy; after 30 rounds they forgot 18 points too much. A smaller rise forgets
    less. product: gauss-newton is positive semidefinite for every network; hessian is the
    paper's and indefinite for most. damping λ is added to it; iterations and tolerance end
    the solver. preconditioner "diagonal" spends `probes` products on an estimate of the
    diagonal. curvature_clients: the number of retained clients, drawn by seed, whose products
    form the matrix (0: all); all are asked for the gradient. curvature_rows: the share of
    each client's rows in a product, the same rows in every product; gradients use all. form
    "auto" is "influence" if the drift, ‖Σ all gradients‖ / ‖Σ gradients to forget‖, is at
    most newton_above (None: any drift), and "newton" otherwise or if a target does not
    answer. 0.1 insists on a converged model. A network that memorised the rows to forget has
    next to no gradient on them, and a drift of 3 to 17 on digits; newton only trained it
    further and forgot nothing, influence did forget. causal: see causal_weights. scaling β
    caps the step at β‖θ‖; None is off, because the paper's 0.01 leaves almost nothing of a
    step. step is η, the multiple of Δ that is taken, or that a guard starts at; None: see
    `HfKcu.asked`. indefinite: what to do where negative curvature ends the solver after its
    first iteration: "truncate" steps to the point before it, flagged, "refuse" does not step.
    least_share of the retained rows must answer. epsilon and rho are the poison that the
    bound assumes. cycles: the number of steps, each with its recovery; one in the paper.
    drift "skip", only with the form "influence", does not measure the drift, which takes a
    gradient of every retained client and costs as much as an epoch of recovery. Raises
    RefusedError for a value out of range.
    """

    variant: Literal["corrected", "as-printed"] = "corrected"
    form: Literal["auto", "influence", "newton"] = "auto"
    newton_above: float | None = None
    drift: Literal["ask", "skip"] = "ask"
    product: Curvature = "gauss-newton"
    damping: float = 0.01
    iterations: int = 10
    tolerance: float = 1e-3
    preconditioner: Literal["none", "diagonal"] = "none"
    probes: int = 4
    curvature_clients: int = 0
    curvature_rows: float = 1.0
    causal: Causal = "rows"
    scaling: float | None = None
    step: float | None = None
    indefinite: Literal["truncate", "refuse"] = "truncate"
    least_share: float = 0.5
    max_norm: float = 0.0
    epsilon: float = 0.0
    rho: float = 0.0
    guard: StepGuard | None = field(default_factory=lambda: StepGuard(rise=0.3))
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))
    cycles: int = 1

    def __post_init__(self) -> None:
        Cycles(self.cycles, self.guard, self.recovery)
        _one_of("variant", self.variant, ("corrected", "as-printed"))
        _one_of("form", self.form, ("auto", "influence", "newton"))
        _one_of("drift", self.drift, ("ask", "skip"))
        if self.drift == "skip" and self.form != "influence":
            raise RefusedError("drift: skip is only for the form influence: use ask")
        _one_of("product", self.product, ("gauss-newton", "hessian"))
        _one_of("preconditioner", self.preconditioner, ("none", "diagonal"))
        _one_of("causal", self.causal, ("rows", "gradient"))
        _one_of("indefinite", self.indefinite, ("truncate", "refuse"))
        if self.newton_above is not None and not 0 <= self.newton_above < inf:
            raise RefusedError("newton_above: must be a number, 0 or more, or none for any")
        for name in ("damping", "max_norm", "epsilon", "rho"):
            if not 0 <= getattr(self, name) < inf:
                raise RefusedError(f"{name}: must be a number, 0 or more")
        if not 0 <= self.tolerance < 1 or not 0 <= self.least_share <= 1:
            raise RefusedError(
                "tolerance: must be at least 0 and below 1; least_share: must lie "
                "between 0 and 1"
            )
        for name in ("iterations", "probes"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 10_000:
                raise RefusedError(f"{name}: must be an integer from 1 to 10000")
        if type(self.curvature_clients) is not int or self.curvature_clients < 0:
            raise RefusedError("curvature_clients: must be an integer, 0 for all")
        if not 0 < self.curvature_rows <= 1:
            raise RefusedError("curvature_rows: must be a share, above 0 and at most 1")
        object.__setattr__(self, "curvature_rows", float(self.curvature_rows))
        if self.scaling is not None and not 0 < self.scaling < inf:
            raise RefusedError("scaling: must be positive, or none for no cap")
        if self.step is not None and not (isfinite(self.step) and self.step > 0):
            raise RefusedError("step: must be a positive number, 1 is the whole step")

    def without_targets(self) -> str:
        """Return a refusal's remedy for a target client that does not answer.

        Names every setting that asks the targets: if one remained, the next attempt would be
        refused too. The form auto is not named, because it falls back by itself.
        """
        changes = []
        if self.variant == "as-printed":
            changes.append("the variant corrected")
        if self.form == "influence":
            skips = self.drift == "skip"
            changes.append("the form newton" + (" with the drift asked" if skips else ""))
        if self.guard is not None and self.guard.forget is not None:
            changes.append("a guard without `forget`")
        return f"use {' and '.join(changes)}, or retrain" if changes else "use retrain"


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise RefusedError(f"{name}: choose one of {', '.join(known)}")


def causal_weights(
    kind: Causal, rows: Mapping[str, int], norms: Mapping[str, float]
) -> dict[str, float]:
    """Return α of each affected client, Σ α = 1. A client without forgotten rows has none.

    rows: the number each affected client forgets; norms: ‖∇ℓ_i(θ; D_u)‖. "gradient" is
    equation 7, α_i ∝ norms. "rows", α_i ∝ rows, makes Σ α_i ∇ℓ_i the mean gradient of all
    forgotten rows, the only choice under which the step is the Newton step to the retained
    optimum; equation 7 deviates from it as soon as two clients differ. With one client both
    are 1. If all gradients are zero, both are "rows": there is nothing to divide by or to
    remove. Raises RefusedError if no client is affected or the clients of both mappings
    differ.
    """
    if not rows or rows.keys() != norms.keys() or min(rows.values()) < 1:
        raise RefusedError("causal weights need the rows and the gradient of each affected one")
    share: Mapping[str, float] = rows
    if kind == "gradient" and sum(norms.values()) > 0:
        share = norms
    total = sum(share[client] for client in sorted(share))
    return {client: share[client] / total for client in sorted(share)}
