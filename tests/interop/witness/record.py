"""What the packages of others ran, as the table of docs/witnesses.md."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

PACKAGES = ("aics-witness", "aics-tlog")
REQUIRED = Path(__file__).parent / "requirements.txt"
BEGIN, END = "<!-- what make witness-check ran -->", "<!-- until here -->"
_ASK = """import platform, sys
from importlib.metadata import version
print(*map(version, sys.argv[1:]), platform.python_version())"""


def write(page: Path, programs: Path, ran: Sequence[tuple[str, str, str]]) -> None:
    """Renew the table of a page. programs: their folder; ran: command, input, result."""
    asked = [str(programs / "python"), "-c", _ASK, *PACKAGES]
    *versions, python = subprocess.check_output(asked, text=True).split()
    named = " and ".join(map(" ".join, zip(PACKAGES, versions, strict=True)))
    rows = "".join(f"| `{command}` | {given} | {result} |\n" for command, given, result in ran)
    table = f"Checked with {named} on Python {python}.\n\n| command | given | result |\n|---|---|---|\n{rows}"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table}{END}{after}")
