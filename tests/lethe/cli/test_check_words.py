"""Each check that the auditor guide explains has its words in `show`, and none is left over."""

import re
from pathlib import Path

from lethe.certificates.statement import CheckPart
from lethe.cli.check_words import _WORDS, ATTACKS, asked_for, not_run

GUIDE = Path(__file__).parents[3] / "docs/auditor-guide.md"


def explained() -> set[str]:
    """Return the names in the guide's table, with an ellipsis where any name may follow."""
    table = GUIDE.read_text().partition("### What each check means")[2].partition("\n###")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_guide_and_the_words_have_the_same_names() -> None:
    names = explained()
    single = {name for name in names if not name.endswith("…")}
    reported = {"forget-accuracy"}  # it asks for nothing
    assert single - reported == _WORDS.keys()
    families = {name.removesuffix(":…") for name in names if name.endswith("…")}
    assert families == {*ATTACKS, "control", "distance"}


def test_an_attacks_tail_asks_for_something_else_than_its_average() -> None:
    assert asked_for("lira:tail") != asked_for("lira:auc") == asked_for("yeom:accuracy")
    assert asked_for("control:yeom") != asked_for("yeom:auc")
    assert asked_for("control:canary-trigger") != asked_for("control:yeom")
    assert asked_for("distance:output-kl") is not None
    assert asked_for("another") is None


def test_a_check_that_was_not_run_says_why() -> None:
    for value, why in (("not run: too few", "too few"), ("0.5", None)):
        assert not_run(CheckPart(1, "attacks", value, None, "x", passed=False)) == why
