"""Write constraints-gpu.txt from pip's report on what torch's build for CUDA needs.

Run by `make lock`, after it has renewed constraints.txt.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

HEAD = """\
# With constraints.txt: what the build for CUDA of torch=={torch} on Linux, which is what PyPI
# has, needs beside it. Renewed by `make lock`. For a GPU's worker: compose.yaml, profile gpu.
-c constraints.txt
"""


def constraints(report: dict[str, Any], pinned: str) -> str:
    """Return the file: what pip would install and `pinned`, constraints.txt, does not pin.

    Raises SystemExit for a report on another build.
    """
    would = {_name(one["metadata"]["name"]): one["metadata"] for one in report["install"]}
    # `pip freeze` leaves setuptools out of constraints.txt too.
    known = {_name(line.partition("==")[0]) for line in pinned.split()} | {"setuptools"}
    added = [f"{name}=={would[name]['version']}\n" for name in sorted(would.keys() - known)]
    if not any(line.startswith("nvidia-") for line in added):
        sys.exit("this is not torch's build for CUDA: run `make lock` on Linux with x86-64")
    return HEAD.format(torch=would["torch"]["version"]) + "".join(added)


def _name(text: str) -> str:
    """Return a distribution's canonical name."""
    return re.sub(r"[-_.]+", "-", text).lower()


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text())
    text = constraints(told, Path("constraints.txt").read_text())
    Path("constraints-gpu.txt").write_text(text)
