"""Fuzz the parsers of others' bytes.

    python -m benchmarks.fuzz [--runs N] [--json FILE] [--corpus FOLDER] [TARGET …]
    python -m benchmarks.fuzz --campaign docs/benchmarks/fuzz.json --minutes 60 [TARGET …]

Each input must become a value or the documented refusal. Exits with 1 if one raises anything
else, takes too long, or kills its process. With --campaign a run adds to those before it, until
each target has had a million, and to the corpus. docs/benchmarks/faults.md has the results.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from benchmarks.faults.schedule import every, parse_part
from benchmarks.fuzz.campaign import WANTED, FuzzCampaign
from benchmarks.fuzz.engine import Found, fuzz
from benchmarks.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    """Run the targets one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all by default")
    parser.add_argument("--runs", type=int, default=10_000, help="of each target")
    parser.add_argument("--seed", type=int, default=0, help="another one makes other inputs")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument(
        "--corpus",
        type=Path,
        default=CORPUS,
        help="inputs of campaigns, tried first; a campaign adds what does something new",
    )
    parser.add_argument("--campaign", type=Path, help="go on with the campaign of this file")
    parser.add_argument("--minutes", type=float, default=60.0, help="of a campaign's call")
    parser.add_argument(
        "--part",
        type=parse_part,
        default=(1, 1),
        metavar="K/N",
        help="every N-th target only, from the K-th on: N calls of one campaign at once",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(TARGETS)}")
    names = list(every(iter(arguments.targets or TARGETS), arguments.part))
    for name in [one for one in names if not _is_possible(one)]:
        print(f"{name:22} left out: needs `{TARGETS[name].needs}` on PATH", file=sys.stderr)
        names.remove(name)
    if arguments.campaign is not None:
        sys.exit(_go_on(arguments, names))
    results = []
    print(f"{'target':22} {'runs':>9} {'read':>9} {'ways':>5} {'slowest':>8} {'seconds':>8}")
    for name in names:
        found = fuzz(TARGETS[name], arguments.runs, arguments.seed, arguments.corpus)
        results.append(found.as_dict())
        print(
            f"{name:22} {found.runs:9} {found.read:9} {found.ways:5} "
            f"{found.slowest_s:8.3f} {found.seconds:8.1f}",
            flush=True,
        )
        for where, data in found.crashes.items():
            print(f"  CRASH {where}: {data[:200]}", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    sys.exit(any(one["crashes"] for one in results))


def _is_possible(name: str) -> bool:
    needs = TARGETS[name].needs
    return not needs or shutil.which(needs) is not None


def _go_on(arguments: argparse.Namespace, names: list[str]) -> bool:
    """Go on with a campaign; return whether it ever found a crash."""
    campaign = FuzzCampaign(arguments.campaign)

    def one(name: str, runs: int, seed: int) -> Found:
        found = fuzz(TARGETS[name], runs, seed, arguments.corpus, keep=True)
        print(f"{name:22} {found.runs:9} {found.seconds:8.1f} s", flush=True)
        for where, data in found.crashes.items():
            print(f"  CRASH {where}: {data[:200]}", flush=True)
        return found

    until = time.monotonic() + 60 * arguments.minutes
    campaign.run(names, WANTED, until, one)
    return any(found["crashes"] for found in campaign.found.values())


if __name__ == "__main__":
    main()
