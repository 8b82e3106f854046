"""What the results say, in sentences whose numbers are computed from them.

Numbers written by hand stayed behind when parts were measured again.
"""

from collections.abc import Callable, Iterable

import numpy as np

from benchmarks.paper_figures import rows_of
from benchmarks.ridge_paper.contenders import PAPER, REFIT
from benchmarks.ridge_paper.continual import ANOTHER_SEED, BASELINES, NO_METHOD, Continual
from benchmarks.ridge_paper.linear_heads import EXACT_FUN, FATS, FEDAVG, STEP
from benchmarks.ridge_paper.messages import BATCH
from benchmarks.ridge_paper.results import Results
from benchmarks.ridge_paper.table3 import CENTRAL, EXACT

Format = Callable[[float], str]

VARIANT_A, VARIANT_B = PAPER[:2]
BROKEN = ("NegGrad", "L1-Sparsity", "WoodFisher", "NegGrad+")  # ACU's section 4.3


def render(results: Results) -> str:
    """Return the section of the page; a part that was not measured has no sentence."""
    told = [
        *_drift(results),
        *_precision(results),
        *_accuracy(results),
        *_repeated(results),
        *_grids(results),
        *_times(results),
        *_continual(results),
        *_sketches(results),
    ]
    return "## Findings\n\n" + "".join(f"- {sentence}\n" for sentence in told)


def _drift(results: Results) -> list[str]:
    if not (results.table4 and results.stream):
        return []
    by: dict[str, list[float]] = {"fp32": [], "fp64": []}
    for row in results.table4:
        for name, values in row.deviation.items():
            by[name[-4:]] += [value for value in values if value is not None]
    for run in results.stream:
        by["fp64"] += [value for name in PAPER for value in run.deviation[name]]
    bits = sum(results.exact_bits())
    double, single = (_span(by[kind], _power) for kind in ("fp64", "fp32"))
    return [
        f"**Drift.** The exact ledger is {bits} bits off. The papers' ledgers are off by "
        f"{double} in float64, and by {single} in float32 (tables 4 and 5)."
    ]


def _precision(results: Results) -> list[str]:
    """Return which variant is worse in float32, beside the paper's table 4."""
    worse: dict[str, list[str]] = {VARIANT_B: [], VARIANT_A: []}
    times: dict[str, list[float]] = {VARIANT_B: [], VARIANT_A: []}
    for row in results.table4:
        said: dict[str, list[str]] = {VARIANT_B: [], VARIANT_A: []}
        pairs = zip(*(row.deviation[f"{name}, fp32"] for name in PAPER[:2]), strict=True)
        for clients, (a, b) in zip(("few", "some", "many"), pairs, strict=True):
            if a is not None and b is not None:
                name = VARIANT_A if a > b else VARIANT_B
                said[name].append(clients)
                times[name].append(max(a, b) / min(a, b))
        for name, found in said.items():
            if found:
                worse[name].append(f"{row.data} with {_names(found)}")
    if not any(worse.values()):
        return []
    printed = rows_of("Ridge 4", "FeMNIST, 100 writers")
    there = zip(*(printed[f"{name}, fp32"].values() for name in PAPER[:2]), strict=True)
    ratios = [float(a) / float(b) for a, b in there]
    each = "; ".join(
        f"{name} is further off on {', '.join(found)} clients "
        f"({_span(times[name], _points)} times)"
        for name, found in worse.items()
        if found
    )
    return [
        f"**Float32, against the paper.** There Variant A is {_span(ratios, _whole)} times "
        "further off than Variant B at any number of clients (table 4); it puts that down to "
        f"sums of large entries of Gram matrices. Here {each}."
    ]


def _accuracy(results: Results) -> list[str]:
    rows = results.table3
    if not rows:
        return []
    below = {
        name: [100 * (row.accuracy[FEDAVG] - row.accuracy[name]) for row in rows]
        for name in (FATS, EXACT_FUN)
    }
    tests = [abs(row.accuracy[EXACT] - row.accuracy[CENTRAL]) * row.test_rows for row in rows]
    fats, exact_fun = (_span(below[name], _points) for name in (FATS, EXACT_FUN))
    return [
        f"**Accuracy.** Quantising to 16 bits changes how many test rows are right by "
        f"{max(tests):.0f} at most. FATS ends {fats} points below FedAvg, Exact-Fun "
        f"{exact_fun}, all with the same step: FATS sees 5 clients and 64 rows in a round, "
        "Exact-Fun rounds its weights to a grid. In the paper both are within 1.1 points on "
        "CIFAR-10."
    ]


