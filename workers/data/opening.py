"""Opens any data source: an .npz, a table, a folder of tables, or a query's result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from workers import libraries
from workers.data.extractors.described import Described
from workers.data.federation import ONE_CLIENT, Federation, counted, share_name
from workers.data.npz import load_npz, names_held_out, unused
from workers.data.raw import load_extractor
from workers.errors import DatasetError

if TYPE_CHECKING:
    from workers.data.tables.labelled import LabelledTable, Roles
    from workers.data.tables.table import DataTable

NPZ = ".npz"
MOST_NAMES = 8  # of columns, in a summary
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Taken:
    """A summary of the data read, for a person: column names and counts, no values.

    features, unused: columns of a table, or the number in an .npz. label: its column, empty
    for an .npz or if rows need none; without classes it holds numbers. unlabelled: the number
    of rows skipped. held_out, chosen_by: the number of held-out rows and how they were
    chosen. one_client: no column names clients.
    """

    rows: int
    label: str
    classes: tuple[str, ...]
    features: tuple[str, ...] | int
    unused: tuple[str, ...]
    unlabelled: int
    held_out: int
    chosen_by: str
    one_client: bool = False

    def lines(self) -> list[str]:
        """Return the summary for a person, one sentence per line."""
        if isinstance(self.features, int):
            features = counted(self.features, "feature")
        else:
            features = f"{counted(len(self.features), 'feature')}: {some(self.features)}"
        found = [f"{counted(self.rows, 'row')}, {features}"]
        name = f"label {self.label}" if self.label else "label"
        if self.classes:
            found.append(f"{name}: {len(self.classes):,} classes, {some(self.classes)}")
        elif self.label:
            found.append(f"{name}: numbers")
        return [*found, *self.left()]

    def left(self) -> list[str]:
        """Return which data no model learns, and the client of all rows if none is named.

        One sentence per line.
        """
        found = []
        if self.one_client:
            found.append(f'client: "{ONE_CLIENT}" for every row; --client names a column')
        if self.unused:
            found.append(f"not used: {some(self.unused)}")
        if self.unlabelled:
            found.append(f"left out: {counted(self.unlabelled, 'row')} without a label")
        found.append(f"held out: {counted(self.held_out, 'row')} ({self.chosen_by})")
        return found


@dataclass(frozen=True, slots=True, eq=False)
class OpenedData:
    """Rows as a federation, the extractor that an .npz names, and the summary."""

    federation: Federation
    extractor: Described | None
    taken: Taken


def open_data(
    path: Path,
    roles: "Roles | None" = None,
    *,
    progress: Progress = lambda done, total: None,
) -> OpenedData:
    """Return the rows of an .npz, or of a table whose columns have these roles.

    Raises DatasetError if the file is unreadable or too large, or a column is unknown or
    holds values that its role does not allow.
    """
    if not is_table(path, roles):
        return _open_npz(path, roles)
    found, unused = read_labelled(path, roles, progress=progress)
    return opened(found, unused)


def named_extractor(path: Path) -> Described | None:
    """Return the extractor of the features, if an .npz names it."""
    return None if is_table(path) else load_extractor(path)


def is_table(path: Path, roles: "Roles | None" = None) -> bool:
    """Return whether a path is read as a table rather than as an .npz of known arrays.

    True for a folder, another suffix than .npz, or named `roles`.
    """
    named = roles is not None and bool(roles.option_names())
    return named or path.is_dir() or path.suffix.lower() != NPZ


def read_labelled(
    path: Path,
    roles: "Roles | None",
    *,
    progress: Progress = lambda done, total: None,
) -> "tuple[LabelledTable, tuple[str, ...]]":
    """Return the labelled rows of a table, and its columns without a role.

    Raises DatasetError as `open_data`.
    """
    check_installed()
    from workers.data.tables.files import read_table
    from workers.data.tables.labelled import Roles, labelled

    wanted = roles or Roles()
    names: dict[str, None] = {}

    def choose(found: Sequence[str]) -> list[str]:
        names.update(dict.fromkeys(found))
        wanted.check_label(found)
        return wanted.chosen(found)

    table = read_table(path, choose, progress=progress)
    rows = labelled(table, wanted)
    kept = set(table.names)
    return rows, tuple(name for name in names if name not in kept)


def label_table(
    table: "DataTable", roles: "Roles | None"
) -> "tuple[LabelledTable, tuple[str, ...]]":
    """Return the result of `read_labelled` for a table in memory, such as a query's result.

    Raises DatasetError as `open_data`.
    """
    from workers.data.tables.labelled import Roles, labelled

    wanted = roles or Roles()
    rows = labelled(table, wanted)
    used = set(wanted.chosen(table.names))
    return rows, tuple(name for name in table.names if name not in used)


def opened(rows: "LabelledTable", unused: tuple[str, ...]) -> OpenedData:
    """Return labelled rows as a federation. Raises DatasetError as `DataTable.matrix`."""
    return OpenedData(rows.federation(), None, taken(rows, unused))


def taken(rows: "LabelledTable", unused: tuple[str, ...]) -> Taken:
    """Return the summary of a table. unused: its columns without a role."""
    return Taken(
        rows=len(rows.table) + rows.unlabelled,
        label=rows.label,
        classes=rows.label_names,
        features=rows.features,
        unused=unused,
        unlabelled=rows.unlabelled,
        held_out=int(rows.is_test.sum()),
        chosen_by=rows.chosen_by,
        one_client=rows.one_client,
    )


def check_installed() -> None:
    """Raise DatasetError if pyarrow is missing."""
    if find_spec("pyarrow") is None:
        raise DatasetError(f"reading a table needs pyarrow: {libraries.with_extra('tables')}")


def _open_npz(path: Path, roles: "Roles | None") -> OpenedData:
    share = None if roles is None else roles.npz_share()
    federation = load_npz(path) if share is None else load_npz(path, share=share)
    if names_held_out(path):
        if share is not None:
            raise DatasetError("is_test says which rows are held out: leave --holdout out")
        chosen_by = "by is_test"
    else:
        chosen_by = share_name(share)
    found = Taken(
        rows=len(federation.labels),
        label="",
        classes=federation.label_names,
        features=federation.features.shape[1],
        unused=unused(path),
        unlabelled=0,
        held_out=int(federation.is_test.sum()),
        chosen_by=chosen_by,
    )
    return OpenedData(federation, load_extractor(path), found)


def some(names: Sequence[str]) -> str:
    """Return names for a person, shortened if there are many."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
