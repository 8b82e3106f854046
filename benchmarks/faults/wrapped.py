"""`lethe` with the layer below it, in a real process; the product itself knows nothing of it.

Imported by the fork server of `tests.e2e`, it puts itself in the place of the command: a
process whose environment has CAMPAIGN_FAULT (site, nth and mode as JSON) is struck once, and
notes so in the file CAMPAIGN_TOLD.
"""

import json
import os
from pathlib import Path

from benchmarks.faults.layer import Fault, Layer
from lethe.cli import main as command

FAULT, TOLD = "CAMPAIGN_FAULT", "CAMPAIGN_TOLD"
_honest = command.main


def main() -> None:
    """Be `lethe`, with the fault of the environment if it names one."""
    if planted := os.environ.get(FAULT):
        told = os.open(os.environ[TOLD], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        write = os.write

        def tell(what: str) -> None:
            write(told, what.encode() + b"\n")

        folder = Path(os.environ["LETHE_DATA_DIR"])
        Layer(folder, Fault(*json.loads(planted)), tell).install()
    _honest()


command.main = main
