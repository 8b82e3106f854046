"""Inject faults and count what was lost, doubled, stuck or damaged.

    python -m benchmarks.faults [--quick] [--part K/N] [--json FILE]

The file has at least `injected`, `lost`, `duplicated`, `stuck` and `fsck_failures`. Exits with
1 unless the last four are 0. docs/benchmarks/faults.md explains the figures.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

from benchmarks.faults import processes
from benchmarks.faults.campaign import KINDS, Campaign, beginnings, run
from benchmarks.faults.schedule import Part, every, parse_part

# Faults on SQLite, on PostgreSQL, and in real processes.
QUICK, WHOLE = (190, 30, 10), (3300, 400, 220)


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some 230 faults, 10 minutes")
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument(
        "--faults",
        type=int,
        nargs=3,
        metavar=("SQLITE", "POSTGRESQL", "PROCESSES"),
        help="how many of each, in place of --quick",
    )
    parser.add_argument(
        "--part",
        type=parse_part,
        default=(1, 1),
        metavar="K/N",
        help="every N-th fault only, from the K-th on: the N parts together are the whole",
    )
    arguments = parser.parse_args()
    numbers = arguments.faults or (QUICK if arguments.quick else WHOLE)
    _, parts = arguments.part
    report = measure(*(math.ceil(number / parts) for number in numbers), part=arguments.part)
    for name, value in report.items():
        if not isinstance(value, list | dict):
            print(f"{name:20} {value:>8}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(any(report[kind] for kind in KINDS))


def measure(
    sqlite: int, postgresql: int, real: int, *, part: Part = (1, 1)
) -> dict[str, object]:
    """Return the report of so many faults of each kind, of one part of the schedules."""
    campaign = Campaign()
    kinds = ["sqlite"] + ["postgresql"] * (postgresql > 0)
    with beginnings(*kinds) as (made, place):
        for beginning, number in zip(made, (sqlite, postgresql), strict=False):
            print(f"{number} faults on {beginning.database_url.partition(':')[0]}", flush=True)
            run(campaign, beginning, number, place, part=part, said=_say)
        if real:
            print(f"{real} faults in real processes", flush=True)
            _in_processes(campaign, real, place, part)
    return campaign.report()


def _in_processes(campaign: Campaign, most: int, place: Path, part: Part) -> None:
    begun, struck = time.monotonic(), 0
    with processes.fitted(place) as fit:
        called, lines = processes.sites_of(fit, place)
        campaign.lines |= lines
        new = [(which, site) for which, site in called if site not in campaign.sites]
        for which, case in every(processes.cases(new), part):
            if struck >= most:
                break
            outcome = processes.run_case(fit, which, case, place)
            campaign.add(outcome)
            struck += outcome.struck
            if outcome.bad:
                _say(f"found: {outcome.as_dict()}")
            if struck % 5 == 0 and outcome.struck:
                _say(f"{struck} of {most} faults, {time.monotonic() - begun:.0f} s")
    campaign.seconds += time.monotonic() - begun


def _say(line: object) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