def _repeated(results: Results) -> list[str]:
    told = []
    for name in (FATS, EXACT_FUN):
        runs = [run for run in results.skips if run.method == name and run.step in (None, STEP)]
        if runs:
            each = "; ".join(
                f"{run.data}: {run.untouched()} of {len(run.repeated)}, "
                f"{100 * run.share():.0f} % repeated"
                for run in runs
            )
            told.append(f"**{name}: single deletions that needed no training** – {each}.")
    if told:
        most = {
            name: [
                run.data
                for run in results.skips
                if run.method == name
                and run.step in (None, STEP)
                and run.untouched() > len(run.repeated) / 2
            ]
            for name in (FATS, EXACT_FUN)
        }
        fats, exact_fun = (_names(most[name]) or "no data set" for name in (FATS, EXACT_FUN))
        told.append(
            "The ridge paper says of its figure 3 that with both a large fraction of single "
            f"deletions costs nearly nothing. Here most deletions do so with FATS on {fats}, "
            f"with Exact-Fun on {exact_fun}. Without one row a client draws other batches, and "
            "all clients of the round weigh a little more or less; for Exact-Fun to stop, "
            "every weight of the head has to round to what it was, in every round."
        )
    return told


def _grids(results: Results) -> list[str]:
    told = []
    for data in dict.fromkeys(run.data for run in results.skips):
        grids = [run for run in results.skips if run.data == data and run.step is not None]
        if len(grids) > 1:
            each = "; ".join(
                f"{run.step:g}: accuracy {100 * run.accuracy:.1f} %, "
                f"{run.untouched()} of {len(run.repeated)} without training, "
                f"{100 * run.share():.0f} % repeated"
                for run in grids
            )
            told.append(f"**Exact-Fun by the step of its grid, {data}** – {each}.")
    return told


def _times(results: Results) -> list[str]:
    if not (results.stream and results.table3):
        return []
    lines = []
    for name in (FATS, EXACT_FUN):
        took = [_mean(run.seconds[name]) / _mean(run.seconds[FEDAVG]) for run in results.stream]
        work = [
            _mean(run.operations[name]) / _mean(run.operations[FEDAVG])
            for run in results.stream
        ]
        lines.append(
            f"{name} takes {_span(took, _two)} times the seconds and {_span(work, _two)} times "
            "the operations of a FedAvg retraining"
        )
    speed = [
        _mean(run.operations[FEDAVG]) / _mean(run.seconds[FEDAVG]) for run in results.stream
    ]
    proof = [
        float(np.median(run.seconds[ours]) / np.median(run.seconds[plain]))
        for run in results.stream
        for ours, plain in (("ridge-woodbury", "Variant B"), ("acu", "ACU"))
    ]
    exact = [run.ratio(FEDAVG, "ridge-exact") for run in results.stream]
    own = [run.ratio(REFIT, "ridge-exact") for run in results.stream]
    sizes = {row.data: (row.rows, row.dimension) for row in results.table3}
    solves = [
        (n * d * d + d**3 / 3) / _mean(run.seconds[REFIT])
        for run in results.stream
        for n, d in [sizes[run.data]]
    ]
    fedavg, refit = _span(exact, _whole), _span(own, _whole)
    did, solved = _span(speed, _power), _span(solves, _power)
    return [
        f"**Proof.** `ridge-woodbury` and `acu` take {_span(proof, _whole)} times as long as "
        "the plain float64 updates that they prove (table 5).",
        "**Single deletions, in one engine.** "
        f"{'; '.join(lines)}. These are means over the "
        f"{len(results.stream[0].seconds[FATS])} deletions of each data set that were timed.",
        f"**Single deletions against `ridge-exact`.** A refit takes {refit} times as long, "
        f"FedAvg {fedavg} times. FedAvg does {did} operations a second, the refit {solved} (n "
        "d² + d³ / 3). Much of the time of FedAvg, FATS and Exact-Fun is therefore the "
        "engine's, which sets up as many as 2,400 clients and passes messages to each and "
        "back, and waiting for other programs; the ridge methods are timed without messages.",
    ]


