"""A campaign of many runs, in one file: what each target has had so far, over several calls.

A million inputs of every target take many hours. Each call goes on with the target that will
have had its million soonest, with inputs that none had before; the page says how far it came.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from benchmarks.fuzz.engine import Found
from benchmarks.soundness.report import BEGIN, END, table

BATCH = 20_000  # inputs between two looks at the clock, some seconds to a minute
WANTED = 1_000_000  # inputs of each target
PAGE = "faults.md"  # beside the file


class FuzzCampaign:
    """What was found so far, by target, in `file`; it is written after every batch."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.found = self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {}

    def run(
        self,
        targets: Collection[str],
        wanted: int,
        until: float,
        fuzz: Callable[[str, int, int], Found],
    ) -> None:
        """Fuzz until every target has had `wanted` inputs, or `until` by the monotonic clock.

        fuzz: runs a target, by name, so many times with a seed, and keeps its corpus. A target
        that had its inputs before corpora were kept has one batch more.
        """
        while time.monotonic() < until:
            missing = {name: wanted - self._runs(name) for name in targets}
            for name in targets:
                if missing[name] <= 0 and not self._has_corpus(name):
                    missing[name] = BATCH
            unfinished = [name for name in missing if missing[name] > 0]
            if not unfinished:
                return
            name = min(unfinished, key=lambda one: missing[one] * self._cost(one))
            seed = self.found.get(name, {}).get("batches", 0)
            self._add(name, fuzz(name, min(BATCH, missing[name]), seed))

    def _has_corpus(self, name: str) -> bool:
        return bool(self.found.get(name, {}).get("corpus"))

    def _runs(self, name: str) -> int:
        return int(self.found.get(name, {}).get("runs", 0))

    def _cost(self, name: str) -> float:
        """Return the seconds of one input; 0 of a target that has had none, which is next."""
        return (
            float(self.found[name]["seconds"]) / self._runs(name) if self._runs(name) else 0.0
        )

    def _add(self, name: str, new: Found) -> None:
        folder = os.open(self._file.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # beside calls for other targets
            self._write(name, new)
        finally:
            os.close(folder)

    def _write(self, name: str, new: Found) -> None:
        self.found = self._read()
        before = self.found.get(name, {})
        self.found[name] = {
            "batches": before.get("batches", 0) + 1,
            **{
                key: before.get(key, 0) + getattr(new, key)
                for key in ("runs", "read", "refused")
            },
            "ways": max(before.get("ways", 0), new.ways),
            "slowest_s": max(before.get("slowest_s", 0.0), new.slowest_s),
            "seconds": round(before.get("seconds", 0.0) + new.seconds, 1),
            "crashes": {**before.get("crashes", {}), **new.crashes},
            "corpus": True,
        }
        unfinished = self._file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.found, indent=1, sort_keys=True) + "\n")
        unfinished.replace(self._file)
        page = self._file.parent / PAGE
        if page.exists():
            write_page(self.found, page)


def write_page(found: Mapping[str, Any], page: Path) -> None:
    """Replace what stands between the markers of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{render(found)}\n{END}{rest.partition(END)[2]}")


def render(found: Mapping[str, Any]) -> str:
    """Return the campaign as a table."""
    fewest = min(one["runs"] for one in found.values())
    whole = sum(one["runs"] >= WANTED for one in found.values())
    runs = sum(one["runs"] for one in found.values())
    crashes = sum(len(one["crashes"]) for one in found.values())
    seconds = sum(one["seconds"] for one in found.values())
    body = [
        (
            f"`{name}`", f"{one['runs']:,}", f"{one['read']:,}", str(one["ways"]),
            f"{one['slowest_s']:.2f} s", str(len(one["crashes"])),
        )
        for name, one in sorted(found.items())
    ]  # fmt: skip
    reached = f"at least {fewest:,} of each"
    if whole < len(found):
        reached = f"{WANTED:,} of {whole} of them and {reached}"
    return "\n".join(
        [
            f"So far: {runs:,} inputs of {len(found)} targets, {reached}, in "
            f"{seconds / 3600:.1f} hours; {crashes} crashes.\n",
            table(("target", "inputs", "read", "ways", "slowest", "crashes"), body),
        ]
    )
