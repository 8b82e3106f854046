"""The texts: the same names in each language, the same places in each text, no jargon."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.intake.render import words
from app.service.parts import ENDED
from lethe.catalogue import EVENTS
from lethe.words.texts import LANGUAGES, Language

JARGON = re.compile(r"\b(scope|release|model|modell|modèle|token|ledger|lethe|hash)\b", re.I)


def texts(language: Language) -> Iterator[tuple[str, Any]]:
    """Return each text by its name."""
    for section, found in words(language).sections.items():
        for name, text in found.items():
            yield f"{section}.{name}", text


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_the_same_texts_with_the_same_places(language: Language) -> None:
    english, other = dict(texts("en")), dict(texts(language))
    assert english.keys() == other.keys()
    for name, text in other.items():
        assert type(text) is type(english[name]), name
        assert _places(text) == _places(english[name]), name
        assert text, name
        assert JARGON.search(str(text)) is None, name
        if language != "en" and name != "case.for_place":
            assert text != english[name], name


def _places(text: Any) -> set[str]:
    lists = text if isinstance(text, list) else [text]
    return {place for one in lists for place in re.findall(r"\{(\w+)\}", one)}


def test_every_outcome_and_event_has_a_text() -> None:
    sections = words("en").sections
    assert set(ENDED.values()) < sections["outcome"].keys()
    assert sections["event"].keys() < EVENTS.keys()
