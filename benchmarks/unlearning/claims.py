"""What the papers claim, beside what was measured here: reproduced, or plainly not."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan

from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN
from benchmarks.unlearning.markdown import table
from benchmarks.unlearning.summary import Interval, Seeds, gap, interval

# What was measured, and whether it bears the claim out; None where seeds do not tell.
Verdict = tuple[str, bool | None] | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a paper and the test of it; None where it was not measured."""

    paper: str
    says: str
    check: Callable[[Seeds], Verdict]


def _gap(seeds: Seeds, label: str, name: str = "forget") -> float:
    return 100 * seeds.gap(label, name).mean


def _closer(label: str, others: tuple[str, ...]) -> Callable[[Seeds], Verdict]:
    """Check that a method's forget gap is smaller than each of the others', seed by seed."""

    def check(seeds: Seeds) -> Verdict:
        mine = _gap(seeds, label)
        theirs = {other: _gap(seeds, other) for other in others}
        measured = {other: value for other, value in theirs.items() if not isnan(value)}
        if isnan(mine) or not measured:
            return None
        said = ", ".join(f"{other} {value:.1f}" for other, value in measured.items())
        apart = [_difference(seeds, label, other) for other in measured]
        if any(part.mean - part.half > 0 for part in apart):
            return f"{label} {mine:.1f}; {said}", False
        told = all(part.mean + part.half < 0 for part in apart)
        return f"{label} {mine:.1f}; {said}", True if told else None

    return check


def _difference(seeds: Seeds, one: str, other: str) -> Interval:
    """Return one's forget gap minus the other's over the seeds that have both."""
    found = []
    for seed in seeds.seeds:
        first, second, truth = (seeds.at(seed, label) for label in (one, other, RETRAIN))
        if first is None or second is None or truth is None:
            continue
        if first.values and second.values:
            found.append(gap(first, truth, "forget") - gap(second, truth, "forget"))
    return interval(found)


def _cheaper(label: str, at_least: float) -> Callable[[Seeds], Verdict]:
    def check(seeds: Seeds) -> Verdict:
        found = seeds.ratio(label, "flops").mean
        return None if isnan(found) else (f"{found:.1f}×", found >= at_least)

    return check


def _within_noise(label: str, name: str) -> Callable[[Seeds], Verdict]:
    """Check that a gap is no larger than that of a second retraining."""

    def check(seeds: Seeds) -> Verdict:
        mine, noise = _gap(seeds, label, name), _gap(seeds, AGAIN, name)
        if isnan(mine) or isnan(noise):
            return None
        return f"{mine:.1f}, another seed of retraining {noise:.1f}", mine <= noise

    return check


def _divergence(seeds: Seeds) -> Verdict:
    mine, noise = seeds.mean("hf-kcu", "kl").mean, seeds.mean(AGAIN, "kl").mean
    if isnan(mine):
        return None
    beside = "" if isnan(noise) else f", another seed of retraining {noise:.3g}"
    return f"{mine:.3g}{beside}", mine <= 0.0023


def _chance(seeds: Seeds) -> Verdict:
    found, whole = seeds.mean("naive-ga", "test").mean, seeds.mean(RETRAIN, "test").mean
    return None if isnan(found) else (f"{100 * found:.1f}", found <= whole / 2)


def _backdoor(seeds: Seeds) -> Verdict:
    before, after = seeds.mean(ORIGINAL, "asr").mean, seeds.mean("hf-kcu", "asr").mean
    if isnan(before) or isnan(after):
        return None
    return f"{100 * before:.1f} to {100 * after:.1f}", after < before


CLAIMS = (
    Claim("PUF III", "PUF-Special needs 38× to 117× fewer FLOPs", _cheaper("puf-special", 38)),
    Claim("PUF III", "PUF-Regular needs 24× to 97× fewer FLOPs", _cheaper("puf-regular", 24)),
    Claim(
        "PUF III",
        "PUF-Special's forget gap is below those of NoT and FedAU",
        _closer("puf-special", ("not", "fed-au")),
    ),
    Claim(
        "PUF III",
        "PUF-Special's forget gap is below those of PGA and MoDe",
        _closer("puf-special", ("pga", "mode")),
    ),
    Claim(
        "PUF V-E",
        "PUF forgets what recovery alone does not",
        _closer("puf-special", ("natural",)),
    ),
    Claim("HF-KCU 1", "HF-KCU is 47.75× faster than retraining", _cheaper("hf-kcu", 47.75)),
    Claim(
        "HF-KCU 1",
        "its attack success matches the retrained model's (.499, .500)",
        _within_noise("hf-kcu", "song"),
    ),
    Claim("HF-KCU 9", "output KL to the retrained model is 0.0023 nats", _divergence),
    Claim("HF-KCU 1", "NaiveGA ends at chance", _chance),
    Claim(
        "HF-KCU 1",
        "Algorithm 1 as printed removes the client: closer than recovery alone",
        _closer("hf-kcu as printed", ("natural",)),
    ),
    Claim("HF-KCU 3", "HF-KCU lowers the backdoor's success", _backdoor),
)


VERDICTS = {True: "reproduced", False: "**not reproduced**", None: "not told apart"}


def render(settings: list[tuple[str, Seeds]]) -> str:
    """Return each claim with what each setting says to it."""
    body = []
    for claim in CLAIMS:
        for name, seeds in settings:
            found = claim.check(seeds)
            if found is not None:
                measured, borne = found
                verdict = VERDICTS[borne]
                body.append((claim.paper, claim.says, name, measured, verdict))
    return table(("paper", "claim", "setting", "measured", ""), body)
