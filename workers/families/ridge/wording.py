"""The certificate's wording for ridge heads.

The head's part was checked by the verifier named in the claim, the statistics' part by check 1.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from lethe.certificates.statement import Guarantee

Kind = Literal["exact", "numerically-exact", "certified-approximate"]

# What the verifier could not see, by the location of the rows.
UNSEEN = "The rows were not seen, and nothing binds them to their record ids."
SEEN: Mapping[str, str] = MappingProxyType(
    {
        "rows": "The statistics are bit-equal to those of the retained records",
        "statistics": f"{UNSEEN} The statistics are bit-equal to the sum of the messages "
        "retained from the clients that hold the rows",
    }
)
HEADS: dict[Kind, str] = {
    "exact": "each entry of the head is the correctly rounded ridge solution for them",
    "numerically-exact": "the head is within the proven bound of the ridge solution for them "
    "(Frobenius norm)",
    "certified-approximate": "the head, which follows sketches of them, is within the proven "
    "bound of the ridge solution for them (Frobenius norm), and the bound within the drift "
    "budget of the registration",
}


def guarantee(claim: str, seen: str, bounds: Mapping[str, str]) -> Guarantee:
    """Return the guarantee of a verified claim; seen: which statistics the verifier saw.

    Raises ValueError for a claim that no verifier of ridge heads covers.
    """
    for kind, head in HEADS.items():
        if kind == claim:
            return Guarantee(kind, f"{seen}, and {head}.", bounds)
    raise ValueError(f"no verifier vouches for the claim {claim}")
