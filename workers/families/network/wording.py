"""The certificate's wording for networks."""

from collections.abc import Mapping
from typing import Literal

from lethe.certificates.statement import Guarantee

EMPIRICAL = "empirical-approximate"
Trained = Literal["exact-retrained", "empirical-approximate"]

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
# For a small head whose rows the verifier saw.
NOISY = (
    "The model is the result of the registered steps with Gaussian noise on the retained "
    "records alone. The verifier repeated them bit for bit, with the key that the log "
    "committed to at registration. To whoever lacks the key, all versions since the last "
    "training together are (epsilon, delta)-indistinguishable from those that the same steps "
    "give from a start that never saw the erased records. Versions from before the erasure are "
    "not hidden."
)
# For a logistic head whose rows the verifier saw.
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


def guarantee(claim: str, bounds: Mapping[str, str], *, missing: int = 0) -> Guarantee:
    """Return the guarantee of a verified claim.

    missing: how many clients' answers are missing from the training, and so from its
    repetition.

    Raises ValueError for a claim that no verifier of networks covers.
    """
    if claim == "certified-approximate":
        if "distance" not in bounds:
            return Guarantee("certified-approximate", NOISY, bounds)
        statement = OPTIMUM + (NOISE if "epsilon" in bounds else "")
        return Guarantee("certified-approximate", statement, bounds)
    for trained, statement in TRAINED.items():
        if trained == claim:
            left_out = LEFT_OUT.format(missing=missing) if missing else ""
            return Guarantee(trained, statement.format(left_out=left_out), bounds)
    raise ValueError(f"no verifier vouches for the claim {claim}")
