"""Measured blocks kept as lines of a file: a run that was stopped goes on where it was."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.soundness.empirical import Facts
from benchmarks.soundness.rates import Tally

Block = tuple[list[Tally], list[Facts]]
HERE = Path(__file__).parent
SOURCES = (HERE, HERE.parent / "earned", HERE.parent.parent / "workers" / "judge")
TELLING = {"__main__.py", "costs.py", "journal.py", "report.py", "results.py"}  # no verdicts


class Journal:
    """Blocks by name. Those of other code are not read: another source, another file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / f"{fingerprint()[:16]}.jsonl"
        self._known: dict[str, Block] = {}
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        for line in lines:
            try:
                document = json.loads(line)
            except ValueError:
                continue  # the end of a line was not written: that block is measured again
            tallies = [Tally(**entry) for entry in document["tallies"]]
            facts = [Facts(**entry) for entry in document["facts"]]
            self._known[document["block"]] = tallies, facts

    def block(self, name: str, work: Callable[[], Block]) -> Block:
        """Return the block of this name, measured now unless it was before."""
        if name not in self._known:
            tallies, facts = work()
            document = {
                "block": name,
                "tallies": [asdict(one) for one in tallies],
                "facts": [asdict(one) for one in facts],
            }
            start = "\n" if self._torn() else ""
            with self._file.open("a") as file:
                file.write(start + json.dumps(document) + "\n")
            self._known[name] = tallies, facts
        return self._known[name]

    def _torn(self) -> bool:
        """Return whether the last line has no end."""
        return self._file.exists() and not self._file.read_bytes().endswith(b"\n")


def fingerprint() -> str:
    """Return the hex SHA-256 of the source files on which verdicts depend."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for file in sorted(folder.rglob("*.py")):
            if file.parent == HERE and file.name in TELLING:
                continue
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
