"""What a run found, as one JSON file: parts may be measured apart and drawn together."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Line
from benchmarks.ridge_paper.chunks import Chunks
from benchmarks.ridge_paper.continual import Continual
from benchmarks.ridge_paper.cost import ClaimedCosts
from benchmarks.ridge_paper.messages import Messages, Sketch
from benchmarks.ridge_paper.skips import Skips
from benchmarks.ridge_paper.stream import StreamResult
from benchmarks.ridge_paper.table3 import AccuracyRow as Accuracy
from benchmarks.ridge_paper.table4 import DeviationRow as Partition
from benchmarks.ridge_paper.width import Width

PARTS = (
    "table3", "table4", "stream", "skips", "chunks", "continual", "width", "messages", "cost",
)  # fmt: skip


@dataclass(slots=True)
class Results:
    """Each part's rows, one for each data set; empty where it was not measured."""

    quick: bool
    machine: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    table3: list[Accuracy] = field(default_factory=list)
    table4: list[Partition] = field(default_factory=list)
    stream: list[StreamResult] = field(default_factory=list)
    skips: list[Skips] = field(default_factory=list)
    chunks: list[Chunks] = field(default_factory=list)
    continual: list[Continual] = field(default_factory=list)
    width: list[Width] = field(default_factory=list)
    messages: list[Messages] = field(default_factory=list)
    cost: list[ClaimedCosts] = field(default_factory=list)

    def exact_bits(self) -> list[int]:
        """Return all counts of bits between an exact ledger and its retraining."""
        counts = [row.exact_bits for row in self.table4]
        counts += [run.exact_bits for run in self.stream]
        counts += [run.exact_bits for run in self.chunks]
        return [bits for row in counts for bits in row]


def machine() -> dict[str, str]:
    """Return what the times depend on."""
    return {
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def format_results(results: Results) -> str:
    """Return the JSON text of results."""
    return json.dumps(asdict(results), indent=1, allow_nan=False) + "\n"


def parse_results(text: str) -> Results:
    """Return the results of a JSON text. Raises ValueError or TypeError for any other."""
    data: dict[str, Any] = json.loads(text)
    kinds: dict[str, Any] = {
        "table3": Accuracy,
        "table4": Partition,
        "stream": StreamResult,
        "skips": Skips,
        "chunks": Chunks,
        "continual": Continual,
        "width": Width,
        "messages": Messages,
        "cost": ClaimedCosts,
    }
    for part, kind in kinds.items():
        data[part] = [kind(**row) for row in data.get(part, [])]
    for row in data["messages"]:
        row.sketches = [Sketch(**one) for one in row.sketches]
    for row in data["cost"]:
        row.claims = [Line(**line) for line in row.claims]
    return Results(**data)


def load_or_new(file: Path, quick: bool) -> Results:
    """Return the results in a file, if they are of the same size of run; else new ones."""
    if file.exists():
        results = parse_results(file.read_text())
        if results.quick == quick:
            return results
    return Results(quick)
