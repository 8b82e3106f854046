"""The results of a recheck of a certificate, line by line."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lethe.certificates.statement import AttemptPart

Status = Literal["same", "DIFFERS", "not recomputed"]
Result = Literal["AGREES", "DIFFERS", "DIGESTS-ONLY"]

ATTEMPTS = "earlier attempts"  # the name of the lines about all of them
UNLISTED = "no such attempt"

MEANING: dict[Result, str] = {
    "AGREES": "The verdict recomputed from the scores is the certified one. "
    "This does not cover earlier attempts.",
    "DIFFERS": "A recomputed value differs from the certificate's.",
    "DIGESTS-ONLY": "Only digests and proofs could be checked, not the verdict itself.",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One statement of a certificate, and the recomputed one; reason: why not, if not."""

    name: str
    status: Status
    certified: str
    recomputed: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Recheck:
    """All lines, and the overall result. judged: the certified verdict was recomputed."""

    lines: Sequence[Line]
    judged: bool

    @property
    def result(self) -> Result:
        """DIFFERS if any line does; a verdict that was not recomputed never AGREES."""
        if any(line.status == "DIFFERS" for line in self.lines):
            return "DIFFERS"
        return "AGREES" if self.judged else "DIGESTS-ONLY"

    def to_json(self) -> dict[str, Any]:
        """Return {"result", "lines": [{name, status, certified, recomputed, reason}]}."""
        return {"result": self.result, "lines": [asdict(line) for line in self.lines]}


def line_name(attempt: AttemptPart) -> str:
    """Return the name of the line about what came before the certified attempt."""
    return "no attempt" if attempt.number is None else f"attempt {attempt.number}"


def compare(name: str, certified: str, recomputed: str) -> Line:
    """Return the line of something that was recomputed."""
    status: Status = "same" if certified == recomputed else "DIFFERS"
    return Line(name, status, certified, recomputed)


def skipped(name: str, certified: str, reason: str) -> Line:
    """Return the line of something that was not."""
    return Line(name, "not recomputed", certified, reason=reason)
