"""The texts of one language, from TOML files with the same names in each language."""

import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

Language = Literal["en", "de", "fr"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


class Texts:
    """The texts of one language by section and name."""

    def __init__(self, language: Language, package: str = "lethe.words") -> None:
        """Load the texts from the files of a package."""
        self.language = language
        source = files(package) / f"{language}.toml"
        self.sections: Mapping[str, Mapping[str, Any]] = tomllib.loads(
            source.read_text(encoding="utf-8")
        )

    def of(self, section: str, name: str, /, **values: object) -> str:
        """Return a text with its placeholders filled."""
        text: str = self.sections[section][name]
        return text.format(**values)

    def count(self, section: str, name: str, number: int, /, **values: object) -> str:
        """Return a text in its singular or plural form; its placeholder `n` is the number.

        French has the singular for nought, too.
        """
        one, several = self.sections[section][name]
        is_one = number == 1 or (number == 0 and self.language == "fr")
        text: str = one if is_one else several
        return text.format(n=number, **values)


@cache
def texts(language: Language) -> Texts:
    """Return the texts of a language."""
    return Texts(language)


def day_in(language: Language, day: date) -> str:
    """Return a day in words: 1 March 2026, 1. März 2026, 1er mars 2026."""
    own = texts(language)
    number = own.of("date", "first") if day.day == 1 else str(day.day)
    month = own.sections["date"]["months"][day.month - 1]
    return own.of("date", "day", day=number, month=month, year=day.year)


def accepted(header: str | None) -> Language:
    """Return the first language of an Accept-Language header that has texts.

    RFC 9110 section 12.5.4; languages of equal weight are taken in the header's order. Default:
    English.
    """
    wanted: list[tuple[float, Language]] = []
    for part in (header or "").split(","):
        name, _, weight = part.strip().partition(";")
        primary = name.strip().lower().partition("-")[0]
        try:
            quality = float(weight.strip().removeprefix("q=")) if weight else 1.0
        except ValueError:
            quality = 0.0
        wanted += [(quality, one) for one in LANGUAGES if one == primary and quality > 0]
    return max(wanted, key=lambda pair: pair[0])[1] if wanted else "en"
