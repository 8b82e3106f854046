"""Names that look the same are one person's: nobody approves what they submitted themselves."""

import pytest

from app.reconcile.approval import person


@pytest.mark.parametrize(
    "name",
    [
        "maria",
        "MARIA",
        "\uff4daria",
        "maria ",
        " maria",
        "ma\u034fria",
        "maria\ufe0f",
        "\u3164maria",
        "maria\uffa0",
        "sso:maria",
        " sso:maria",
        "sso: maria",
        "s\u034fso:maria\u2800",
    ],
)
def test_spellings_that_look_the_same_are_one_person(name: str) -> None:
    assert person(name) == "maria"


@pytest.mark.parametrize("name", ["mar\u00eda", "m\u0430ria", "mari a", "maria2", "drp:maria"])
def test_names_that_look_different_or_are_of_another_script_are_two(name: str) -> None:
    assert person(name) != "maria"
