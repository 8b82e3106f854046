"""Fuzz the parsers of others' bytes.

    python -m benchmarks.fuzz [--runs N] [--json FILE] [--corpus FOLDER] [TARGET …]

Each input must become a value or the documented refusal. Exits with 1 if one raises anything
else, takes too long, or kills its process. docs/benchmarks/faults.md has the results.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.fuzz.engine import fuzz
from benchmarks.fuzz.targets import TARGETS


def main() -> None:
    """Run the targets one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all by default")
    parser.add_argument("--runs", type=int, default=10_000, help="of each target")
    parser.add_argument("--seed", type=int, default=0, help="another one makes other inputs")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--corpus", type=Path, help="keep inputs there that did something new")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(TARGETS)}")
    results = []
    print(f"{'target':22} {'runs':>9} {'read':>9} {'ways':>5} {'slowest':>8} {'seconds':>8}")
    for name in arguments.targets or TARGETS:
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


if __name__ == "__main__":
    main()
