"""How many reference models a policy has its judge train: a field left out where none are.

So a policy that names none is spelled, and digested, as it was before there was the field.
"""

from collections.abc import Sequence

from workers.judge.attacks.registry import NEED_REFERENCES
from workers.judge.policy.form import PolicyError

NAME = "references"
# Each row is in half of them, and LiRA needs two models with a row and two without it.
LEAST = 4
MOST = 256  # with 128 there is a variance for each row on either side; each is a training
WORDS = "reference models that the judge trains, for lira and rmia alone"


def check_references(references: object, attacks: Sequence[str]) -> None:
    """Raise PolicyError unless there are models if and only if an attack needs them."""
    needing = " and ".join(sorted(NEED_REFERENCES & set(attacks)))
    if references is None:
        if needing:
            raise PolicyError(NAME, f"{needing} cannot do without: add how many, such as 16")
        return
    if isinstance(references, bool) or not isinstance(references, int):
        raise PolicyError(NAME, "write a whole number, or leave the field out")
    if not LEAST <= references <= MOST:
        raise PolicyError(NAME, f"choose from {LEAST} to {MOST}")
    if not needing:
        names = " or ".join(sorted(NEED_REFERENCES))
        raise PolicyError(NAME, f"remove it, or add {names}: no attack named looks at them")