def _continual(results: Results) -> list[str]:
    runs = results.continual
    if not runs:
        return []
    # A method that refused, as one that diverges does, has no gaps.
    done = [name for name in BASELINES if all(name in run.gaps for run in runs)]
    forget = [name for name in done if all(_forgets(run, name) for run in runs)]
    others = [name for name in done if name not in forget]
    before = [100 * run.gaps[NO_METHOD]["forget"] for run in runs]
    told = []
    if forget:
        gaps = [100 * run.gaps[name]["forget"] for run in runs for name in forget]
        moved = [run.gaps[name]["weights"] for run in runs for name in forget]
        told.append(
            f"**ACU's baselines that forget.** {_names(forget)} end within "
            f"{_span(gaps, _points)} points of the retrained head's accuracy on the forgotten "
            f"rows ({_span(before, _points)} before), with weights "
            f"{_span(moved, _two)} times its norm away from it."
        )
    if others:
        gaps = [100 * run.gaps[name]["forget"] for run in runs for name in others]
        told.append(
            f"**ACU's other baselines.** {_names(others)}, at the settings known, end "
            f"{_span(gaps, _points)} points from the retrained accuracy on forgotten rows, "
            f"where the original head is {_span(before, _points)} from it."
        )
    slow = [name for name in done if name != "NegGrad"]
    if not slow:
        return told
    each = "; ".join(
        f"{run.requests} requests {_span(_times_acu(run, slow), _whole)} times" for run in runs
    )
    fall = "; ".join(
        f"{name} {_span([100 * run.gaps[name]['test'] for run in runs], _points)}"
        for name in done
    )
    spread = "; ".join(
        f"{run.requests} requests {np.median(run.runs['ACU']):.2f} s "
        f"({min(run.runs['ACU']):.2f} to {max(run.runs['ACU']):.2f})"
        for run in runs
    )
    count = len(runs[0].runs["ACU"])
    told += [
        "**Processor seconds of ACU's baselines over ACU's, without NegGrad.** "
        f"{each}. The paper has 50 to 125 times. ACU's own, median of {count} runs (least to "
        f"most): {spread}. Each baseline was run once.",
        *_growth(runs),
        f"**Gaps of test accuracy, points.** {fall}.",
        _retained(runs, done),
    ]
    return told


def _growth(runs: list[Continual]) -> list[str]:
    """Return how twice as many requests change the seconds, and what retraining takes."""
    by = {run.requests: run.seconds for run in runs}
    if not by.keys() >= {25, 50}:
        return []
    fewer, more = by[25], by[50]
    times = fewer[ANOTHER_SEED] / fewer["ACU"]
    return [
        "**Twice as many requests** for the same rows: ACU takes "
        f"{more['ACU'] / fewer['ACU']:.2f} times as long, NegGrad+ "
        f"{more['NegGrad+'] / fewer['NegGrad+']:.2f} times; in the paper 1.43 and 3.40. A "
        f"retraining at each of 25 requests takes {times:,.0f} times ACU's seconds, in the "
        "paper more than 10,000 times: of a whole network, not of a head."
    ]


def _retained(runs: list[Continual], done: list[str]) -> str:
    gaps = [100 * run.gaps[name]["retained"] for run in runs for name in done]
    broken = "; ".join(
        f"{name} {_figures([100 * run.gaps[name]['retained'] for run in runs])}"
        for name in BROKEN
        if name in done
    )
    requests = _figures([run.requests for run in runs], _whole)
    told = f" Of those named, after {requests} requests, in points: {broken}." if broken else ""
    return (
        "**Retained accuracy.** In the paper it breaks down at 25 requests for NegGrad, "
        "L1-Sparsity and WoodFisher, and at 50 WoodFisher and NegGrad+ collapse. Here, with a "
        f"linear head, the largest gap of a baseline is {max(gaps):.1f} points.{told}"
    )


def _sketches(results: Results) -> list[str]:
    found = [one for row in results.messages for one in row.sketches]
    low = [one for one in found if one.rank == 8 and one.deviation is not None]
    high = [
        one for one in found if one.rank > BATCH and one.proven is not None and one.proven < 1
    ]
    if not (low and high):
        return []
    sent = [_span([100 * one.share for one in part], _whole) for part in (low, high)]
    off = [100 * one.deviation for one in low if one.deviation is not None]
    proven = max(one.proven for one in high if one.proven is not None)
    return [
        f"**Sketches** of rank 8 send {sent[0]} % of the exact triangle and leave a deviation "
        f"of {_span(off, _points)} %. A rank above the {BATCH} deleted rows sends {sent[1]} % "
        f"and is proven to within {proven:.1e}."
    ]


def _forgets(run: Continual, name: str) -> bool:
    """Return whether the gap on forgotten rows is less than half of the original head's."""
    return run.gaps[name]["forget"] < run.gaps[NO_METHOD]["forget"] / 2


def _times_acu(run: Continual, names: Iterable[str]) -> list[float]:
    return [run.seconds[name] / run.seconds["ACU"] for name in names]


def _names(names: list[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _span(values: Iterable[float], form: Format) -> str:
    """Return the least and the largest value, once if they read the same."""
    ordered = sorted(values)
    least, most = form(ordered[0]), form(ordered[-1])
    return least if least == most else f"{least} to {most}"


def _figures(values: Iterable[float], form: Format | None = None) -> str:
    """Return each value, in their order."""
    return " and ".join((form or _two)(value) for value in values)


def _points(value: float) -> str:
    return f"{value:.1f}"


def _two(value: float) -> str:
    return f"{value:.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _power(value: float) -> str:
    return f"{value:.0e}"
