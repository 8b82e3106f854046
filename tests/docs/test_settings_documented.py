"""docs/configuration.md has exactly one row for each setting, with its default and meaning.

It has one section for each group of settings.
"""

import re
from inspect import get_annotations

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from app.settings import Settings
from app.settings.group import SettingsGroup
from tests.docs.markdown import REPOSITORY, read

PAGE = "docs/configuration.md"
ROW = r"(?m)^\| `LETHE_([A-Z0-9_]+)` \|"


def _row(name: str, field: FieldInfo) -> str:
    default = field.default
    shown = default.get_secret_value() if isinstance(default, SecretStr) else str(default)
    meaning = (field.description or "").replace("|", r"\|")
    return f"| `LETHE_{name.upper()}` | {f'`{shown}`' if shown else 'empty'} | {meaning} |"


def test_every_setting_has_its_row() -> None:
    lines = read(PAGE).splitlines()
    missing = [
        row
        for name, field in Settings.model_fields.items()
        if (row := _row(name, field)) not in lines
    ]
    assert not missing, f"{PAGE} needs:\n" + "\n".join(missing)


def test_every_setting_has_a_meaning() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_no_row_is_of_a_setting_that_is_gone() -> None:
    rows = re.findall(ROW, read(PAGE))
    assert len(rows) == len(set(rows))
    assert {row.lower() for row in rows} == set(Settings.model_fields)


def test_each_section_is_a_group_of_settings() -> None:
    groups = (base for base in Settings.__bases__ if issubclass(base, SettingsGroup))
    fields = {tuple(get_annotations(group)) for group in groups} - {()}  # a check has none
    sections = (re.findall(ROW, section) for section in re.split(r"(?m)^## ", read(PAGE)))
    rows = {tuple(row.lower() for row in section) for section in sections if section}
    assert rows == fields, f"{PAGE} needs a section for each group, in the order of its fields"


def test_variables_that_are_named_anywhere_exist() -> None:
    known = {f"LETHE_{name.upper()}" for name in Settings.model_fields}
    # Of the commands that call a service, and of the tests.
    known |= {"LETHE_URL", "LETHE_TOKEN", "LETHE_CONFIG", "LETHE_SQL", "LETHE_VECTORS"}
    # Key files may name these, and their successors by number.
    known |= {
        f"LETHE_{role}_KEY{number}" for role in ("LOG", "ISSUER") for number in ("", "_2")
    }
    known |= {f"LETHE_TEST_{name}" for name in ("POSTGRES_URL", "REDIS_URL", "PKCS11_MODULE")}
    pages = [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]
    named = {
        match for page in pages for match in re.findall(r"LETHE_[A-Z0-9_]+", page.read_text())
    }
    assert named <= known
