"""What was seen, as the table of docs/monitoring.md."""

import re
import subprocess
from pathlib import Path

from tests.e2e.alerts.faults import FAULTS, Fault

BEGIN, END = "<!-- what make alerts-check saw -->", "<!-- until here -->"
_seen: dict[str, tuple[float, set[str]]] = {}


def note(fault: Fault, took: float, beside: set[str]) -> None:
    """Remember that a fault's alert fired after so many seconds, and which ones beside it."""
    _seen[fault.name] = took, beside


def write(page: Path, queries: int) -> None:
    """Renew the table of a page. Every fault must have been seen."""
    missing = {fault.name for fault in FAULTS} - _seen.keys()
    assert not missing, f"not planted or not seen: {missing}"
    said = subprocess.run(
        ["prometheus", "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"version (\S+)", said.stdout + said.stderr)
    assert found is not None
    rows = "".join(_row(fault) for fault in FAULTS)
    table = (
        f"Seen with Prometheus {found[1]}: {len(FAULTS)} faults, and data for each of the "
        f"dashboard's {queries} queries.\n\n"
        "| alert | planted fault | seen firing | beside it |\n|---|---|---|---|\n" + rows
    )
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table}{END}{after}")


def _row(fault: Fault) -> str:
    took, beside = _seen[fault.name]
    name = f"`{fault.alert}`" + (f" of `{fault.part}`" if fault.part else "")
    also = ", ".join(f"`{one}`" for one in sorted(beside)) or "none"
    return f"| {name} | {fault.planted} | after {took:.0f} s | {also} |\n"
