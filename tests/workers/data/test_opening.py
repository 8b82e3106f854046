"""The same rows in every format become the same registration, byte for byte."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.workers.data.tables.test_files import Counted
from workers.data.extractors.identity import Identity
from workers.data.opening import OpenedData, label_table, open_data, opened, read_labelled
from workers.data.tables.labelled import Roles
from workers.data.tables.table import DataTable
from workers.errors import DatasetError
from workers.registration.ridge import prepare
from workers.sql import query_table

ROWS = 60
RNG = np.random.default_rng(0)
COLUMNS: dict[str, list[Any]] = {
    "id": [f"{row:03}" for row in range(ROWS)],
    "churned": [("no", "yes", "maybe")[row % 3] for row in range(ROWS)],
    "region": [("north", "south")[row % 2] for row in range(ROWS)],
    "customer": [f"c{row // 2}" for row in range(ROWS)],
    "email": [f"Person{row // 2}@Example.org" if row % 7 else "" for row in range(ROWS)],
    "f_income": RNG.normal(size=ROWS).tolist(),
    "f_age": RNG.integers(18, 99, ROWS).tolist(),
    "f_member": (RNG.random(ROWS) < 0.5).tolist(),
    "note": ["text"] * ROWS,
}
ROLES = Roles(
    label="churned",
    record_id="id",
    client="region",
    subject="customer",
    persons={"email": "email"},
    features=("f_*",),
)


def as_npz(folder: Path) -> OpenedData:
    names = sorted(set(COLUMNS["churned"]))
    features = [COLUMNS[name] for name in ("f_income", "f_age", "f_member")]
    np.savez(
        folder / "rows.npz",
        features=np.array(features, dtype=np.float64).T.copy(),
        labels=np.array([names.index(label) for label in COLUMNS["churned"]]),
        label_names=np.array(names),
        clients=np.array(COLUMNS["region"]),
        records=np.array(COLUMNS["id"]),
        subjects=np.array(COLUMNS["customer"]),
        identity_email=np.array(COLUMNS["email"]),
    )
    return open_data(folder / "rows.npz")


def as_file(suffix: str, write: Callable[[pa.Table, str], Any]) -> Callable[[Path], OpenedData]:
    def opened(folder: Path) -> OpenedData:
        path = folder / f"rows{suffix}"
        write(pa.table(COLUMNS), str(path))
        return open_data(path, ROLES)

    return opened


def as_arrays(folder: Path) -> OpenedData:
    path = folder / "columns.npz"
    np.savez(path, allow_pickle=False, **{name: np.array(COLUMNS[name]) for name in COLUMNS})
    return open_data(path, ROLES)


def as_matrix(folder: Path) -> OpenedData:
    """Save the features as a matrix in Fortran's order, in bytes of the other order."""
    names = [name for name in COLUMNS if name.startswith("f_")]
    columns = {name: np.array(COLUMNS[name]) for name in COLUMNS if name not in names}
    features = np.array([COLUMNS[name] for name in names]).T.astype(">f8")
    np.savez_compressed(folder / "m.npz", allow_pickle=False, **columns, f=features)
    return open_data(folder / "m.npz", ROLES)


def as_folder(folder: Path) -> OpenedData:
    (folder / "parts").mkdir()
    for start in range(0, ROWS, 25):
        part = pa.table(COLUMNS).slice(start, 25)
        pq.write_table(part, folder / "parts" / f"{start:04}.parquet")
    return open_data(folder / "parts", ROLES)


def as_query(folder: Path) -> OpenedData:
    path = folder / "rows.db"
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE rows ({', '.join(COLUMNS)})")
        marks = ", ".join("?" * len(COLUMNS))
        rows = zip(*COLUMNS.values(), strict=True)
        database.executemany(f"INSERT INTO rows VALUES ({marks})", rows)
    database.close()
    table = query_table(f"sqlite:///{path}", "SELECT * FROM rows ORDER BY id")
    return opened(*label_table(table, ROLES))


