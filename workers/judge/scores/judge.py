"""Which version of the verifier judged a scores file: the file says so.

An attempt before a certified one was judged at another time, perhaps by another release, and
the certificate names the version that judged last alone.
"""

import re
from collections.abc import Mapping
from typing import Any

from workers.errors import ArtifactError

VERSION = "3"
VERSIONS = re.compile("[1-9][0-9]{0,3}")
MEMBER = "judge"


def read_judge(said: Mapping[str, Any]) -> str:
    """Return the version in a file's metadata.

    Raises ArtifactError for what is no number in quotes.
    """
    judge = said.get(MEMBER)
    if not isinstance(judge, str) or not VERSIONS.fullmatch(judge):
        raise ArtifactError("a version is a number in quotes")
    return judge
