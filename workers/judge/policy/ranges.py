"""Ranges of decimals in quotes as regular expressions: JSON schemas compare numbers alone.

An expression says where one end lies, of decimals in their one spelling: no leading zeros, no
zeros after the last digit that counts. It uses nothing that ECMA 262 and RE2 do not share.
"""

from typing import Any

from workers.judge.policy.form import spelled

# As the service takes them: shorter than `policy_form.DECIMAL`, and each value in one way.
SPELLED = r"(0|[1-9][0-9]{0,8})(\.[0-9]{0,15}[1-9])?"


def decimal_schema(low: float, high: float) -> dict[str, Any]:
    """Return the JSON schema of decimals in quotes from `low` to `high`, both 0 or more."""
    ends = [{"pattern": f"^({at_most(spelled(high))})$"}]
    if low > 0:
        ends.insert(0, {"pattern": f"^({at_least(spelled(low))})$"})
    return {"type": "string", "pattern": f"^{SPELLED}$", "allOf": ends}


def at_least(bound: str) -> str:
    """Return an expression of the decimals that are `bound` or more."""
    whole, _, fraction = bound.partition(".")
    above = [f"[1-9][0-9]{{{len(whole)},}}"]
    above += [f"{first}[0-9]{{{rest}}}" for first, rest in _other(whole, larger=True)]
    found = [f"({'|'.join(above)})(\\.[0-9]+)?"]
    if fraction:
        same = [fraction, *(first for first, _ in _other(fraction, larger=True))]
        found.append(f"{whole}\\.({'|'.join(same)})[0-9]*")
    else:
        found.append(f"{whole}(\\.[0-9]+)?")
    return "|".join(found)


def at_most(bound: str) -> str:
    """Return an expression of the decimals that are `bound` or less."""
    whole, _, fraction = bound.partition(".")
    single = len(whole) == 1
    below = [] if single else ["0", f"[1-9][0-9]{{0,{len(whole) - 2}}}"]
    below += [
        f"{first}[0-9]{{{rest}}}" for first, rest in _other(whole, larger=False, zero=single)
    ]
    found = [f"({'|'.join(below)})(\\.[0-9]+)?"] if below else []
    # What has the same digits and ends earlier is less.
    same = [fraction[:size] for size in range(1, len(fraction) + 1)]
    same += [f"{first}[0-9]*" for first, _ in _other(fraction, larger=False)]
    found.append(f"{whole}(\\.({'|'.join(same)}))?" if fraction else whole)
    return "|".join(found)


def _other(digits: str, *, larger: bool, zero: bool = True) -> list[tuple[str, int]]:
    """Return an expression for each place where digits may first differ, and what is left.

    The digit there is larger, or less; zero: whether the very first may be 0.
    """
    found = []
    for place, digit in enumerate(digits):
        least = 0 if place or zero else 1
        low, high = (int(digit) + 1, 9) if larger else (least, int(digit) - 1)
        if low <= high:
            found.append((f"{digits[:place]}[{low}-{high}]", len(digits) - place - 1))
    return found