DOORS: dict[str, Callable[[Path], OpenedData]] = {
    "parquet": as_file(".parquet", pq.write_table),
    "csv": as_file(".csv", pa_csv.write_csv),
    "feather": as_file(".feather", feather.write_feather),
    "arrays": as_arrays,
    "matrix": as_matrix,
    "folder": as_folder,
    "sql": as_query,
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_gives_the_same_registration(door: str, tmp_path: Path) -> None:
    registrations = [
        prepare(opened.federation, Identity(3), ref="m")
        for opened in (as_npz(tmp_path), DOORS[door](tmp_path))
    ]
    assert registrations[0].npz == registrations[1].npz
    assert registrations[0].manifest == registrations[1].manifest
    assert b"erson0@" not in registrations[1].npz


def test_narrow_columns_give_the_same_registration(tmp_path: Path) -> None:
    features = RNG.normal(size=(20, 2)).astype(np.float32)
    labels = np.arange(20) % 2
    np.savez(tmp_path / "a.npz", features=features, labels=labels, clients=np.full(20, "all"))
    table = pa.table({"y": labels, "a": features[:, 0], "b": features[:, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    opened = [open_data(tmp_path / "a.npz"), open_data(tmp_path / "a.parquet", Roles("y"))]
    assert opened[1].federation.features.dtype == np.float32
    first, second = (prepare(one.federation, Identity(2), ref="m") for one in opened)
    assert first.npz == second.npz


def test_a_summary_says_what_was_taken_and_what_was_not(tmp_path: Path) -> None:
    columns = {**COLUMNS, "churned": [None, None, *COLUMNS["churned"][2:]]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    assert open_data(tmp_path / "rows.parquet", ROLES).taken.lines() == [
        "60 rows, 3 features: f_income, f_age, f_member",
        "label churned: 3 classes, maybe, no, yes",
        "not used: note",
        "left out: 2 rows without a label",
        "held out: 5 rows (a tenth, drawn at random)",
    ]
    assert as_npz(tmp_path).taken.lines() == [
        "60 rows, 3 features",
        "label: 3 classes, maybe, no, yes",
        "held out: 6 rows (a tenth, drawn at random)",
    ]


def test_a_summary_says_that_no_column_names_clients(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": [0, 1, 1], "x": [0.5, 1, 2]}), tmp_path / "a.parquet")
    assert open_data(tmp_path / "a.parquet", Roles("y")).taken.lines() == [
        "3 rows, 1 feature: x",
        "label y: 2 classes, 0, 1",
        'client: "all" for every row; --client names a column',
        "held out: 1 row (a tenth, drawn at random)",
    ]


def test_identities_are_hashed_where_they_are_read(tmp_path: Path) -> None:
    (found,) = DOORS["parquet"](tmp_path).federation.identities.values()
    assert found.dtype == np.uint8
    assert not found[0].any()  # an empty cell is nobody
    assert found[2].tolist() == found[3].tolist()  # one person, two rows
    pq.write_table(pa.table({**COLUMNS, "email": ["a\tb"] * ROWS}), tmp_path / "bad.parquet")
    with pytest.raises(DatasetError, match=r"email: row 1: .*control character") as error:
        open_data(tmp_path / "bad.parquet", ROLES)
    assert "a\tb" not in str(error.value)


def test_an_npz_has_names_of_its_own_or_columns(tmp_path: Path) -> None:
    by_its_own = as_npz(tmp_path)
    path = tmp_path / "rows.npz"
    roles = Roles("labels", client="clients", record_id="records", features=("features_*",))
    by_columns = open_data(path, roles)
    first, second = (
        prepare(one.federation, Identity(3), ref="m").manifest
        for one in (by_its_own, by_columns)
    )
    assert {**first, "classes": ["0", "1", "2"]} == second  # nothing reads label_names here
    assert by_columns.taken.lines() == [
        "60 rows, 3 features: features_0, features_1, features_2",
        "label labels: 3 classes, 0, 1, 2",
        "not used: label_names, subjects, identity_email",
        "held out: 6 rows (a tenth, drawn at random)",
    ]
    with pytest.raises(DatasetError, match="churned: no such column; the table has features_0"):
        open_data(path, Roles("churned", features=("f_*",)))
    with pytest.raises(DatasetError, match="name the column of the classes with --label"):
        open_data(path, Roles(holdout="test"))
    half = open_data(path, Roles(holdout=0.5))
    assert half.federation.is_test.sum() == 30
    assert half.taken.lines()[-1] == "held out: 30 rows (0.5 of them, drawn at random)"
    assert not open_data(path, Roles(holdout="none")).federation.is_test.any()


def test_a_table_needs_the_name_of_its_label(tmp_path: Path) -> None:
    pq.write_table(pa.table(COLUMNS), tmp_path / "rows.parquet")
    with pytest.raises(DatasetError, match="with --label; the table has id, churned, region"):
        open_data(tmp_path / "rows.parquet")


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.data.opening.find_spec", lambda name: None)
    assert as_npz(tmp_path).federation.features.shape == (ROWS, 3)
    with pytest.raises(DatasetError, match=r"reading a table needs pyarrow: .*\[tables\]"):
        open_data(tmp_path / "rows.parquet", ROLES)


def test_the_names_of_wide_tables_are_not_compared_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [Counted(f"c{number}") for number in range(300)]
    columns = {str(name): [1.0, 2.0] for name in names}

    def read_table(path: Path, choose: Callable[[Any], Any], **_: Any) -> DataTable:
        choose(names)
        return DataTable(pa.table(columns))

    monkeypatch.setattr("workers.data.tables.files.read_table", read_table)
    Counted.compared = 0
    _, unused = read_labelled(Path("wide.csv"), Roles(unlabelled=True))
    assert unused == ()
    assert Counted.compared < 10 * 300
