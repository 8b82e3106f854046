"""Read an .npz, a table or a folder of masks, and pack it as a network's registration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lethe.identity import HELD_OUT
from workers.arrays import UNREADABLE, load_numpy
from workers.data import identities
from workers.data.image_npz import load_image_npz
from workers.data.images import numbered
from workers.data.masks import load_masks
from workers.data.opening import Progress, is_table, open_data
from workers.data.owners import AS_NAMED, Ownership, assign
from workers.errors import DatasetError, RefusedError
from workers.registration.network import (
    NetworkOptions,
    NetworkRegistration,
    held_out_images,
    learned_rows,
    pack,
    prepare_images,
    prepare_masks,
    unowned,
    with_report,
)

if TYPE_CHECKING:
    from workers.data.tables.labelled import Roles

Format = Literal["npz", "masks", "table"]
FORMATS: tuple[Format, ...] = get_args(Format)
KNOWN = ("inputs", "labels", "clients", "records", "subjects", "label_names", "is_test")


@dataclass(frozen=True, slots=True)
class Source:
    """The location of rows, and how their owners are determined.

    form None: masks for a folder with masks, npz for a file of that suffix, else a table.
    classes: their names in order, for data without names; empty: those of the data, or numbers.
    mask_values: the grey value of each class, empty if the grey value is the class. roles: of a
    table's columns. progress: called with how much of a table is read.
    """

    path: Path
    form: Format | None = None
    owners: Ownership = AS_NAMED
    classes: tuple[str, ...] = ()
    mask_values: tuple[int, ...] = ()
    roles: "Roles | None" = None
    progress: Progress = lambda done, total: None


def prepare(source: Source, *, ref: str, options: NetworkOptions) -> NetworkRegistration:
    """Pack the rows of a source that the data do not hold out and whose client is selected.

    Raises RefusedError, naming the remedy, if the data cannot be read, do not name owners while
    nothing is to be dealt, or do not fit the options.
    """
    form = source.form or _form(source)
    if source.mask_values and form != "masks":
        raise DatasetError("the grey of a class is for --format masks: leave --mask-value out")
    if form == "table":
        return _table(source, ref, options)
    _refuse_columns(source.roles)
    if form == "masks":
        return _masks(source, ref, options)
    if "inputs" in _names(source.path):
        return prepare_rows(source, ref=ref, options=options)
    images = load_image_npz(source.path)
    if source.classes:
        images = replace(images, label_names=source.classes)
    learned = learned_rows(images)
    found = None if images.clients is None else images.clients[learned]
    kept, clients = assign(found, images.labels[learned], source.owners)
    made = prepare_images(images, learned[kept], clients, ref=ref, options=options)
    inputs, labels = held_out_images(images, options.network)
    left_out = len(learned) - len(kept)
    return with_report(made, (), left_out=left_out, inputs=inputs, labels=labels)


def prepare_rows(source: Source, *, ref: str, options: NetworkOptions) -> NetworkRegistration:
    """Pack an .npz with inputs and labels; clients, records, subjects, label_names, is_test.

    Raises DatasetError if the file is not such an .npz, or as `assign`. The service checks the
    arrays further.
    """
    try:
        with load_numpy(source.path) as archive:
            wanted = {*KNOWN, *identities.names(archive.files)}
            arrays = {name: archive[name] for name in archive.files if name in wanted}
    except UNREADABLE:
        raise DatasetError("the file is not a readable .npz: save it again") from None
    names = arrays.pop("label_names", None)
    people = {name: arrays.pop(name) for name in identities.names(arrays)}
    for name in ("inputs", "labels"):
        if name not in arrays or arrays[name].ndim < 1 or not len(arrays[name]):
            raise DatasetError(
                f"{name}: missing or empty: the .npz needs inputs and labels, one row each"
            )
    if arrays["inputs"].ndim not in (2, 4) or arrays["labels"].dtype.kind not in "iu":
        raise DatasetError(
            "inputs: must have the shape (n, features) or (n, channels, height, "
            "width), and labels must be integers"
        )
    arrays.setdefault("records", np.arange(len(arrays["inputs"])).astype(np.str_))
    for name, array in arrays.items():
        if array.ndim < 1 or len(array) != len(arrays["inputs"]):
            raise DatasetError(f"{name}: must hold exactly one entry for each row")
    found = identities.columns(people, len(arrays["inputs"]))
    if arrays.get("is_test", np.zeros(0, np.bool_)).dtype != np.bool_:
        raise DatasetError("is_test: must be booleans, true for the rows that are held out")
    if names is not None and names.ndim != 1:
        raise DatasetError("label_names: must be a list of strings")
    classes = source.classes or numbered(arrays["labels"].astype(np.int64))
    if names is not None and not source.classes:
        classes = tuple(str(name) for name in names.tolist())
    return _pack_rows(source, arrays, found, list(classes), ref, options, ())


def _pack_rows(
    source: Source,
    arrays: dict[str, NDArray[Any]],
    people: Mapping[str, identities.Column],
    classes: list[str],
    ref: str,
    options: NetworkOptions,
    lines: Sequence[str],
) -> NetworkRegistration:
    """Pack the rows of selected clients; `arrays` may lack clients and is_test (n,).

    lines: the summary of a table to print.
    """
    held = arrays.pop("is_test", np.zeros(len(arrays["inputs"]), np.bool_))
    if held.all():
        raise RefusedError("the data hold out every row: leave some to train on")
    evaluation = {}
    if options.send_held_out:
        owners = arrays.get("clients", unowned(len(held))).astype(np.str_)
        subjects = arrays.get("subjects", owners)
        evaluation = identities.rows_to_send(
            arrays["inputs"],
            arrays["labels"].astype(np.int64),
            {"clients": owners, "records": arrays["records"].astype(np.str_)}
            | {"subjects": subjects.astype(np.str_)},
            held,
        )
    sent = identities.to_send(people, arrays["records"].astype(np.str_), held)
    of_held_out = {name: one for name, one in sent.items() if name.startswith(HELD_OUT)}
    learned = {name: array[~held] for name, array in arrays.items()}
    learned |= {name: one for name, one in sent.items() if name not in of_held_out}
    kept, clients = assign(learned.pop("clients", None), learned["labels"], source.owners)
    if len(kept) < len(learned["inputs"]):
        learned = {name: array[kept] for name, array in learned.items()}
    learned["clients"] = clients
    learned |= {**of_held_out, **evaluation}
    made = pack(learned, classes, ref=ref, options=options)
    inputs, labels = arrays["inputs"][held], arrays["labels"][held].astype(np.int64)
    left_out = len(held) - len(inputs) - len(kept)
    return with_report(made, lines, left_out=left_out, inputs=inputs, labels=labels)


def _form(source: Source) -> Format:
    folders = (source.path / "images", source.path / "masks")
    # A folder with masks only, without names of classes.
    if any(folder.is_dir() for folder in folders) or (source.path.is_dir() and source.classes):
        return "masks"
    return "table" if is_table(source.path, source.roles) else "npz"


def _refuse_columns(roles: "Roles | None") -> None:
    """Raise DatasetError if columns are named for data that are not read as a table."""
    if roles is not None and (named := roles.option_names()):
        raise DatasetError(f"only a table has columns to name: omit {', '.join(named)}")


def _table(source: Source, ref: str, options: NetworkOptions) -> NetworkRegistration:
    """Pack the features of a table as vectors; rows that a column holds out are left out."""
    if source.classes:
        raise DatasetError("the classes of a table are its labels: leave --class out")
    roles = source.roles
    if roles is not None and roles.holdout is None:
        unasked = None if options.send_held_out else "none"
        roles = replace(roles, holdout=unasked)  # the service takes its own held-out rows
    opened = open_data(source.path, roles, progress=source.progress)
    rows = opened.federation
    with np.errstate(over="ignore"):
        inputs = rows.features.astype(np.float32)
    if not np.isfinite(inputs).all():
        raise DatasetError(
            "features: a value exceeds the range of float32, in which networks compute: "
            "rescale it"
        )
    arrays: dict[str, NDArray[Any]] = {
        "inputs": inputs,
        "labels": rows.labels,
        "records": rows.records,
    }
    if rows.subjects is not None:
        arrays["subjects"] = rows.subjects
    if source.owners.deal is None or (roles is not None and roles.client is not None):
        arrays["clients"] = rows.clients
    arrays["is_test"] = rows.is_test
    names, lines = list(rows.label_names), opened.taken.lines()
    return _pack_rows(source, arrays, rows.identities, names, ref, options, lines)


def _masks(source: Source, ref: str, options: NetworkOptions) -> NetworkRegistration:
    if not (source.path / "images").is_dir() or not (source.path / "masks").is_dir():
        raise DatasetError(
            "a folder must hold images/SITE/NAME.png and masks/SITE/NAME.png: write other "
            "rows as an .npz"
        )
    if not source.classes:
        raise RefusedError(
            "masks do not name their classes: name them in the order of their numbers, "
            "--class background --class tumour"
        )
    values = source.mask_values or None
    images = load_masks(source.path, len(source.classes), values=values)
    kept, clients = assign(images.clients, images.masks, source.owners)
    made = prepare_masks(images, kept, clients, source.classes, ref=ref, options=options)
    return with_report(made, (), left_out=len(images.images) - len(kept))


def _names(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz."""
    try:
        with path.open("rb") as file:
            found = load_numpy(file)
            return list(found.files) if isinstance(found, np.lib.npyio.NpzFile) else []
    except UNREADABLE:
        raise DatasetError("the data are not a readable .npz: save it again") from None
