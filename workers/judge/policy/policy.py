"""The policy of a model: the tests and their margins, fixed beforehand.

It is registered, and its digest logged, before any result that it will judge exists. `document`
has its JSON form.

Its ladder lists the methods to try, in turn, if a result is refuted. The request's method comes
before all steps; the retraining always comes last, cannot be left out and need not be named.
The registration of a model checks the methods' names and settings: a judge knows no methods.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import isfinite

from lethe.catalogue import DISTANCES
from workers.errors import RefusedError
from workers.judge.attacks.registry import ATTACKS, NEED_REFERENCES
from workers.judge.inference.intervals import spent
from workers.judge.inference.sizes import minimum_pairs, minimum_unseen

VERSION = 2
TAUS = (0.02, 0.05, 0.1)
USUAL = ("shokri", "song-confidence", "song-modified-entropy", "yeom")

# Decimal fields: least and greatest value, and purpose.
DECIMALS: dict[str, tuple[float, float, str]] = {
    "tau": (0.001, 0.25, "margin around 1/2 of an attack's accuracy and AUC"),
    "alpha": (1e-6, 0.2, "chance of a PASS wrong about forgetting, over all requests"),
    "power": (0.5, 0.999, "least chance of showing a tau that is truly 0"),
    "coverage": (0.5, 1.0, "least share of tested forget rows that find a partner"),
    "tail_rate": (0.0001, 0.1, "false positive rate at which true positives are counted"),
    "tail_limit": (0.0001, 1.0, "greatest true positive rate at the tail rate"),
    "retained_loss": (0.0, 1.0, "accuracy on retained rows that may be lost"),
    "test_loss": (0.0, 1.0, "accuracy on unseen rows that may be lost"),
    "budget": (0.0, 100.0, "computation of all approximate steps, in retrainings"),
}
CANARY, DISTANCE = (0.0, 1.0), (0.0, 1e8)  # of the canary's limit, and of each distance's
COUNTS: dict[str, tuple[int, int, str]] = {
    "version": (VERSION, VERSION, "version of this document's form"),
    "minimum_pairs": (2, 10**7, "matched pairs of a forget and an unseen row"),
    "minimum_retained": (30, 10**7, "retained training rows in the sample"),
    "minimum_others": (30, 10**7, "unseen rows besides the matched ones"),
}

LADDER = "ladder"
Setting = bool | int | float | str | None
MOST_STEPS = 8
LAST = "retrain"
WORD = re.compile(r"[a-z][a-z0-9_-]{0,39}")
# A fraction: whole numbers are unquoted, so that no value has two spellings.
FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,8})\.[0-9]{0,15}[1-9]")
MOST_WHOLE = 2**53 - 1  # RFC 8785 has no larger integers
ABOUT_SETTINGS = (
    'write words, true, false, null, whole numbers, or shortest decimals in quotes ("0.5")'
)

# Omitted if there are none: such a policy is spelled as before the field existed.
REFERENCES = "references"
# Each row is in half of them, and LiRA needs two models with a row and two without it.
LEAST_REFERENCES = 4
# With 128 each row has its own variance on either side; each model is a training.
MOST_REFERENCES = 256
ABOUT_REFERENCES = "reference models that the judge trains, for lira and rmia alone"


class PolicyError(RefusedError):
    """A policy is malformed. The message names the field and the remedy."""

    def __init__(self, name: str, remedy: str) -> None:
        super().__init__(f"policy: {name}: {remedy}")
        self.field = name


def mapping(name: str, value: object) -> Mapping[str, object]:
    """Return `value` if it is a mapping with names as keys. Raises PolicyError."""
    if not isinstance(value, Mapping) or any(not isinstance(key, str) for key in value):
        raise PolicyError(name, "write an object, or an empty one")
    return value


def check_decimal(name: str, value: object, low: float, high: float) -> None:
    """Raise PolicyError unless `value` is a number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not isfinite(value):
        raise PolicyError(name, "write a decimal number")
    if not low <= value <= high:
        raise PolicyError(name, f"choose from {low:g} to {high:g}")


