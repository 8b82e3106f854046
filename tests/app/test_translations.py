"""The four catalogues of texts: the same names and places, and the typography of a language."""

import re
from collections.abc import Iterator
from datetime import date
from itertools import product
from typing import Any

import pytest

from app.console import render as console
from app.intake import render as intake
from app.notices import letters
from lethe.words.texts import LANGUAGES, Language, day_in, texts

CATALOGUES = ("console", "intake", "notices", "lethe")
OLD_WORDS = re.compile(
    r"Löschsperre|unterschr|Verifizierer|\bLogs?\b(?! \()|Log-|\bMethode|Operator-|"
    r"[Gg]els? jurid|délégué|adresse électronique|DSGVO Art|RGPD art"
)


def sections(catalogue: str, language: Language) -> Any:
    """Return the texts of a catalogue, by section and name."""
    return {
        "console": console.words(language).sections,
        "intake": intake.words(language).sections,
        "notices": letters.words(language),
        "lethe": texts(language).sections,
    }[catalogue]


def flat(catalogue: str, language: Language) -> Iterator[tuple[str, list[str]]]:
    """Yield each name with its forms."""
    for section, own in sections(catalogue, language).items():
        for name, text in own.items():
            if not name.endswith("_dative"):  # a case of German
                yield f"{section}.{name}", text if isinstance(text, list) else [text]


def places(text: str) -> set[str]:
    """Return the placeholders of a text."""
    return {one.removesuffix("_dative") for one in re.findall(r"\{(\w+)\}", text)}


@pytest.mark.parametrize(("catalogue", "language"), [*product(CATALOGUES, LANGUAGES)])
def test_each_language_has_the_same_names_forms_and_places(
    catalogue: str, language: Language
) -> None:
    english, own = dict(flat(catalogue, "en")), dict(flat(catalogue, language))
    assert own.keys() == english.keys()
    for name, forms in own.items():
        assert len(forms) == len(english[name]), name
        for form, other in zip(forms, english[name], strict=True):
            assert places(form) == places(other), name


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_french_has_its_spaces_and_apostrophes(catalogue: str) -> None:
    """Else a line begins with a colon, and what is quoted parts from its marks."""
    for name, forms in flat(catalogue, "fr"):
        for form in forms:
            assert re.search(r" [:;?!»%]|« |'", form) is None, name
            assert re.search(r"«(?!\u00a0)|(?<!\u00a0)»", form) is None, name


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_german_has_its_quotation_marks(catalogue: str) -> None:
    for name, forms in flat(catalogue, "de"):
        for form in forms:
            assert re.search("[\"'”«»]|\\d %", form) is None, name
            assert form.count("„") == form.count("“"), name


@pytest.mark.parametrize(("catalogue", "language"), [*product(CATALOGUES, ["de", "fr"])])
def test_one_thing_has_one_word(catalogue: str, language: Language) -> None:
    """A legal hold stops no erasure: it is no Löschsperre. Citations end with the law."""
    for name, forms in flat(catalogue, language):
        for form in forms:
            if "lethe log" not in form:
                assert OLD_WORDS.search(form) is None, (name, form)


@pytest.mark.parametrize("language", LANGUAGES)
def test_nought_has_the_number_of_its_language(language: Language) -> None:
    own = texts(language)
    one, several = own.sections["certificate"]["records"]
    shown = [own.count("certificate", "records", number) for number in (0, 1, 2)]
    nought = one if language == "fr" else several
    assert shown == [nought.format(n=0), one.format(n=1), several.format(n=2)]


@pytest.mark.parametrize(
    ("language", "first", "other"),
    [
        ("en", "1 March 2026", "30 November 2026"),
        ("de", "1. März 2026", "30. November 2026"),
        ("fr", "1er mars 2026", "30 novembre 2026"),
    ],
)
def test_a_day_has_the_order_of_its_language(
    language: Language, first: str, other: str
) -> None:
    assert day_in(language, date(2026, 3, 1)) == first
    assert day_in(language, date(2026, 11, 30)) == other
