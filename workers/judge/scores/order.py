"""Scores without owners: salted digests of rows in a canonical order, clients as numbers.

A version of a network commits to all of its rows by one digest over the sorted digests of each
(`rows-before`, `rows-after`). The full lists open that digest without revealing a row, and
show which of the committed rows was scored where.

The order in which rows are stored reveals who came before whom, and the order of clients' names
which client is which. So rows are ordered by a hash of their own score, and clients are
numbered by a hash of all of theirs. Both are functions of what is kept anyway, so nobody can
choose between two orders, and thereby two verdicts, of one judgement.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels, Matrix
from workers.errors import ArtifactError
from workers.judge.samples.empirical_claim import EmpiricalClaim, ReferenceModels
from workers.judge.scores.canary import reordered


@dataclass(frozen=True, slots=True)
class CommittedRows:
    """Digests of 32 bytes. stored: of all retained rows; gone: of the erased ones.

    forget, pool, retained: of the rows that a claim has scores of, in the claim's order; empty
    if nothing could be scored.
    """

    stored: Sequence[bytes]
    gone: Sequence[bytes]
    forget: Sequence[bytes]
    pool: Sequence[bytes]
    retained: Sequence[bytes]

    @property
    def before(self) -> str:
        """The hex SHA-256 that the version before the erasure commits to."""
        return _digest([*self.stored, *self.gone])

    @property
    def after(self) -> str:
        """The hex SHA-256 that the published version commits to."""
        return _digest(self.stored)


def problem_with(claim: EmpiricalClaim, rows: CommittedRows) -> str | None:
    """Return what separates a claim's scores from the committed rows, None if nothing does.

    Each score must be of one distinct committed row: forget rows among the erased ones,
    retained rows among the retained ones, and no row both trained on and unseen.
    """
    stored, gone = set(rows.stored), set(rows.gone)
    scored = [*rows.forget, *rows.pool, *rows.retained]
    sizes = len(claim.forget_labels), len(claim.pool_labels), len(claim.retained_labels)
    if (len(rows.forget), len(rows.pool), len(rows.retained)) != sizes:
        return "there must be one row for each score"
    if len(stored) + len(gone) != len(rows.stored) + len(rows.gone) or stored & gone:
        return "a row is committed to twice"
    if len(set(scored)) != len(scored):
        return "a row is scored twice"
    if not set(rows.forget) <= gone:
        return "a forget row is none of those that went"
    if not set(rows.retained) <= stored:
        return "a retained row is none of those that are left"
    if not set(rows.pool) <= stored | gone:
        return "an unseen row is none that was committed to"
    return None


def _digest(rows: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()


SIDES = ("forget", "pool", "retained")
Strata = NDArray[np.int64]


def nameless(
    claim: EmpiricalClaim, rows: CommittedRows
) -> tuple[EmpiricalClaim, CommittedRows]:
    """Return the claim with its rows in canonical order and numbers (n,) int64 for clients.

    Idempotent. Raises ArtifactError for arrays that do not fit each other.
    """
    keys = {side: _keys(claim, rows, side) for side in SIDES}
    numbers = _numbered(claim, keys)
    changes: dict[str, Any] = {"canary": claim.canary}
    tied: dict[str, list[bytes]] = {}
    orders: dict[str, Strata] = {}
    for side in SIDES:
        own = numbers.get(side)
        fits = own is not None and len(own) == len(keys[side])
        # Equal keys are equal scores: then the client numbers decide the order.
        second = own.tolist() if own is not None and fits else [0] * len(keys[side])
        order = sorted(
            range(len(second)), key=list(zip(keys[side], second, strict=True)).__getitem__
        )
        places = orders[side] = np.array(order, dtype=np.int64)
        for part in ("labels", "before", "after"):
            changes[f"{side}_{part}"] = getattr(claim, f"{side}_{part}")[places]
        if own is not None:
            changes[f"{side}_clients"] = own[places] if fits else own
        if side == "pool" and claim.canary is not None:
            changes["canary"] = reordered(claim.canary, claim.pool_labels, places)
        digests = getattr(rows, side)
        tied[side] = [digests[place] for place in order] if digests else []
    changes |= _trained(
        claim, np.append(orders["forget"], orders["pool"] + len(orders["forget"]))
    )
    changes |= _trained_on_retained(claim, orders["retained"])
    return replace(claim, **changes), replace(rows, **tied)


def _trained(claim: EmpiricalClaim, places: Strata) -> dict[str, Any]:
    """Return the outputs of the judge's own models, with rows in the order `places`."""
    found: dict[str, Any] = {}
    given = [] if claim.retrained is None else [claim.retrained.shape[:1]]
    if claim.references is not None:
        given += [claim.references.logits.shape[1:2], claim.references.included.shape[1:2]]
    if any(shape != places.shape for shape in given):
        raise ArtifactError("models trained for a verdict must answer all forget and pool rows")
    if claim.retrained is not None:
        found["retrained"] = claim.retrained[places]
    if claim.references is not None:
        logits, included = claim.references.logits, claim.references.included
        found["references"] = ReferenceModels(logits[:, places], included[:, places])
    return found


