"""Scores of the registered canary: one client's, and the claim of all clients."""

from collections.abc import Sequence

import numpy as np

from workers.arrays import Matrix
from workers.judge.samples.canary import CanaryClaim
from workers.silos.canary_scores import ClientCanary
from workers.silos.scores import ClientScores
from workers.training.fedavg.base import ClientData
from workers.training.replay.canary import Canary
from workers.training.replay.models import Scorer


def client_canary(
    canary: Canary,
    pool: ClientData | None,
    targets: ClientData | None,
    retained: ClientData | None,
    models: tuple[Scorer, Scorer],
    classes: int,
) -> ClientCanary:
    """Return one client's scores of the canary: logits of its stamped pool, planted rows.

    pool: its held-out rows, stored ones first; targets, retained: its training rows.
    """
    logits: list[Matrix] = [np.zeros((0, classes))] * len(models)
    if pool is not None:
        stamped = canary.stamped(pool)
        logits = [model(stamped) for model in models]
    planted = [0 if rows is None else canary.planted(rows) for rows in (targets, retained)]
    return ClientCanary(logits[0], logits[1], *planted)


def canary_claim(
    canary: Canary | None, clients: Sequence[ClientScores], classes: int
) -> CanaryClaim | None:
    """Return the claim of all clients, in the order of a claim's pool: unseen rows, then held.

    Rows of the target's own class are left out. None without a canary.
    """
    if canary is None:
        return None
    stamped = [(one, one.canary) for one in clients if one.canary is not None]
    parts: dict[str, list[Matrix]] = {
        side: [np.zeros((0, classes))] for side in ("before", "after")
    }
    for group in ("unseen", "held"):
        for scores, own in stamped:
            held = len(scores.held)
            place = slice(0, held) if group == "held" else slice(held, None)
            other = scores.labels[scores.rows_of(group)] != canary.target
            for side, found in parts.items():
                found.append(getattr(own, side)[place][other])
    return CanaryClaim(
        canary.target,
        np.concatenate(parts["before"]),
        np.concatenate(parts["after"]),
        leaving=sum(own.leaving for _, own in stamped),
        staying=sum(own.staying for _, own in stamped),
    )
