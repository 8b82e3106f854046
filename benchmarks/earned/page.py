"""Verdicts as lines, read from certificates or from the verifier, and the page of them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from scipy.special import ndtri

from benchmarks.soundness.report import table
from lethe.certificates.statement import CheckPart
from workers.judge.inference.intervals import spent
from workers.judge.inference.sizes import accuracy_power, auc_power, minimum_pairs
from workers.judge.policy.policy import TAUS, USUAL, Policy

POLICY = Policy(USUAL, max(TAUS), 310)
SIZES = (310, 400, 500, 700, 1000, 2000, 5000, 10000)  # pairs
REQUESTS = (1, 2, 4)
FIGURE = "earned-power.png"
SHOWN = 0.8  # chance of showing what there is
PAIRS = re.compile(r"(\d+) pairs")
POWERS = re.compile(r"accuracy ([\d.]+), AUC ([\d.]+)")


@dataclass(frozen=True, slots=True)
class Area:
    """An AUC with the interval that decided."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One verdict. before: of the attack that found least. after: of the one furthest from ½.

    run: "service" for a certificate, "verifier" without a service. lost: accuracy in points,
    on retained and on unseen rows. seconds: of the method, training: of the model.
    """

    setting: str
    run: str
    method: str
    seed: int
    result: str
    pairs: int
    power: float
    before: Area
    after: Area
    lost: tuple[float, float]
    seconds: float
    training: float | None


def line_of(
    checks: Sequence[CheckPart],
    result: str,
    *,
    setting: str,
    run: str,
    method: str,
    seed: int,
    seconds: float,
    training: float | None,
) -> VerdictLine:
    """Return the line of a verdict. Raises ValueError if the samples did not allow one."""
    named = {check.name: check for check in checks}
    pairs = PAIRS.search(named["samples"].value)
    powers = POWERS.search(named["samples"].value)
    controls = [_area(check) for name, check in named.items() if name.startswith("control:")]
    areas = [_area(check) for name, check in named.items() if name.endswith(":auc")]
    if pairs is None or powers is None or not controls or not areas:
        raise ValueError("no attack was run: the samples did not allow it")
    lost = [
        100 * float(named[name].value.split()[1].rstrip(":"))
        for name in ("retained-accuracy", "test-accuracy")
    ]
    return VerdictLine(
        setting,
        run,
        method,
        seed,
        result,
        int(pairs[1]),
        min(map(float, powers.groups())),
        min(controls, key=lambda area: area.value),
        max(areas, key=lambda area: abs(area.value - 0.5)),
        (round(lost[0], 2), round(lost[1], 2)),
        round(seconds, 1),
        None if training is None else round(training, 1),
    )


def needed_before(pairs: int, request: int) -> float:
    """Return the AUC before unlearning that four controls show to be above ½ + τ at SHOWN.

    Normal approximation with the variance of two normal scores of that AUC (Hanley and McNeil
    1982, equations 1 and 2), each control at the level of Holm's first step.
    """
    level = spent(POLICY.alpha, request - 1) / len(USUAL)
    reach = float(ndtri(1 - level / 2) + ndtri(SHOWN))
    area = 0.5 + POLICY.tau
    for _ in range(100):
        one, two = area / (2 - area), 2 * area**2 / (1 + area)
        variance = area * (1 - area) + (pairs - 1) * (one + two - 2 * area**2)
        area = min(1.0, 0.5 + POLICY.tau + reach * sqrt(variance) / pairs)
    return area


def allowed_after(pairs: int, request: int) -> float:
    """Return how far from ½ the AUC after unlearning may be, so that SHOWN of verdicts pass."""
    level = spent(POLICY.alpha, request - 1) / POLICY.tests()
    error = sqrt((2 * pairs + 1) / (12 * pairs**2))
    return max(0.0, POLICY.tau - float(ndtri(1 - level / 2) + ndtri(SHOWN)) * error)


def power(pairs: int, tau: float, request: int) -> float:
    """Return the chance of showing that a model which forgot did: the lesser of both tests."""
    level = spent(POLICY.alpha, request - 1) / POLICY.tests()
    return min(accuracy_power(2 * pairs, tau, level), auc_power(pairs, tau, level))


def draw(file: Path) -> None:
    """Write the power curves as PNG: pairs against the chance of a verdict."""
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(7.0, 3.6), dpi=110, layout="constrained")
        axes = figure.subplots()
    sizes = sorted({round(100 * 10 ** (step / 30)) for step in range(67)})
    for tau, colour in zip(TAUS, ("#1f3f6f", "#3f7fbf", "#8a5a22"), strict=True):
        for request, style in zip(REQUESTS, ("-", "--", ":"), strict=True):
            curve = [power(pairs, tau, request) for pairs in sizes]
            label = f"τ {tau:g}, request {request}"
            axes.plot(sizes, curve, style, color=colour, linewidth=1.1, label=label)
    axes.axhline(SHOWN, color="#a8a8a8", linewidth=0.7)
    axes.set_xscale("log")
    axes.set_xlabel("matched pairs of a forget and an unseen row (logarithmic)")
    axes.set_ylabel("chance that a model that forgot is certified")
    axes.grid(alpha=0.2)
    axes.legend(frameon=False, fontsize=7)
    figure.savefig(file, dpi=110, metadata={"Software": ""})


def render(lines: Sequence[VerdictLine]) -> str:
    """Return the generated part of the page."""
    return "\n".join(
        [
            "## Verdicts\n",
            table(HEAD, map(_row, lines)),
            "## Power\n",
            f"![chance of a certificate by pairs]({FIGURE})\n",
            table(
                ("τ", *(f"request {request}" for request in REQUESTS)),
                (
                    (f"{tau:g}", *(f"{_pairs(tau, request):,}" for request in REQUESTS))
                    for tau in reversed(TAUS)
                ),
            ),
            f"At τ {POLICY.tau:g}, by pairs, for a chance of {SHOWN:.0%}:\n",
            table(
                ("pairs", *(f"{what}, request {r}" for r in REQUESTS for what in WHAT)),
                (
                    (
                        f"{pairs:,}",
                        *(
                            cell
                            for r in REQUESTS
                            for cell in (
                                f"{needed_before(pairs, r):.3f}",
                                f"{allowed_after(pairs, r):.3f}",
                            )
                        ),
                    )
                    for pairs in SIZES
                ),
            ),
        ]
    )


HEAD = (
    "setting", "run", "method", "seed", "verdict", "pairs", "power", "AUC before",
    "AUC after", "retained, points lost", "unseen, points lost", "seconds", "of training",
)  # fmt: skip
WHAT = ("AUC before at least", "off ½ after at most")


def _row(line: VerdictLine) -> Iterable[str]:
    return (
        line.setting,
        line.run,
        line.method,
        str(line.seed),
        line.result,
        f"{line.pairs:,}",
        f"{line.power:.3f}",
        *(f"{area.value:.3f} ({area.low:.3f} to {area.high:.3f})" for area in _areas(line)),
        *(f"{lost:.1f}" for lost in line.lost),
        f"{line.seconds:.1f}",
        "–" if line.training is None else f"{line.training:.1f}",
    )


def _areas(line: VerdictLine) -> tuple[Area, Area]:
    return line.before, line.after


def _area(check: CheckPart) -> Area:
    if check.interval is None:
        raise ValueError(f"{check.name} was not measured")
    low, high = map(float, check.interval)
    return Area(float(check.value.split()[0]), round(low, 4), round(high, 4))


def _pairs(tau: float, request: int) -> int:
    return minimum_pairs(tau, spent(POLICY.alpha, request - 1) / POLICY.tests(), POLICY.power)