def _trained_on_retained(claim: EmpiricalClaim, places: Strata) -> dict[str, Any]:
    """Return the retrained model's outputs, in the order `places` of the retained rows."""
    answers = claim.retrained_retained
    if answers is None:
        return {}
    if answers.shape[:1] != places.shape:
        raise ArtifactError("the retrained model must answer all retained rows, or none")
    return {"retrained_retained": answers[places]}


def _keys(claim: EmpiricalClaim, rows: CommittedRows, side: str) -> list[bytes]:
    """Return the hash of each score of a side: label, logits before and after, its row."""
    labels: Labels = getattr(claim, f"{side}_labels")
    before: Matrix = getattr(claim, f"{side}_before")
    after: Matrix = getattr(claim, f"{side}_after")
    digests = getattr(rows, side)
    if labels.dtype != np.int64 or before.dtype != np.float64 or after.dtype != np.float64:
        raise ArtifactError("scores are float64 logits and int64 labels")
    if not len(labels) == len(before) == len(after) or before.ndim != 2 or after.ndim != 2:
        raise ArtifactError("scores need one label and two rows of logits for each row")
    if digests and len(digests) != len(labels):
        raise ArtifactError("scores need one digest for each row, or none at all")
    # In one byte order: otherwise two machines would order the same scores differently.
    parts = [values.astype(f"<{values.dtype.str[1:]}") for values in (labels, before, after)]
    return [
        hashlib.sha256(
            b"".join([*(part[i].tobytes() for part in parts), digests[i] if digests else b""])
        ).digest()
        for i in range(len(labels))
    ]


def _numbered(claim: EmpiricalClaim, keys: dict[str, list[bytes]]) -> dict[str, Strata]:
    """Return the clients of forget and pool rows as numbers from 0."""
    forget, pool = claim.forget_clients, claim.pool_clients
    if forget.ndim != 1 or pool.ndim != 1:
        raise ArtifactError("scores need one client for each row")
    if (len(forget), len(pool)) != (len(keys["forget"]), len(keys["pool"])):
        # Some rows were not scored: the numbers of rows alone will lead to a refusal.
        return {
            "forget": np.zeros(len(forget), dtype=np.int64),
            "pool": np.zeros(len(pool), dtype=np.int64),
        }
    names, codes = np.unique(np.concatenate([forget, pool]), return_inverse=True)
    owned: list[list[bytes]] = [[] for _ in names]
    for code, key in zip(codes.tolist(), [*keys["forget"], *keys["pool"]], strict=True):
        owned[code].append(key)
    hashes = [hashlib.sha256(b"".join(sorted(own))).digest() for own in owned]
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.array(sorted(range(len(names)), key=hashes.__getitem__), dtype=np.int64)] = (
        np.arange(len(names))
    )
    found: Strata = rank[codes]
    return {"forget": found[: len(forget)], "pool": found[len(forget) :]}
