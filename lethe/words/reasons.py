"""Officers' decisions in the reader's language. The log has English words for each code."""

from lethe.catalogue import COMPLAINT, EXTENSIONS, LAPSES, PAUSES, REFUSALS
from lethe.words.texts import Language, texts


def reason_in(language: Language, regulation: str, logged: str) -> str | None:
    """Return a logged reason in a language; None if it is not that of a code."""
    for known in (REFUSALS, LAPSES, EXTENSIONS, PAUSES):
        for code, words in known[regulation].items():
            if words == logged:
                return reason_of(language, regulation, code)
    return None


def reason_of(language: Language, regulation: str, code: str) -> str:
    """Return the reason with a code in a language."""
    return texts(language).of("reason", f"{regulation}-{code}")


def remedies_in(language: Language, regulation: str, logged: str) -> str | None:
    """Return a logged notice of remedies in a language; None for unknown words."""
    return remedies_of(language, regulation) if logged == COMPLAINT[regulation] else None


def remedies_of(language: Language, regulation: str) -> str:
    """Return where a person may complain, in a language."""
    return texts(language).of("complaint", regulation)
