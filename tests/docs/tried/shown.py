"""Whether a page still shows what a command prints, but for what differs at each run."""

import re
from collections.abc import Sequence

# In this order: what a later pattern would cut in pieces comes first.
_MASKS = [
    (re.compile(r"\b[a-z0-9.]+\.(example\.org|test)/(log|lethe)\b"), "LOG"),
    (re.compile(r"https?://[^\s,;)]+"), "URL"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b"), "DIGEST"),
    (re.compile(r"(?<=root )\S+"), "ROOT"),
    (re.compile(r"\d[\d,]*(\.\d+)?(e-\d+)?"), "N"),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"[ \t]+"), " "),
]
# Lines of a wait in a file; in a terminal, which pages show, the next output replaces them.
_PROGRESS = re.compile(r"\S.*: \S.* after N s")


def masked(text: str) -> list[str]:
    """Return the lines of an output in which times, ids, digests and numbers are words."""
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def is_shown(shown: str, outputs: Sequence[str]) -> bool:
    """Say whether `shown` is what one of the commands printed, or several in a row.

    A line of `…` stands for any lines, `…` in a line for any text.
    """
    pattern = "".join(
        "(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n"
        for line in masked(shown)
    )
    expected = masked(shown)
    lines = [
        [line for line in masked(output) if line in expected or not _PROGRESS.fullmatch(line)]
        for output in outputs
    ]
    return any(
        re.fullmatch(
            pattern, "".join(f"{line}\n" for part in lines[first:last] for line in part)
        )
        for first in range(len(lines))
        for last in range(first + 1, len(lines) + 1)
    )
