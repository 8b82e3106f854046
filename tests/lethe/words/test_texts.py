"""Each language has each text, with the same places, and says of each class what it is."""

import string
from dataclasses import replace
from typing import get_args

import pytest

from lethe.catalogue import GuaranteeClass
from lethe.certificates.statement import Guarantee, Scope
from lethe.words.certificate import in_words, untested
from lethe.words.texts import LANGUAGES, Language, accepted, texts
from tests.lethe.certificates.build import contents

_, PREDICATE = contents()


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def flat(language: Language) -> dict[tuple[str, str], list[str]]:
    return {
        (section, name): text if isinstance(text, list) else [text]
        for section, own in texts(language).sections.items()
        for name, text in own.items()
        if not name.endswith("_dative")
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_missing_and_none_has_other_places(language: Language) -> None:
    english, own = flat("en"), flat(language)
    assert own.keys() == english.keys()
    for key, several in own.items():
        assert len(several) == len(english[key])
        for text, other in zip(several, english[key], strict=True):
            assert text
            # A case of German has a place of its own name.
            assert {p.removesuffix("_dative") for p in places(text)} == places(other), key


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("class_", get_args(GuaranteeClass))
def test_every_class_has_sentences(language: Language, class_: GuaranteeClass) -> None:
    own = texts(language)
    guarantee = Guarantee(class_, "stated", {})
    for data in ("rows", "sums"):
        method = replace(PREDICATE.method, parameters={"data": data})
        predicate = replace(PREDICATE, guarantee=guarantee, method=method)
        said = in_words(predicate, own)
        assert "{" not in said
        assert "digits-head" in said
        assert (own.of("certificate", "not_seen") in said) == (data == "sums")
        assert list(untested(predicate, own))[-1] == own.of("untested", "elsewhere")
        failed = in_words(replace(predicate, result="FAIL"), own)
        assert "FAIL" in failed
        assert own.sections["certificate"][class_].partition("{")[0] not in failed


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_record_is_not_several(language: Language) -> None:
    one = in_words(replace(PREDICATE, scope=Scope("subject", 1, bytes(32))), texts(language))
    two = in_words(replace(PREDICATE, scope=Scope("subject", 2, bytes(32))), texts(language))
    assert one.replace("1", "2", 1) != two


@pytest.mark.parametrize(
    ("header", "language"),
    [
        (None, "en"),
        ("", "en"),
        ("de", "de"),
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("es, fr;q=0.5, de;q=0.7", "de"),
        ("fr;q=0, en", "en"),
        ("fr;q=x", "en"),
        ("zh", "en"),
        ("*", "en"),
        (";;,,;q=", "en"),
    ],
)
def test_the_language_that_is_accepted(header: str | None, language: Language) -> None:
    assert accepted(header) == language
