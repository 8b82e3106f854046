"""Which version of the verifier judged a scores file: since version 3 the file says so.

A rung before a certified one was judged at another time, perhaps by another release, and the
certificate names the version that judged last alone.
"""

import re
from collections.abc import Mapping
from typing import Any

from workers.errors import ArtifactError

VERSION = "3"
VERSIONS = re.compile("[1-9][0-9]{0,3}")
MEMBER = "judge"
EARLIER = "2 or earlier"  # those files do not say


def said_of_judge(judge: str | None) -> dict[str, str]:
    """Return what a file's metadata says of the version that judged it, {} for an earlier."""
    return {} if judge is None else {MEMBER: judge}


def read_judge(said: Mapping[str, Any]) -> str | None:
    """Return the version in a file's metadata, None if it names none.

    Raises ArtifactError for what is no number in quotes.
    """
    judge = said.get(MEMBER)
    if MEMBER in said and not (isinstance(judge, str) and VERSIONS.fullmatch(judge)):
        raise ArtifactError("a version is a number in quotes")
    return judge
