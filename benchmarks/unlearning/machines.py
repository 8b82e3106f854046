"""Where a result was measured: what its seconds depend on, and nothing that names a host."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import torch

from benchmarks.unlearning.records import Records

PROCESSORS = Path("/proc/cpuinfo")  # of Linux; elsewhere the standard library is asked
PARTS = ("device", "processor", "threads", "torch", "python")
UNTOLD = "not recorded"


def measured_on(device: str) -> dict[str, str]:
    """Return what a line says of its machine; device is torch's, "cpu" or "cuda"."""
    return {
        "device": device if device == "cpu" else torch.cuda.get_device_name(device),
        "processor": f"{processor(PROCESSORS)}, {os.cpu_count()} cores",
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
    }


def processor(file: Path) -> str:
    """Return the processor's name as /proc/cpuinfo has it, or else what Python knows."""
    if file.exists():
        for line in file.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return f"{value.strip()} ({platform.machine()})"
    return platform.processor() or platform.machine()


def comparable(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether seconds of both may be divided: of one machine, or of none that is known.

    Lines that name none are from one machine, from before lines named it.
    """
    return one == other


def render(records: Records) -> str:
    """Return where the results come from: each machine, its number of lines, its settings."""
    found: dict[str, list[str]] = {}
    for record in records.values():
        found.setdefault(_named(record.machine), []).append(record.setting)
    lines = [
        f"- {said}: {len(settings)} of {len(records)} lines "
        f"({', '.join(f'`{name}`' for name in sorted(set(settings)))})."
        for said, settings in sorted(found.items(), key=lambda part: (-len(part[1]), part[0]))
    ]
    if UNTOLD in found:
        lines += [
            "",
            f'"{UNTOLD.capitalize()}" are lines from before a line said where it was measured: '
            "their operations and bytes are counted and do not depend on it, their seconds do.",
        ]
    return "\n".join(lines) + "\n"


def _named(machine: Mapping[str, str]) -> str:
    if not machine:
        return UNTOLD
    threads = f"{machine['threads']} {'thread' if machine['threads'] == '1' else 'threads'}"
    versions = f"torch {machine['torch']}, Python {machine['python']}"
    return f"{machine['device']}, {machine['processor']}, {threads}, {versions}"
