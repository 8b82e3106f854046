"""`lethe` with the layer below it, in a real process; the product itself knows nothing of it.

Imported by the fork server of `tests.e2e`, it puts itself in the place of the command: a
process whose environment has CAMPAIGN_FAULT (site, nth and mode as JSON) is struck once, and
notes so in the file CAMPAIGN_TOLD. One that has CAMPAIGN_SEEN notes in that file each site that
it calls, with the product's lines that led there.
"""

import json
import os
from pathlib import Path

from benchmarks.faults.layer import Fault, Layer
from lethe.cli import main as command

FAULT, TOLD, SEEN = "CAMPAIGN_FAULT", "CAMPAIGN_TOLD", "CAMPAIGN_SEEN"
_honest = command.main


def main() -> None:
    """Be `lethe`, with the layer if the environment asks for it."""
    folder, write = Path(os.environ.get("LETHE_DATA_DIR", "")), os.write
    if planted := os.environ.get(FAULT):
        told = _file(os.environ[TOLD])

        def tell(what: str) -> None:
            write(told, what.encode() + b"\n")

        Layer(folder, Fault(*json.loads(planted)), tell).install()
    elif name := os.environ.get(SEEN):
        seen = _file(name)

        def saw(site: str) -> None:
            write(seen, json.dumps([site, sorted(layer.lines)]).encode() + b"\n")
            layer.lines.clear()

        layer = Layer(folder, None, lambda _: None, saw=saw)
        layer.install()
    _honest()


def _file(name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


command.main = main
