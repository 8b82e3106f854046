"""The columns of a table, each in its role."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from workers.data.federation import ONE_CLIENT
from workers.data.tables.labelled import Roles, labelled
from workers.data.tables.table import DataTable
from workers.errors import DatasetError

COLUMNS: dict[str, Any] = {
    "id": [f"r{row}" for row in range(10)],
    "churned": ["yes", "no"] * 4 + [None, "yes"],
    "region": ["north"] * 5 + ["south"] * 5,
    "person": [f"p{row // 2}" for row in range(10)],
    "email": [f"p{row // 2}@example.org" for row in range(10)],
    "test": [True] + [False] * 9,
    "f_age": [20.5 + row for row in range(10)],
    "f_sum": list(range(10)),
    "note": ["free text"] * 10,
}
ROLES: dict[str, Any] = {
    "label": "churned",
    "record_id": "id",
    "client": "region",
    "features": ("f_*",),
}


def table(**changes: Any) -> DataTable:
    columns = {**COLUMNS, **changes}
    return DataTable(
        pa.table({name: held for name, held in columns.items() if held is not None})
    )


def test_each_column_in_its_role() -> None:
    roles = Roles(**ROLES, subject="person", persons={"email": "email"}, holdout="test")
    got = labelled(table(), roles)
    assert got.features == ("f_age", "f_sum")
    assert got.label_names == ("no", "yes")
    assert got.labels.tolist() == [1, 0] * 4 + [1]
    assert got.records.tolist() == [f"r{row}" for row in range(10) if row != 8]
    assert got.clients.tolist() == ["north"] * 5 + ["south"] * 4
    assert got.subjects is not None
    assert got.subjects.tolist() == ["p0", "p0", "p1", "p1", "p2", "p2", "p3", "p3", "p4"]
    assert got.is_test.tolist() == [True] + [False] * 8
    assert (got.unlabelled, got.chosen_by) == (1, "by test")
    federation = got.federation()
    assert federation.features.tolist() == [[20.5 + row, row] for row in range(10) if row != 8]


def test_what_no_column_says_has_a_name() -> None:
    got = labelled(table(), Roles("churned", features=("f_*",)))
    assert set(got.clients.tolist()) == {ONE_CLIENT}
    assert got.records.tolist()[-2:] == [
        "record-0000007",
        "record-0000009",
    ]  # positions in the file
    assert got.subjects is None
    assert (got.is_test.sum(), got.chosen_by) == (1, "a tenth, drawn at random")
    assert labelled(table(), Roles("churned", holdout=0.5)).is_test.sum() == 4
    assert not labelled(table(), Roles("churned", holdout="none")).is_test.any()


def test_only_columns_with_a_role_are_read() -> None:
    roles = Roles(**ROLES, persons={"email": "email"})
    assert roles.chosen(tuple(COLUMNS)) == [
        "churned", "id", "region", "email", "f_age", "f_sum",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("features", "names"),
    [
        ((), ["test", "person", "email", "f_age", "f_sum", "note"]),
        (("f_sum", "f_age"), ["f_age", "f_sum"]),
        (("f_*", "test"), ["test", "f_age", "f_sum"]),
        (("*e*",), ["person", "email", "test", "f_age", "note"]),  # churned, region have roles
        (("*[mn]", "f_sum"), ["person", "f_sum"]),
    ],
)
def test_features_by_name_and_glob(features: tuple[str, ...], names: list[str]) -> None:
    roles = Roles(**{**ROLES, "features": features})
    expected = [name for name in COLUMNS if name in names]
    assert roles.feature_names(tuple(COLUMNS)) == expected


def test_a_name_that_exists_is_no_glob() -> None:
    names = ("y", "a[1]", "a1")
    assert Roles("y", features=("a[1]",)).feature_names(names) == ["a[1]"]
    assert Roles("y", features=("a[0-9]",)).feature_names(names) == ["a1"]


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"label": "churnd"}, "churnd: no such column; did you mean churned"),
        ({"label": "note"}, "note: has one value only"),
        ({"label": "f_age"}, "f_age: holds numbers with fractions"),
        ({"record_id": "person"}, "person: 4 rows repeat an id"),
        ({"record_id": "f_age"}, "f_age: numbers with fractions .*; ids are integers or texts"),
        ({"client": "zone"}, "zone: no such column"),
        ({"client": "test"}, "test: booleans"),
        ({"subject": "nobody"}, "nobody: no such column"),
        ({"persons": {"email": "mail"}}, "mail: no such column; did you mean email"),
        ({"features": ("g_*",)}, r"g_\*: no such column"),
        ({"features": ("churned",)}, "churned: is the label and cannot be a feature"),
        (
            {"features": ("email",), "persons": {"email": "email"}},
            "email: is the person's email",
        ),
        ({"holdout": "f_age"}, "f_age: must hold true and false"),
        ({"holdout": 1.0}, "holdout: must be a share between 0 and 1"),
        ({"holdout": 0.0}, "holdout: must be a share"),
    ],
)
def test_columns_that_do_not_suit_their_role(roles: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        labelled(table(), Roles(**{**ROLES, **roles}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"churned": pa.array([None] * 10, pa.string())}, "churned: every value is missing"),
        ({"id": [None, *COLUMNS["id"][1:]]}, "id: 1 of 9 values are missing, as an id"),
        ({"test": [True] * 10}, "test: holds out every row"),
    ],
)
def test_rows_that_do_not_suit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        labelled(table(**changes), Roles(**ROLES, holdout="test"))


def test_features_of_other_kinds_are_refused_by_their_name() -> None:
    got = labelled(table(f_age=[1.0, None] * 5), Roles(**ROLES))
    with pytest.raises(DatasetError, match="f_age: 5 of 9 values are missing"):
        got.federation()
    assert np.isnan(got.matrix(allow_missing=True)[:, 0]).sum() == 5
    with pytest.raises(DatasetError, match=r"note: text \(string\), not a number"):
        labelled(table(), Roles("churned", features=("note",))).federation()


def test_no_problem_quotes_an_id() -> None:
    twice = table(id=["secret"] * 10)
    with pytest.raises(DatasetError) as error:
        labelled(twice, Roles(**ROLES))
    assert "secret" not in str(error.value)
