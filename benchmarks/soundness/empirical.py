"""Trials of the class `empirical-approximate`: trained networks, attacked many times.

What is trained anew and what is only drawn anew is kept apart. A world has its own data,
original model and one model of each provider. Within a world every run draws which of the
erased rows are tested, which unseen and retained rows are offered, and the verifier's seed;
its runs share models, so they are a block, and not independent trials.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import numpy as np
from torch import nn

from benchmarks.soundness import judging
from benchmarks.soundness.networks import accuracy, answers, fitted
from benchmarks.soundness.rates import Tally
from benchmarks.soundness.updates import UPDATES, Provider, Update
from benchmarks.soundness.worlds import Places, World, WorldSetting, make_world
from workers.arrays import Matrix
from workers.judge.base import PurgeClaim, RetainedSetClaim, UpdateClaim
from workers.judge.merkle import merkle_root
from workers.judge.policy.document import digest
from workers.judge.policy.policy import Policy, default
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim

SAMPLED = 1500  # retained rows offered to a run
TIMED = 3  # verdicts
TARGETED = ("honest retrain", "no-op")
Forge = Callable[[EmpiricalClaim], EmpiricalClaim]
OTHER, NEW, ROWS = (
    hashlib.sha256(text).hexdigest() for text in (b"another", b"model", b"rows")
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen in one world: accuracy gap in points, seconds of work."""

    setting: str
    gap: float
    retrain_seconds: float
    verify_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One provider's model before a verifier: all claims about it are drawn from this.

    before and after: logits of both versions on every row of the world. forget, pool and
    kept: the rows from which a run draws. forge: what is done to the claim itself.
    """

    world: World
    policy: Policy
    before: Matrix
    after: Matrix
    sets: tuple[RetainedSetClaim, PurgeClaim]
    forget: Places
    pool: Places
    kept: Places
    forge: Forge

    def claim(self, rng: np.random.Generator) -> EmpiricalClaim:
        """Return what the worker would put before the verifier, on rows drawn by rng."""
        world, labels = self.world, self.world.labels.numpy()
        forget = rng.choice(self.forget, world.setting.tested, replace=False)
        offered = min(world.setting.offered, len(self.pool))
        pool = rng.choice(self.pool, offered, replace=False)
        retained = rng.choice(self.kept, min(SAMPLED, len(self.kept)), replace=False)
        claim = EmpiricalClaim(
            retained_set=self.sets[0],
            purge=self.sets[1],
            published_digest=NEW,
            model=NEW,
            finite=True,
            forget_labels=labels[forget],
            forget_clients=world.clients[forget],
            forget_before=self.before[forget],
            forget_after=self.after[forget],
            pool_labels=labels[pool],
            pool_clients=world.clients[pool],
            pool_before=self.before[pool],
            pool_after=self.after[pool],
            retained_labels=labels[retained],
            retained_before=self.before[retained],
            retained_after=self.after[retained],
            policy=self.policy,
            policy_digest=digest(self.policy),
            requests_before=0,
            seed=rng.bytes(32),
            # Whoever forges evidence makes the digests agree with it.
            rows_before=(ROWS, ROWS),
            rows_after=(ROWS, ROWS),
            model_before=(OTHER, OTHER),
        )
        return self.forge(claim)


def measure(
    setting: WorldSetting, seed: int, runs: int, *, everyone: bool = True
) -> tuple[list[Tally], Facts]:
    """Return the verdicts on each provider in one world, and the world's facts.

    `runs` claims of those whose rates have a target; a quarter as many of the others, or
    none unless `everyone` is to be tried.
    """
    world = make_world(setting, seed)
    rng = np.random.default_rng([8, seed])
    provider = Provider(world, fitted(world, np.arange(setting.rows), seed), rng)
    started = perf_counter()
    retrained = UPDATES["honest retrain"](provider)
    retraining = perf_counter() - started
    tallies = []
    updates = UPDATES if everyone else {"no-op": UPDATES["no-op"]}
    for name, scene in scenes(provider, retrained, updates).items():
        if not everyone and name not in TARGETED:
            continue
        times = runs if name in TARGETED else max(1, runs // 4)
        reports = [VERIFIER.verify(scene.claim(rng)) for _ in range(times)]
        tallies.append(judging.tally(VERIFIER.id, setting.name, name, f"{seed}", reports))
    seen = accuracy(provider.original, world, world.erased)
    gap = 100 * (seen - accuracy(provider.original, world, world.unseen))
    verifying = _verdict_seconds(provider, retrained)
    return tallies, Facts(setting.name, round(gap, 2), retraining, verifying)


def honest_scene(of: Provider, retrained: nn.Module) -> Scene:
    """Return the scene of a provider who did what it claims."""
    world, everything = of.world, np.arange(len(of.world.labels))
    return Scene(
        world,
        default(world.setting.forget, network=world.setting.name),
        answers(of.original, world, everything),
        answers(retrained, world, everything),
        _sets(world, ()),
        world.erased,
        world.unseen,
        world.retained,
        _as_it_is,
    )


def scenes(
    of: Provider, retrained: nn.Module, updates: Mapping[str, Update] = UPDATES
) -> dict[str, Scene]:
    """Return each provider's scene, by name; retrained: the honest one's model."""
    world, everything = of.world, np.arange(len(of.world.labels))
    honest = honest_scene(of, retrained)
    found = {"honest retrain": honest}
    for name, update in updates.items():
        if name not in found:
            found[name] = replace(honest, after=answers(update(of), world, everything))
    found["one ulp"] = replace(honest, forge=_another_file)
    # Rows that no version knew look forgotten, whatever was done to the model.
    held_out = np.concatenate([world.spare, world.unseen])
    found["forged evidence"] = replace(
        found["no-op"],
        forget=held_out[: world.setting.forget],
        pool=held_out[world.setting.forget :],
    )
    if "wrong client" in found:
        # The others' rows are shown as those that went, and were indeed forgotten.
        found["swapped rows"] = replace(
            found["wrong client"],
            forget=world.others(),
            kept=np.concatenate([np.setdiff1d(world.retained, world.others()), world.erased]),
            forge=_other_rows,
        )
    lost = (int(of.rng.choice(world.retained)),)
    found["dropped record"] = replace(honest, sets=_sets(world, lost))
    return found


def _verdict_seconds(of: Provider, published: nn.Module) -> float:
    """Return the median time of a verdict, the answers of both models included."""
    world, times = of.world, []
    scene = honest_scene(of, published)
    for _ in range(TIMED):
        started = perf_counter()
        rows = world.setting.tested + world.setting.offered + SAMPLED
        for model in (of.original, published):
            answers(model, world, np.arange(min(rows, len(world.labels))))
        VERIFIER.verify(scene.claim(of.rng))
        times.append(perf_counter() - started)
    return median(times)


def _sets(world: World, lost: tuple[int, ...]) -> tuple[RetainedSetClaim, PurgeClaim]:
    """Return claims of an erasure of as many records as a run tests.

    Those that it does not draw were erased by an earlier request of the same update: a verdict
    is reached only where each erased record has scores.
    """
    rows, erased = world.setting.rows, world.erased.tolist()
    tested = world.setting.tested
    whole = judging.retained_set(rows, erased, lost)
    earlier = [judging.commitment(row) for row in erased[tested:]]
    before = sorted({*whole.before}.difference(earlier))
    sets = replace(
        whole,
        before=before,
        erased=whole.erased[:tested],
        before_root=merkle_root(before),
        before_count=len(before),
        update=UpdateClaim(
            earlier,
            [],
            whole.before_root,
            whole.before_count,
            whole.after_root,
            whole.after_count,
        ),
    )
    return sets, judging.purge(rows, erased, lost)


def _as_it_is(claim: EmpiricalClaim) -> EmpiricalClaim:
    return claim


def _another_file(claim: EmpiricalClaim) -> EmpiricalClaim:
    """Serve a file that differs in a bit from the one published: its digest is another."""
    return replace(claim, model=OTHER)


def _other_rows(claim: EmpiricalClaim) -> EmpiricalClaim:
    """Rows under other records than those they were published with: another digest."""
    return replace(claim, rows_before=(ROWS, OTHER))
