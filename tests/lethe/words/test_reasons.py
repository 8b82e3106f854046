"""Every reason and notice of the log has words in each language."""

import pytest

from lethe.catalogue import COMPLAINT, EXTENSIONS, LAPSES, PAUSES, REFUSALS
from lethe.words.reasons import reason_in, reason_of, remedies_in, remedies_of
from lethe.words.texts import LANGUAGES, Language, texts

CODES = {
    (regulation, code): logged
    for known in (REFUSALS, LAPSES, EXTENSIONS, PAUSES)
    for regulation, reasons in known.items()
    for code, logged in reasons.items()
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_log_says_is_said_in_each_language(language: Language) -> None:
    sections = texts(language).sections
    assert {f"{law}-{code}" for law, code in CODES} == sections["reason"].keys()
    assert sections["complaint"].keys() == COMPLAINT.keys()
    for (law, code), logged in CODES.items():
        words = reason_in(language, law, logged)
        assert words == reason_of(language, law, code)
        assert language == "en" or words != reason_of("en", law, code)
    for law, logged in COMPLAINT.items():
        assert remedies_in(language, law, logged) == remedies_of(language, law)


def test_other_words_have_no_translation() -> None:
    assert reason_in("de", "gdpr", "some other words") is None
    assert remedies_in("de", "gdpr", COMPLAINT["ccpa"]) is None
