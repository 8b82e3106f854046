"""The texts of one language, from TOML files with the same names in each language."""

import tomllib
from collections.abc import Mapping
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
        """Return a text in its singular or plural form; its placeholder `n` is the number."""
        one, several = self.sections[section][name]
        text: str = one if number == 1 else several
        return text.format(n=number, **values)


@cache
def texts(language: Language) -> Texts:
    """Return the texts of a language."""
    return Texts(language)


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
