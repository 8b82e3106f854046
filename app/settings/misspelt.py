"""Variables whose names are nearly those of settings."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

SIMILAR = 0.8  # of difflib: one letter in five differs
# Variables that are no settings: of the command line, and keys that key files may name.
OTHERS = re.compile(r"URL|TOKEN|CONFIG|SQL|VECTORS|TEST_.*|.*_KEY(_[0-9]+)?")


def misspelt(variables: Iterable[str], settings: Iterable[str]) -> str | None:
    """Return the complaint about a variable that is nearly a setting, None if there is none.

    It would be ignored, and its default hold: another log, or no witness. Variables that
    resemble no setting may be anybody's: Kubernetes sets LETHE_SERVICE_HOST and more.
    """
    known = [setting.upper() for setting in settings]
    for name in variables:
        word = name.upper().removeprefix("LETHE_")
        if word == name.upper() or OTHERS.fullmatch(word) or word in known:
            continue
        if near := get_close_matches(word, known, 1, SIMILAR):
            return f"{name} is no setting: write LETHE_{near[0]}, or unset it"
    return None
