"""Results as lines of JSON: one for each (setting, seed, contender), so that runs resume.

A line is pinned to what it depends on. One with another pin is of other settings or another
version of the method, and is measured again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.baselines.registry import make
from benchmarks.unlearning.contenders import FIRST, ORIGINAL, Contender, planned
from benchmarks.unlearning.settings import SETTINGS, SHADOWED, SHADOWS, Setting

DIGITS = 5  # significant ones that a line keeps
FORMAT = 1  # of what is measured and how; raise it and all lines are stale
SHADOW_FORMAT = 1  # the same of the attack with shadow models


@dataclass(frozen=True, slots=True)
class Record:
    """One model: how it does and what it took.

    values are `outcome`'s, or `shadow`'s where the setting's name ends with SHADOWED, whose
    lines have no cost. cost: flops, bytes, storage and seconds as counted, and formula_flops,
    formula_bytes, formula_storage where a paper has a formula. refused is the reason where a
    method refused; all else is empty then. notes: a few of the method's.
    machine: where it was measured, `machines.measured_on`; lines from before that have none.
    """

    setting: str
    seed: int
    label: str
    pin: str
    values: Mapping[str, float] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    machine: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, str]:
        """What it is a result of."""
        return self.setting, self.seed, self.label


Key = tuple[str, int, str]
Records = dict[Key, Record]


def pin_of(setting: Setting, contender: Contender, *, shadowed: bool = False) -> str:
    """Return a digest of the setting, the contender's settings and its method's version.

    shadowed: of a line of the attack with shadow models.
    """
    version = "1"
    if contender.method != ORIGINAL:
        version = make(contender.method, contender.settings).version
    pinned: dict[str, Any] = {
        "format": FORMAT,
        "setting": setting.pinned(),
        "method": contender.method,
        "settings": contender.settings,
        "version": version,
    }
    if shadowed:
        pinned["shadows"] = [SHADOW_FORMAT, SHADOWS]
    text = json.dumps(pinned, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


TUNING = 100  # the first of the seeds that settings were chosen on


def current(records: Records) -> Records:
    """Return the records of today's settings, contenders and versions; all others are stale.

    What methods were tuned on, seeds from TUNING on, is in no table.
    """
    found: Records = {}
    for (name, seed, label), record in records.items():
        shadowed = name.endswith(SHADOWED)
        setting = SETTINGS.get(name.removesuffix(SHADOWED))
        if setting is None or seed >= TUNING:
            continue
        pins = {part.label: part for part in (*FIRST, *planned(setting.plan))}
        if label in pins and record.pin == pin_of(setting, pins[label], shadowed=shadowed):
            found[name, seed, label] = record
    return found


def rounded(value: float) -> float:
    """Return a number with five significant digits."""
    return float(f"{value:.{DIGITS}g}")


def line_of(record: Record) -> str:
    """Return a record as one line, without what it does not have."""
    found: dict[str, Any] = {name: part for name, part in asdict(record).items() if part != {}}
    for part in ("values", "cost"):
        if part in found:
            found[part] = {name: rounded(value) for name, value in found[part].items()}
    if not found["refused"]:
        del found["refused"]
    return json.dumps(found, sort_keys=True)


def parse_lines(lines: Iterable[str]) -> Records:
    """Return the records by key, of several with one key the last.

    Raises ValueError or TypeError for anything else; a last line that was cut by a stopped
    run is left out by `read`.
    """
    found: Records = {}
    for line in lines:
        if line.strip():
            record = Record(**json.loads(line))
            found[record.key] = record
    return found


def read(files: Sequence[Path]) -> Records:
    """Return the records of files that exist, later ones before earlier ones."""
    found: Records = {}
    for file in files:
        if not file.exists():
            continue
        lines = file.read_text().split("\n")
        found |= parse_lines(lines[:-1])  # the last one ends with a line feed, or was cut
    return found


def joined(earlier: Records, later: Records) -> Records:
    """Return both: of two lines the later, but the earlier of what a seed trains first.

    A run without their weights trains the original and the retrained model again, perhaps on
    another device; the other lines of the seed were measured beside the earlier ones.
    """
    labels = {part.label for part in FIRST}
    first = {key: record for key, record in earlier.items() if key[2] in labels}
    return {**earlier, **later, **first}


def append(file: Path, record: Record) -> None:
    """Add one line; a line that was cut before it is ended first."""
    whole = not file.exists() or file.read_bytes()[-1:] in (b"", b"\n")
    with file.open("a") as stream:
        stream.write(("" if whole else "\n") + line_of(record) + "\n")


def format_results(records: Records) -> str:
    """Return the JSON text of everything measured, one record on each line."""
    lines = ",\n".join(line_of(records[key]) for key in sorted(records))
    return f'{{"records": [\n{lines}\n]}}\n'


def parse_results(text: str) -> Records:
    """Return the records of a JSON text. Raises ValueError, KeyError, TypeError for others."""
    found = (Record(**entry) for entry in json.loads(text)["records"])
    return {record.key: record for record in found}
