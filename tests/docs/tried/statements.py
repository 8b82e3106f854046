"""The shell blocks of a page, cut into the statements that a reader would enter one by one."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

# Output stands directly below the block that prints it, in a fence marked text or not at all.
_BLOCK = re.compile(
    r"(?ms)^(?P<indent> *)```sh\n(?P<commands>.*?)^(?P=indent)```$"
    r"(?:\n\s*^(?P=indent)```(?:text)?\n(?P<shown>.*?)^(?P=indent)```$)?"
)

# Words and options: no quote, brace or here-document that could go on in the next line.
_PLAIN = re.compile(r"[\w ./:=@,%$+-]+")


@dataclass(frozen=True)
class Block:
    """A block of a page. shown: what stands below it as the output, None without any."""

    line: int
    statements: tuple[str, ...]
    shown: str | None


def blocks_of(text: str) -> list[Block]:
    """Return the shell blocks of a page in their order."""
    return [
        Block(
            text.count("\n", 0, found.start()) + 1,
            tuple(statements(dedent(found["commands"]))),
            None if found["shown"] is None else dedent(found["shown"]),
        )
        for found in _BLOCK.finditer(text)
    ]


def statements(block: str) -> Iterator[str]:
    """Yield each statement with its continuation lines and here-documents; comments are none."""
    pending: list[str] = []
    for line in block.splitlines():
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        pending.append(line)
        if not line.endswith("\\") and _is_whole("\n".join(pending)):
            yield "\n".join(pending)
            pending = []
    assert not pending, f"a block ends within this statement: {pending[0]}"


def _is_whole(statement: str) -> bool:
    """Ask bash, which warns of a here-document without its end and fails for all else."""
    if _PLAIN.fullmatch(statement):
        return True
    done = subprocess.run(
        ["bash", "-n"], input=statement, capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and not done.stderr
