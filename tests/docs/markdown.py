"""The pages of the documentation, and what they name."""

import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
NAMES = [str(page.relative_to(REPOSITORY)) for page in PAGES]

_FENCE = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def read(name: str) -> str:
    """Return the text of a page."""
    return (REPOSITORY / name).read_text(encoding="utf-8")


def links(name: str) -> list[str]:
    """Return the targets of all links and images outside of code."""
    return _LINK.findall(_INLINE.sub("", _FENCE.sub("", read(name))))


def blocks(name: str, *languages: str) -> list[str]:
    """Return the fenced blocks in some languages."""
    return [text for language, text in _FENCE.findall(read(name)) if language in languages]


def inline_code(name: str) -> list[str]:
    """Return what stands between backticks in running text."""
    return [re.sub(r"\s+", " ", text) for text in _INLINE.findall(_FENCE.sub("", read(name)))]


def shell_lines(name: str) -> Iterator[str]:
    """Yield each shell command that a page shows, in a block or between backticks."""
    indented = re.findall(r"(?m)^    (\S.*)$", _FENCE.sub("", read(name)))
    for block in [*blocks(name, "sh"), *inline_code(name), *indented]:
        yield from re.split(r"\n|;|&&|\|", block.replace("\\\n", " "))


def headings(name: str) -> set[str]:
    """Return the anchors of a page, as they are made from its headings."""
    titles = re.findall(r"(?m)^#+ (.+)$", _FENCE.sub("", read(name)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
