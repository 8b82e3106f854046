"""The policy of a model: what will be tested, and what is good enough, fixed beforehand.

It is registered, and its digest logged, before any result that it will judge exists. The
document is JSON in one spelling: sorted keys, no blanks, whole numbers as numbers, all other
numbers as decimals in quotes, so that no two programs print them differently.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from workers.judge.attacks.registry import ATTACKS, NEED_REFERENCES
from workers.judge.policy.form import (
    PolicyError,
    check_decimal,
    decimal,
    mapping,
    spelled,
)
from workers.judge.policy.ladder import Rung, check_ladder, read_ladder, write_ladder
from workers.judge.policy.references import NAME as REFERENCES
from workers.judge.policy.references import check_references
from workers.judge.samples.alpha_spending import spent
from workers.judge.samples.distances import DISTANCES
from workers.judge.samples.sizes import minimum_pairs, minimum_unseen

VERSION = 2
TAUS = (0.02, 0.05, 0.1)
USUAL = ("shokri", "song-confidence", "song-modified-entropy", "yeom")
# After PUF's step, which knows nothing of those who stay, one that follows their curvature:
# on a tenth of their rows, for ten products of all cost more than ten rounds of training.
# Nothing is known to come after HF-KCU that costs less than the retraining.
AFTER_PUF = (Rung("hf-kcu", {"curvature_rows": 0.1}),)
LADDERS = {"puf-regular": AFTER_PUF, "puf-special": AFTER_PUF}

# Field: the least and the greatest value, and what it is for, of all that is a decimal.
DECIMALS: dict[str, tuple[float, float, str]] = {
    "tau": (0.001, 0.25, "margin around 1/2 of an attack's accuracy and AUC"),
    "alpha": (1e-6, 0.2, "chance of a wrong PASS, over all requests of the model"),
    "power": (0.5, 0.999, "least chance of showing a tau that is truly 0"),
    "coverage": (0.5, 1.0, "least share of tested forget rows that find a partner"),
    "tail_rate": (0.0001, 0.1, "false positive rate at which true positives are counted"),
    "tail_limit": (0.0001, 1.0, "greatest true positive rate at the tail rate"),
    "retained_loss": (0.0, 1.0, "accuracy on retained rows that may be lost"),
    "test_loss": (0.0, 1.0, "accuracy on unseen rows that may be lost"),
    "budget": (0.0, 100.0, "computation of all approximate rungs, in retrainings"),
}
CANARY, DISTANCE = (0.0, 1.0), (0.0, 1e8)  # of the canary's limit, and of each distance's
COUNTS: dict[str, tuple[int, int, str]] = {
    "version": (VERSION, VERSION, "version of this document's form"),
    "minimum_pairs": (2, 10**7, "matched pairs of a forget and an unseen row"),
    "minimum_retained": (30, 10**7, "retained training rows in the sample"),
    "minimum_others": (30, 10**7, "unseen rows besides the matched ones"),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What `empirical-approximate` demands of a model. Raises PolicyError.

    attacks: names from `attacks.registry`, sorted; every one must detect the model before
    unlearning, and must not find the forget rows after it. canary_limit: greatest success
    rate of a planted backdoor; None asks for no canary. distances: limits on distances to a
    retrained model, by their names; empty asks for none. references: how many models the
    judge trains for lira and rmia; None without these. ladder: what is tried between a
    refuted result and the retraining, as far as budget and deadline allow. fingerprint: what
    the policy was written for, such as method and network, in words. The other fields are
    described in DECIMALS and COUNTS.
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
    ladder: tuple[Rung, ...] = ()
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
                raise PolicyError(name, f"choose from {least} to {most}")
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
        """Return the tests of forgetting, which share alpha: three an attack, and limits."""
        limits = len(self.distances) + (self.canary_limit is not None)
        return 3 * len(self.attacks) + limits


def default(
    rows: int, *, requests: int = 1, references: int | None = None, **fingerprint: str
) -> Policy:
    """Return a policy for forget sets of about `rows` rows, with as many held out.

    With `references` models it asks for the attacks, too, that need them.

    tau is the least of 0.02, 0.05 and 0.10 that such a set has the power to show in each of
    the first `requests` requests. For a set that can show none the policy asks for 0.10 and
    more rows than there are, so that its verdict will be INCONCLUSIVE. The ladder is that of
    the `method` of the fingerprint, where the rows suffice for judging each request once
    more: what no test has the power to judge is not worth its computation.
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


def to_document(policy: Policy) -> dict[str, Any]:
    """Return the policy as what JSON can hold."""
    document: dict[str, Any] = {
        entry.name: getattr(policy, entry.name) for entry in fields(policy)
    }
    document["attacks"] = list(policy.attacks)
    for name in DECIMALS:
        document[name] = spelled(getattr(policy, name))
    if policy.canary_limit is not None:
        document["canary_limit"] = spelled(policy.canary_limit)
    document["ladder"] = write_ladder(policy.ladder)
    document["fingerprint"] = dict(policy.fingerprint)
    document["distances"] = {k: spelled(v) for k, v in policy.distances.items()}
    if policy.references is None:
        del document[REFERENCES]
    return document


def from_document(document: object) -> Policy:
    """Return the policy of parsed JSON. Raises PolicyError.

    Every field must be there, but `references`, which is where there are any.
    """
    if not isinstance(document, dict):
        raise PolicyError("document", "write a JSON object")
    if document.get("version") == 1:
        raise PolicyError(
            "version", f'add "ladder": [] and "budget": "1", and write version {VERSION}'
        )
    names = {entry.name for entry in fields(Policy)}
    for name in sorted(map(str, (names ^ set(document)) - {REFERENCES})):
        known = name in names
        raise PolicyError(
            name if known else "document",
            "add it" if known else "remove what is no field of a policy",
        )
    values = dict(document)
    if values.get(REFERENCES, 0) is None:
        raise PolicyError(REFERENCES, "leave it out where there are none")
    attacks = values["attacks"]
    if not isinstance(attacks, list):
        raise PolicyError("attacks", "write a list of names")
    values["attacks"] = tuple(attacks)
    values["ladder"] = read_ladder(values["ladder"])
    for name in DECIMALS:
        values[name] = decimal(name, values[name])
    if values["canary_limit"] is not None:
        values["canary_limit"] = decimal("canary_limit", values["canary_limit"])
    limits = mapping("distances", values["distances"])
    values["distances"] = {k: decimal("distances", v) for k, v in limits.items()}
    return Policy(**values)


def format_policy(policy: Policy) -> bytes:
    """Return the one spelling of a policy."""
    document = to_document(policy)
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


def parse_policy(data: bytes) -> Policy:
    """Return the policy of its one spelling. Raises PolicyError for any other bytes."""
    try:
        policy = from_document(json.loads(data))
    except (ValueError, RecursionError):  # no UTF-8, no JSON, too deep, or endless digits
        raise PolicyError("document", "write JSON in UTF-8") from None
    if format_policy(policy) != data:
        raise PolicyError("document", "write it as format_policy does: sorted, without blanks")
    return policy


def digest(policy: Policy) -> str:
    """Return the hex SHA-256 of the policy's one spelling."""
    return hashlib.sha256(format_policy(policy)).hexdigest()
