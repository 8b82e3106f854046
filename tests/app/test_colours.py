"""Contrast of the style sheets, computed (WCAG 2.2, 1.4.3 and 1.4.11), in light and dark."""

import re
from importlib.resources import files
from itertools import product

import pytest

SHEETS = {
    "console": files("app.console") / "static" / "console.css",
    "intake": files("app.intake") / "static" / "intake.css",
    "verify": files("lethe.web") / "page.css",
}
TEXT, EDGE = 4.5, 3.0
WORDS = ("text", "quiet", "good", "bad", "warn", "link")


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG defines it."""
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * one for one in digits)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def colours(sheet: str) -> list[dict[str, str]]:
    """Return the named colours of a style sheet: light, then dark."""
    blocks = re.findall(r":root \{(.*?)\}", SHEETS[sheet].read_text(encoding="utf-8"), re.S)
    return [dict(re.findall(r"--(\w+): (#\w+);", one)) for one in blocks]


def test_the_formula() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777", "#fff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("sheet", SHEETS)
def test_words_and_edges_of_fields_can_be_seen(sheet: str) -> None:
    light, dark = colours(sheet)
    assert light.keys() == dark.keys()
    for own in (light, dark):
        edge = "edge" if "edge" in own else "line"
        for name, ground in product((*WORDS, edge), ("ground", "raised")):
            if name in own:
                least = EDGE if name == edge else TEXT
                assert contrast(own[name], own[ground]) >= least, (name, ground)


@pytest.mark.parametrize("sheet", SHEETS)
def test_focus_is_shown_and_forced_colours_leave_a_button(sheet: str) -> None:
    text = SHEETS[sheet].read_text(encoding="utf-8")
    assert re.search(r":focus-visible \{ outline: 3px solid", text)
    button = re.search(r"^button(?:, \.button)? \{(.*?)\}", text, re.S | re.M)
    assert button is not None
    assert "border: 2px solid" in button[1]


@pytest.mark.parametrize("sheet", ["console", "intake"])
def test_paper_has_no_buttons(sheet: str) -> None:
    assert "@media print" in SHEETS[sheet].read_text(encoding="utf-8")
