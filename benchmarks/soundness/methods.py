"""Trials of PUF and HF-KCU themselves, as providers of `empirical-approximate`.

Unlike the providers of `empirical` they work as in the service: federated training, guarded
steps and recovery, on the rows of `benchmarks.earned`. Each world has its own rows, training
and models; within a world every run draws pairs and samples anew, so its runs are one block.
"""

from time import perf_counter

from benchmarks.earned.measure import TrainedFederation, judged, make_world, unlearned
from benchmarks.earned.task import GONE, manifest, rows
from benchmarks.soundness import judging
from benchmarks.soundness.empirical import Facts
from benchmarks.soundness.rates import Tally
from workers.judge.samples.empirical import VERIFIER
from workers.training.fedavg.evaluate import evaluate

SETTING = "federated"
# What each provider calls itself, and what it runs.
RUN = {
    "honest retrain": "retrain",
    "no-op": "no step",
    "recovery alone": "natural",
    "puf-special": "puf-special",
    "hf-kcu": "hf-kcu",
}


def measure(seed: int, runs: int) -> tuple[list[Tally], list[Facts]]:
    """Return `runs` verdicts on each provider in one world, and the world's facts."""
    world = make_world(manifest("puf-special", "learned", seed), rows(seed), GONE)
    tallies, took = [], {}
    for provider, method in RUN.items():
        after, took[provider] = unlearned(world, method)
        started = perf_counter()
        reports = [judged(world, after, run) for run in range(runs)]
        verifying = (perf_counter() - started) / runs
        tallies.append(judging.tally(VERIFIER.id, SETTING, provider, f"{seed}", reports))
    facts = Facts(SETTING, round(_gap(world), 2), took["honest retrain"], verifying)
    return tallies, [facts]


def _gap(world: TrainedFederation) -> float:
    """Return by how many points the model before is better on erased than on unseen rows."""
    sides = (world.clients[world.target], world.unseen[world.target])
    known, unseen = (
        evaluate(world.named, world.before, side, threads=1).accuracy for side in sides
    )
    return 100 * (known - unseen)
