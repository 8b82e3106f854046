"""What a class says in words.

The verifier of the same name has checked the head's part, and check 1 the statistics'.
"""

from collections.abc import Mapping
from typing import Literal

from lethe.certificates.statement import Guarantee

Kind = Literal["exact", "numerically-exact", "certified-approximate"]
Trained = Literal["exact-retrained", "empirical-approximate"]

# What the verifier could see, by where the rows are.
UNSEEN = "The rows were not seen, and nothing binds them to their record ids."
SEEN = {
    "rows": "The statistics are bit-equal to those of the retained records",
    "statistics": f"{UNSEEN} The statistics are bit-equal to the sum of the messages retained "
    "from the clients that hold the rows",
    "masked": f"{UNSEEN} The statistics are bit-equal to those before plus the unmasked sum of "
    "a round in which the clients that hold the records released them, recomputed from their "
    "signed messages",
}
HEADS: dict[Kind, str] = {
    "exact": "each entry of the head is the correctly rounded ridge solution for them",
    "numerically-exact": "the head is within the proven bound of the ridge solution for them "
    "(Frobenius norm)",
    "certified-approximate": "the head, which follows sketches of them, is within the proven "
    "bound of the ridge solution for them (Frobenius norm), and the bound within the drift "
    "budget of the registration",
}

TRAINED: dict[Trained, str] = {
    "exact-retrained": "The model is, bit for bit, the one that the registered training gives "
    "from its initial weights on the retained records alone: the training was "
    "repeated{left_out}. Not tested: copies of the data or of earlier models elsewhere, and "
    "the training's own code, which both ran.",
    "empirical-approximate": "The tests that were registered beforehand found no difference "
    "between the erased records and matched records that were never trained on, beyond the "
    "stated margins and at the stated confidence. That is evidence, not a proof: a stronger "
    "test may find what these did not.",
}
LEFT_OUT = (
    ", without the answers of clients that were missing in it ({missing}: retrain.missing)"
)
# Of a logistic head, whose rows the verifier saw.
OPTIMUM = (
    "The model is within the proven distance (Euclidean, of all weights) of the one minimum of "
    "the registered objective over the retained records alone."
)
NOISE = (
    " Gaussian noise of the registered size is in it, drawn from a key that the log committed "
    "to at registration. The (epsilon, delta) of this noise hide, from whoever lacks the key, "
    "how far all versions since the last training are from those minima with the same noise. "
    "Versions from before the erasure are not hidden."
)


def guarantee(
    claim: str,
    data: str,
    bounds: Mapping[str, str],
    *,
    network: bool = False,
    missing: int = 0,
) -> Guarantee:
    """Return the guarantee of a verified claim on a model whose rows are where `data` says.

    missing: how many answers of clients a training, and so its repetition, went without.
    """
    if network and claim == "certified-approximate":
        statement = OPTIMUM + (NOISE if "epsilon" in bounds else "")
        return Guarantee("certified-approximate", statement, bounds)
    for trained, statement in TRAINED.items():
        if trained == claim:
            left_out = LEFT_OUT.format(missing=missing) if missing else ""
            return Guarantee(trained, statement.format(left_out=left_out), bounds)
    for kind, head in HEADS.items():
        if kind == claim:
            return Guarantee(kind, f"{SEEN[data]}, and {head}.", bounds)
    raise ValueError(f"no verifier vouches for the claim {claim}")