def spelled(value: float) -> str:
    """Return the shortest decimal that parses to `value`, never with an exponent."""
    text = f"{Decimal(repr(float(value))):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_setting(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) <= MOST_WHOLE
    if isinstance(value, float):
        return FRACTION.fullmatch(spelled(value)) is not None
    return isinstance(value, str) and WORD.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class LadderStep:
    """One method, and the settings in which it differs from the registration's.

    Settings that are objects, such as guard, are merged by member. Raises PolicyError.
    """

    method: str
    settings: Mapping[str, Setting | Mapping[str, Setting]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or not WORD.fullmatch(self.method):
            raise PolicyError(LADDER, "name a method in each step, such as hf-kcu")
        if self.method == LAST:
            raise PolicyError(LADDER, f"leave {LAST} out: it is always the last step")
        for name, value in mapping(LADDER, self.settings).items():
            inner = value if isinstance(value, Mapping) else {name: value}
            for key, one in mapping(LADDER, inner).items():
                if not WORD.fullmatch(name) or not WORD.fullmatch(key) or not _is_setting(one):
                    raise PolicyError(LADDER, ABOUT_SETTINGS)


# PUF's step ignores the retained rows; the next method uses their curvature: on a tenth of the
# rows, since ten products on all cost more than ten rounds of training. No known method after
# HF-KCU costs less than the retraining.
AFTER_PUF = (LadderStep("hf-kcu", {"curvature_rows": 0.1}),)
LADDERS = {"puf-regular": AFTER_PUF, "puf-special": AFTER_PUF}


@dataclass(frozen=True, slots=True)
class Policy:
    """What `empirical-approximate` demands of a model. Raises PolicyError.

    attacks: names from `attacks.registry`, sorted; each must find the forget rows before
    unlearning, and must not find them after it. canary_limit: greatest success rate of a
    planted backdoor; None requires no canary. distances: limits on distances to a retrained
    model, by their names; empty requires none. references: how many models the judge trains for
    lira and rmia; None without these. ladder: methods between a refuted result and the
    retraining, as far as budget and deadline allow. fingerprint: what the policy was written
    for, such as method and network, as text. The other fields are described in DECIMALS and
    COUNTS.
    """

    attacks: tuple[str, ...]
    tau: float
    minimum_pairs: int
    alpha: float = 0.05
    power: float = 0.8
    coverage: float = 0.8
    tail_rate: float = 0.01
    tail_limit: float = 0.05
    minimum_retained: int = 200
    minimum_others: int = 50
    retained_loss: float = 0.05
    test_loss: float = 0.1
    canary_limit: float | None = None
    distances: Mapping[str, float] = field(default_factory=dict)
    ladder: tuple[LadderStep, ...] = ()
    budget: float = 1.0
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    references: int | None = None
    version: int = VERSION

    def __post_init__(self) -> None:
        for name, (low, high, _) in DECIMALS.items():
            check_decimal(name, getattr(self, name), low, high)
        for name, (least, most, _) in COUNTS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise PolicyError(name, "write a whole number")
            if not least <= value <= most:
                span = f"must be {least}" if least == most else f"choose from {least} to {most}"
                raise PolicyError(name, span)
        check_ladder(self.ladder)
        if not isinstance(self.attacks, tuple) or not self.attacks:
            raise PolicyError("attacks", "name at least one attack")
        if any(not isinstance(name, str) or name not in ATTACKS for name in self.attacks):
            raise PolicyError("attacks", f"choose from {', '.join(sorted(ATTACKS))}")
        if list(self.attacks) != sorted(set(self.attacks)):
            raise PolicyError("attacks", "sort them, each once")
        check_references(self.references, self.attacks)
        if self.minimum_pairs < minimum_unseen(self.tail_rate):
            least = minimum_unseen(self.tail_rate)
            raise PolicyError(
                "minimum_pairs", f"the tail rate needs {least} non-members: raise one of both"
            )
        if self.canary_limit is not None:
            check_decimal("canary_limit", self.canary_limit, *CANARY)
        for name, limit in mapping("distances", self.distances).items():
            if name not in DISTANCES:
                raise PolicyError("distances", f"choose from {', '.join(sorted(DISTANCES))}")
            check_decimal(f"distances.{name}", limit, *DISTANCE)
        for name, value in mapping("fingerprint", self.fingerprint).items():
            if not isinstance(value, str) or not value.isprintable():
                raise PolicyError("fingerprint", "write words in quotes for every name")
            if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
                raise PolicyError("fingerprint", "name things in lower-case words")

    def tests(self) -> int:
        """Return the number of tests that share alpha: three per attack, and the limits."""
        limits = len(self.distances) + (self.canary_limit is not None)
        return 3 * len(self.attacks) + limits


def default(
    rows: int, *, requests: int = 1, references: int | None = None, **fingerprint: str
) -> Policy:
    """Return a policy for forget sets of about `rows` rows, with as many held out.

    With `references` models it includes the attacks that need them.

    tau is the least of 0.02, 0.05 and 0.10 that such a set has the power to show in each of the
    first `requests` requests. If the set can show none of them, the policy uses 0.10 and
    requires more rows than there are, so that its verdict is INCONCLUSIVE. The ladder is that
    of the `method` of the fingerprint, if the rows suffice for judging each request once more:
    an attempt that no test has the power to judge is not worth its computation.
    """
    attacks = USUAL if references is None else tuple(sorted({*USUAL, *NEED_REFERENCES}))
    fitting = Policy(attacks, max(TAUS), 10**6, references=references)

    def enough(tau: float, judgements: int) -> int:
        level = spent(fitting.alpha, max(1, judgements) - 1) / fitting.tests()
        needed = minimum_pairs(tau, level, fitting.power)
        return max(needed, minimum_unseen(fitting.tail_rate))

    most = 0.75 * rows  # a fifth of the pool calibrates, and strata are uneven
    for tau in TAUS:
        pairs = enough(tau, requests)
        if pairs <= most:
            break
    ladder = LADDERS.get(fingerprint.get("method", ""), ())
    if enough(tau, max(1, requests) * (1 + len(ladder))) > most:
        ladder = ()
    named = dict(sorted(fingerprint.items()))
    return replace(fitting, tau=tau, minimum_pairs=pairs, ladder=ladder, fingerprint=named)


def check_ladder(ladder: object) -> None:
    """Raise PolicyError unless `ladder` is a short tuple of distinct steps."""
    if not isinstance(ladder, tuple) or any(
        not isinstance(step, LadderStep) for step in ladder
    ):
        raise PolicyError(LADDER, 'write a list of steps, such as {"method": "hf-kcu"}, or []')
    if len(ladder) > MOST_STEPS:
        raise PolicyError(LADDER, f"name at most {MOST_STEPS} steps")
    if any(step in ladder[:place] for place, step in enumerate(ladder)):
        raise PolicyError(
            LADDER, "name each step once: the same on the same rows says the same"
        )


def check_references(references: object, attacks: Sequence[str]) -> None:
    """Raise PolicyError unless there are reference models iff an attack needs them."""
    needing = " and ".join(sorted(NEED_REFERENCES & set(attacks)))
    if references is None:
        if needing:
            raise PolicyError(
                REFERENCES, f"{needing} cannot do without: add how many, such as 16"
            )
        return
    if isinstance(references, bool) or not isinstance(references, int):
        raise PolicyError(REFERENCES, "write a whole number, or leave the field out")
    if not LEAST_REFERENCES <= references <= MOST_REFERENCES:
        raise PolicyError(REFERENCES, f"choose from {LEAST_REFERENCES} to {MOST_REFERENCES}")
    if not needing:
        names = " or ".join(sorted(NEED_REFERENCES))
        raise PolicyError(
            REFERENCES, f"remove it, or add {names}: no attack named looks at them"
        )
