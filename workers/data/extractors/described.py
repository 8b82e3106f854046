"""Features computed earlier by a named extractor: the numbers and their source.

The file stores the description next to the features (`lethe features extract` writes it), so
a registration names the extractor without running it again.
"""

import json
import re
from dataclasses import dataclass

from workers.data.extractors.base import (
    Extractor,
    ExtractorError,
    Features,
    Inputs,
    Kind,
    Parameters,
    check_inputs,
)

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Described:
    """Returns features (n, dimension) unchanged, under the name of their extractor."""

    id: str
    digest: str
    parameters: Parameters
    dimension: int
    kind: Kind = "features"

    def extract(self, inputs: Inputs) -> Features:
        """Return `inputs`. Raises RefusedError as `check_inputs`."""
        check_inputs(inputs, self.dimension)
        return inputs


def format_description(extractor: Extractor, dimension: int) -> str:
    """Return the text for `parse_description`: JSON with sorted keys, without spaces."""
    members = {
        "digest": extractor.digest,
        "dimension": dimension,
        "id": extractor.id,
        "parameters": dict(extractor.parameters),
    }
    return json.dumps(members, sort_keys=True, separators=(",", ":"))


def parse_description(text: str) -> Described:
    """Return the extractor of a description. Raises ExtractorError for any other text."""
    try:
        members = json.loads(text)
        found = Described(
            str(members["id"]),
            str(members["digest"]),
            {str(key): str(value) for key, value in members["parameters"].items()},
            int(members["dimension"]),
        )
        same = format_description(found, found.dimension) == text
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        same = False
    if not same or not _ID.fullmatch(found.id) or not _DIGEST.fullmatch(found.digest):
        raise ExtractorError(
            "extractor: not in the form that `lethe features extract` writes: "
            "extract the features again"
        )
    return found
