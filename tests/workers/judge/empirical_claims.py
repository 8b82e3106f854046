"""Simulated networks that remember, forget, or pretend to, as claims to judge."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from tests.workers.judge.claims import commitment
from workers.arrays import Matrix
from workers.judge.base import Probe, PurgeClaim, RetainedSetClaim
from workers.judge.merkle import merkle_root
from workers.judge.policy.document import digest
from workers.judge.policy.policy import USUAL, Policy
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.scores.order import CommittedRows

CLASSES, CLIENTS = 5, 2
PUBLISHED = hashlib.sha256(b"model").hexdigest()
POLICY = Policy(USUAL, tau=0.1, minimum_pairs=320)

SAME = "ab" * 32


@dataclass(frozen=True)
class World:
    """How much logits of rows of a kind gain on their true class, before and after."""

    forget: tuple[float, float] = (5.0, 0.0)
    retained: tuple[float, float] = (5.0, 5.0)
    pool: tuple[float, float] = (0.0, 0.0)
    noise: float = 0.0  # added to all logits after
    rows: tuple[int, int, int] = (500, 600, 300)  # forget, pool, retained


def sets(erased: int) -> tuple[RetainedSetClaim, PurgeClaim]:
    """Return claims of an erasure of `erased` records of 5 more."""
    everyone = [commitment(row) for row in range(erased + 5)]
    before, after = sorted(everyone), sorted(everyone[erased:])
    kept = RetainedSetClaim(
        before, after, everyone[:erased], merkle_root(before), len(before),
        merkle_root(after), len(after),
    )  # fmt: skip
    gone = PurgeClaim(
        [Probe("state", "cd" * 32, False)],
        [str(row) for row in range(erased)],
        [str(row) for row in range(erased, erased + 5)],
    )
    return kept, gone


SETS = {size: sets(size) for size in (500,)}


def simulated(seed: int, world: World | None = None, policy: Policy = POLICY) -> EmpiricalClaim:
    """Return a claim about a world whose rows are exchangeable except for their gains."""
    world = world or World()
    rng = np.random.default_rng(seed)
    found = [
        answers(rng, rows, gains, world.noise)
        for rows, gains in zip(
            world.rows, (world.forget, world.pool, world.retained), strict=True
        )
    ]
    forget, pool, retained = found
    if world.rows[0] not in SETS:
        SETS[world.rows[0]] = sets(world.rows[0])
    kept, gone = SETS[world.rows[0]]
    return EmpiricalClaim(
        retained_set=kept,
        purge=gone,
        published_digest=PUBLISHED,
        model=PUBLISHED,
        finite=True,
        forget_labels=forget[0],
        forget_clients=rng.integers(0, CLIENTS, world.rows[0]),
        forget_before=forget[1],
        forget_after=forget[2],
        pool_labels=pool[0],
        pool_clients=rng.integers(0, CLIENTS, world.rows[1]),
        pool_before=pool[1],
        pool_after=pool[2],
        retained_labels=retained[0],
        retained_before=retained[1],
        retained_after=retained[2],
        policy=policy,
        policy_digest=digest(policy),
        requests_before=0,
        seed=hashlib.sha256(str(seed).encode()).digest(),
        rows_before=(SAME, SAME),
        rows_after=(SAME, SAME),
        model_before=(SAME, SAME),
    )


def answers(
    rng: np.random.Generator, rows: int, gains: tuple[float, float], noise: float
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Matrix, Matrix]:
    """Return labels, logits before, logits after: two thirds right without any gain."""
    labels = rng.integers(0, CLASSES, rows)
    own = np.eye(CLASSES)[labels]
    base = rng.normal(size=(rows, CLASSES)) + own * rng.normal(2.0, 1.0, (rows, 1))
    before = base + gains[0] * own
    change = rng.normal(scale=0.3, size=base.shape) if gains[0] != gains[1] else 0.0
    after = base + change + gains[1] * own + noise * rng.normal(size=base.shape)
    return labels, before, after


def committed(claim: EmpiricalClaim) -> CommittedRows:
    """Return digests of made-up rows for the claim's scores."""
    forget, pool, retained = (
        [hashlib.sha256(f"{side} {row}".encode()).digest() for row in range(len(labels))]
        for side, labels in (
            ("forget", claim.forget_labels),
            ("pool", claim.pool_labels),
            ("retained", claim.retained_labels),
        )
    )
    return CommittedRows([*pool, *retained], forget, forget, pool, retained)


def noop(claim: EmpiricalClaim) -> EmpiricalClaim:
    """Return the claim of a provider who publishes the model as it was."""
    return replace(
        claim,
        forget_after=claim.forget_before,
        pool_after=claim.pool_before,
        retained_after=claim.retained_before,
    )
