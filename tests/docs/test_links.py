"""Links lead somewhere, and files that are named exist."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.docs.markdown import NAMES, REPOSITORY, headings, inline_code, links

PATH = re.compile(
    r"(app|benchmarks|docker|docs|flower|migrations|models|scripts|tests|workers"
    r"|lethe/(certificates|cli|client|estimators|log|signing))/[\w./-]*\w/?"
)
TOP = re.compile(r"(Dockerfile|Makefile|compose\.yaml|constraints\.txt|pyproject\.toml)")


@pytest.mark.parametrize("name", NAMES)
def test_links_resolve(name: str) -> None:
    for link in links(name):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (REPOSITORY / name).parent / path if path else REPOSITORY / name
        assert target.exists(), link
        if anchor:
            assert anchor in headings(str(target.resolve().relative_to(REPOSITORY))), link


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_named_exist(name: str) -> None:
    for code in inline_code(name):
        if PATH.fullmatch(code) or TOP.fullmatch(code):
            assert (REPOSITORY / code).exists(), code


def test_every_page_is_reached_from_the_readme() -> None:
    seen, waiting = {"README.md"}, ["README.md"]
    while waiting:
        name = waiting.pop()
        for link in links(name):
            target = ((REPOSITORY / name).parent / link.partition("#")[0]).resolve()
            pages = target.glob("*.md") if target.is_dir() else [target]
            for page in pages:
                found = str(page.relative_to(REPOSITORY)) if page.exists() else ""
                if found.endswith(".md") and found not in seen:
                    seen.add(found)
                    waiting.append(found)
    assert set(NAMES) <= seen


def test_pictures_are_well_formed_and_say_what_they_show() -> None:
    pictures = sorted(REPOSITORY.glob("docs/images/*.svg"))
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
        assert root.find("{http://www.w3.org/2000/svg}desc") is not None


def test_decisions_are_numbered_without_gaps_and_say_what_was_rejected() -> None:
    pages = sorted((REPOSITORY / "docs" / "adr").glob("*.md"))
    for number, page in enumerate(pages, start=1):
        assert page.name.startswith(f"{number:04}-")
        text = page.read_text()
        assert text.startswith(f"# {number:04}: ")
        for heading in ("## Context", "## Decision", "## Rejected", "## Consequences"):
            assert heading in text, f"{page.name} lacks {heading}"
        assert len(text.split()) <= 500, f"{page.name} is longer than a page"


def test_a_decision_names_those_that_changed_it() -> None:
    """Whoever reads a decision sees in its status that a part of it holds no more."""
    statuses = {}
    for page in (REPOSITORY / "docs" / "adr").glob("*.md"):
        status = page.read_text().partition("Status:")[2].partition("## ")[0]
        statuses[page.name[:4]] = re.sub(r"\(.*?\)", "", " ".join(status.split()))
    for number, status in statuses.items():
        for clause in re.split(r"[;.] ?", status):
            if re.search("amend|supersede|replace", clause, re.IGNORECASE):
                for other in re.findall(r"\d{4}", clause):
                    assert number in statuses[other], f"{other} does not name {number}"
