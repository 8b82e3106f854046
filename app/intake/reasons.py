"""Reasons of officers, from the words of the log to the words of the reader's language."""

from lethe.catalogue import EXTENSIONS, PAUSES, REFUSALS


def reason_code(regulation: str, reason: str) -> str | None:
    """Return the name of a reason in the page's texts, None for one that is no code's."""
    for known in (REFUSALS, EXTENSIONS, PAUSES):
        for code, text in known[regulation].items():
            if text == reason:
                return f"{regulation}-{code}"
    return None
