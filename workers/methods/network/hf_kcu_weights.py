"""How much each affected client counts in what is removed: HF-KCU, equation 7 and Prop. 6."""

from collections.abc import Mapping
from typing import Literal

from workers.errors import RefusedError

Causal = Literal["rows", "gradient"]


def causal_weights(
    kind: Causal, rows: Mapping[str, int], norms: Mapping[str, float]
) -> dict[str, float]:
    """Return α of each affected client, Σ α = 1. A client without forgotten rows has none.

    rows are the rows that each affected client gives up, norms ‖∇ℓ_i(θ; D_u)‖.
    "gradient" is equation 7, α_i ∝ norms. "rows", α_i ∝ rows, makes Σ α_i ∇ℓ_i the mean
    gradient of all forgotten rows, the only choice under which the step is the Newton step
    to the retained optimum; equation 7 turns it from there as soon as two clients differ.
    With one client both are 1. Where all gradients are zero there is nothing to divide by,
    nor to remove: both are "rows".
    Raises RefusedError if no client is affected or the clients of both mappings differ.
    """
    if not rows or rows.keys() != norms.keys() or min(rows.values()) < 1:
        raise RefusedError("causal weights need the rows and the gradient of each affected one")
    share: Mapping[str, float] = rows
    if kind == "gradient" and sum(norms.values()) > 0:
        share = norms
    total = sum(share[client] for client in sorted(share))
    return {client: share[client] / total for client in sorted(share)}
