"""What the papers claim, beside what was measured here: reproduced, or plainly not.

Figures are those of the papers' tables. Where a paper's text and table differ, the table's
is meant and the text's is told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.unlearning.checks import (
    Along,
    Check,
    at_most,
    chance,
    cheaper,
    closer,
    costs_less,
    divergence,
    faster,
    growing,
    higher,
    lower,
    within_noise,
)
from benchmarks.unlearning.markdown import table
from benchmarks.unlearning.settings import FULL
from benchmarks.unlearning.summary import Seeds

SAMPLES = ("samples-iid", "samples")
CLIENTS = ("clients-10", "clients-100", "clients-200")
SKEWS = ("digits", "alpha-0.5", "alpha-1")


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a paper and the test of it, in each of some settings.

    paper: which one, and its table or section.
    """

    paper: str
    says: str
    check: Check
    settings: Sequence[str] = field(default=FULL)


@dataclass(frozen=True, slots=True)
class Trend:
    """A sentence about how something changes from one setting to the next."""

    paper: str
    says: str
    settings: Sequence[str]
    check: Along


CLAIMS = (
    Claim(
        "PUF III",
        "PUF-Special needs 38× to 51× fewer FLOPs (ResNet-18)",
        cheaper("puf-special", 38),
        (*FULL, "resnet-full", "resnet"),
    ),
    Claim(
        "PUF III",
        "PUF-Regular needs 24× to 32× fewer FLOPs (ResNet-18)",
        cheaper("puf-regular", 24),
        (*FULL, "resnet-full", "resnet"),
    ),
    Claim(
        "PUF III",
        "PUF-Special's forget gap is below those of NoT and FedAU",
        closer("puf-special", ("not", "fed-au")),
        (*FULL, "iid"),
    ),
    Claim(
        "PUF III",
        "PUF-Special's forget gap is below those of PGA and MoDe",
        closer("puf-special", ("pga", "mode")),
    ),
    Claim(
        "PUF IV",
        "of half of the rows, PUF-Special's forget gap is below those of NoT and FedAU",
        closer("puf-special", ("not", "fed-au")),
        SAMPLES,
    ),
    Claim(
        "PUF IV",
        "of half of the rows, PUF-Special needs 116× to 189× fewer FLOPs",
        cheaper("puf-special", 116),
        SAMPLES,
    ),
    Claim(
        "PUF V",
        "of two clients, PUF-Regular's forget gap is below those of the others",
        closer("puf-regular", ("puf-special", "fed-au", "not")),
        ("two",),
    ),
    Claim(
        "PUF V",
        "of two clients, PUF-Special needs 58× fewer FLOPs (ResNet-18)",
        cheaper("puf-special", 58),
        ("two",),
    ),
    Claim(
        "PUF VI",
        "of segmentation, PUF-Special's gap in Dice is below those of PGA and NoT",
        closer("puf-special", ("pga", "not")),
        ("masks",),
    ),
    Claim(
        "PUF VI",
        "of segmentation, PUF-Special needs 11.9× fewer FLOPs",
        cheaper("puf-special", 11.9),
        ("masks",),
    ),
    Claim(
        "PUF V-E",
        "PUF forgets what recovery alone does not",
        closer("puf-special", ("natural",)),
        (*FULL, "iid", "poisoned"),
    ),
    Claim("HF-KCU 1", "HF-KCU is 47.75× faster than retraining", faster("hf-kcu", 47.75)),
    Claim(
        "HF-KCU 1",
        "test accuracy is 0.37 points from the retrained model's (0.60 in the text)",
        at_most("hf-kcu", "test", 0.37),
    ),
    Claim(
        "HF-KCU 1",
        "its attack success matches the retrained model's (.499, .500)",
        within_noise("hf-kcu", "song"),
    ),
    Claim("HF-KCU 1", "NaiveGA ends at chance", chance),
    Claim(
        "HF-KCU 1",
        "Algorithm 1 as printed removes the client: closer than recovery alone",
        closer("hf-kcu as printed", ("natural",)),
        (*FULL, "poisoned"),
    ),
    Claim(
        "HF-KCU 2",
        "40.55× faster than retraining (ViT-Lite)",
        faster("hf-kcu", 40.55),
        ("vit",),
    ),
    Claim(
        "HF-KCU 8",
        "35× faster than retraining (ResNet-18; 82× in table 2)",
        faster("hf-kcu", 35),
        ("resnet-full", "resnet"),
    ),
    Claim(
        "HF-KCU 3",
        "HF-KCU lowers the backdoor's success (by 15.4 %)",
        lower("hf-kcu", "asr"),
        ("poisoned",),
    ),
    Claim("HF-KCU 3", "at 430× less time", faster("hf-kcu", 430), ("poisoned",)),
    Claim(
        "HF-KCU 4",
        "adaptive scaling saves test accuracy (65.23 without in the text, 70.99 in the table)",
        higher("hf-kcu scaling=0.01", "hf-kcu", "test"),
    ),
    Claim(
        "HF-KCU 5",
        "less damping is faster (λ 0.001: 209.74×, 0.1: 41.53×)",
        costs_less("hf-kcu damping=0.001", "hf-kcu damping=0.1"),
    ),
    Claim(
        "HF-KCU 6",
        "test accuracy is at most 0.68 points from the retrained model's",
        at_most("hf-kcu", "test", 0.68),
        SKEWS,
    ),
    Claim(
        "HF-KCU 7",
        "test accuracy is at most 3.81 points from the retrained model's",
        at_most("hf-kcu", "test", 3.81),
        CLIENTS,
    ),
    Claim("HF-KCU 9", "output KL to the retrained model is 0.0023 nats", divergence),
)
TRENDS = (
    Trend(
        "HF-KCU 6",
        "the speed-up grows with α (49×, 59×, 76×)",
        SKEWS,
        growing("hf-kcu", SKEWS),
    ),
    Trend(
        "HF-KCU 7",
        "the speed-up grows with the number of clients (76×, 110×, 110×)",
        CLIENTS,
        growing("hf-kcu", CLIENTS),
    ),
)
ABOUT = """\
Gaps are in points. A figure of a paper is held to the mean; of two models the difference is
taken seed by seed, and "not told apart" means that its 95 % interval holds both signs. Of an
order "reproduced" says nothing of how much is left. Neither data nor
schedules are the papers': a claim that is not reproduced here may hold there.
"""
VERDICTS = {True: "reproduced", False: "**not reproduced**", None: "not told apart"}


def render(known: Mapping[str, Seeds]) -> str:
    """Return each claim with what each setting says to it."""
    body = []
    for claim in CLAIMS:
        for name in claim.settings:
            found = claim.check(known[name]) if name in known else None
            if found is not None:
                measured, borne = found
                body.append((claim.paper, claim.says, name, measured, VERDICTS[borne]))
    for trend in TRENDS:
        found = trend.check(known)
        if found is not None:
            measured, borne = found
            over = ", ".join(trend.settings)
            body.append((trend.paper, trend.says, over, measured, VERDICTS[borne]))
    head = ("paper and table", "claim", "setting", "measured", "verdict")
    return f"{ABOUT}\n{table(head, body)}"
