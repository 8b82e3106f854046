"""The client's side of a model whose rows stay with it: local features and statistics."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lethe.identity import COLUMN
from workers.arrays import UNREADABLE, Rows, load_numpy
from workers.data import identities
from workers.data.extractors import registry
from workers.data.extractors.base import Extractor
from workers.data.extractors.described import Described
from workers.data.extractors.identity import Identity
from workers.data.federation import Federation, counted
from workers.data.npz import load_npz
from workers.data.opening import Progress, is_table, open_data
from workers.errors import ExactnessError, RefusedError
from workers.methods.ridge.sketches.kinds import compress
from workers.methods.ridge.statistics.message import Message, summarise, with_factor
from workers.methods.ridge.statistics.quantiser import Quantiser
from workers.secure_sum.plan import MAX_CLASSES, MAX_DIMENSION
from workers.secure_sum.wire import Envelope, Form, pack_message

if TYPE_CHECKING:
    from workers.data.tables.labelled import Roles

RANDOM = "random-relu"
COMPUTED = ("identity", RANDOM)  # extractors without files
NEEDED = ("features", "labels", "clients", "records")


@dataclass(frozen=True, slots=True, eq=False)
class LocalRows:
    """A client's rows: features (n, d) float, labels (n,) int, and ids (n,) each.

    identities: by kind, digests (n, WIDTH) as from `workers.data.identities.hashed`.
    label_names: names of the labels, in a table or an .npz that names them; None: labels are
    the model's class numbers. names: of the features, if they are columns of a table. lines:
    which columns and rows of the data are used, for people.
    """

    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    clients: list[str]
    records: list[str]
    subjects: list[str]
    identities: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    label_names: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def owners(self) -> Iterator[tuple[str, str]]:
        """Yield each distinct (client, subject) of the rows, in order of appearance."""
        return iter(dict.fromkeys(zip(self.clients, self.subjects, strict=True)))

    def owned(self, client: str, subject: str) -> list[str]:
        """Return the ids of one owner's rows."""
        return [
            record
            for record, *owner in zip(self.records, self.clients, self.subjects, strict=True)
            if owner == [client, subject]
        ]


def load_rows(
    path: Path,
    roles: "Roles | None" = None,
    *,
    people: bool = False,
    progress: Progress = lambda done, total: None,
) -> LocalRows:
    """Read an .npz of features, labels, clients, records and optionally subjects, is_test.

    Or a table with columns named by `roles`. Held-out rows are skipped. people: read
    identities too, which only a contribution needs. Raises RefusedError for any other file,
    as `workers.data.npz.load_npz`, or a table without columns of clients and records.
    """
    if is_table(path, roles):
        return _table_rows(path, roles, people, progress)
    try:
        return parse_rows(path.read_bytes(), people=people)
    except OSError:
        raise RefusedError("DATA cannot be read: check the path and its permissions") from None


def _table_rows(
    path: Path, roles: "Roles | None", people: bool, progress: Progress
) -> LocalRows:
    missing = [
        option
        for option, column in (
            ("--record-id", roles and roles.record_id),
            ("--client", roles and roles.client),
        )
        if column is None
    ]
    if missing:
        raise RefusedError(f"name the columns of whose the rows are: {' and '.join(missing)}")
    opened = open_data(path, roles, progress=progress)
    found = opened.federation
    taken = opened.taken
    names = () if isinstance(taken.features, int) else taken.features
    rows = _local(found, people, label_names=found.label_names, lines=tuple(taken.lines()))
    return replace(rows, names=names)


def _local(
    found: Federation,
    people: bool,
    *,
    label_names: tuple[str, ...] | None,
    lines: tuple[str, ...],
) -> LocalRows:
    """Return the rows of a federation that are not held out."""
    kept = ~found.is_test
    clients: list[str] = found.clients[kept].tolist()
    return LocalRows(
        features=found.features[kept],
        labels=found.labels[kept],
        clients=clients,
        records=found.records[kept].tolist(),
        subjects=clients if found.subjects is None else found.subjects[kept].tolist(),
        identities={
            kind: identities.hashed(kind, column[kept])
            for kind, column in found.identities.items()
            if people
        },
        label_names=label_names,
        lines=lines,
    )


def numbered(rows: LocalRows, classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the labels (n,) as numbers of a model's classes.

    Raises RefusedError for labels outside the classes.
    """
    if rows.label_names is None:
        return rows.labels
    places = {name: place for place, name in enumerate(classes)}
    numbers = np.array([places.get(name, -1) for name in rows.label_names])[rows.labels]
    unknown = int((numbers < 0).sum())
    if unknown:
        raise RefusedError(
            f"{unknown:,} rows have a label that is none of the model's classes, "
            "which `lethe model show` lists: correct the labels or leave these "
            "rows out"
        )
    return numbers.astype(np.int64)


def pack_rows(rows: LocalRows, classes: Sequence[str]) -> bytes:
    """Return the .npz of rows that a contribution sends. Raises RefusedError as `numbered`."""
    packed = io.BytesIO()
    np.savez(
        packed,
        allow_pickle=False,
        features=rows.features,
        labels=numbered(rows, classes),
        clients=np.array(rows.clients),
        records=np.array(rows.records),
        subjects=np.array(rows.subjects),
        **{COLUMN + kind: column for kind, column in rows.identities.items()},
    )
    return packed.getvalue()


def parse_rows(data: bytes, *, people: bool = False) -> LocalRows:
    """Return the rows of an .npz, as `load_rows` reads them. Raises RefusedError."""
    try:
        with load_numpy(io.BytesIO(data)) as archive:
            names = list(archive.files)
    except UNREADABLE:
        raise RefusedError("the rows are not a readable .npz file") from None
    if missing := [name for name in NEEDED if name not in names]:
        raise RefusedError(f"the .npz lacks: {', '.join(missing)}")
    found = load_npz(io.BytesIO(data), share=0.0)
    held_out = int(found.is_test.sum())
    lines = [f"held out: {counted(held_out, 'row')} (by is_test)"] * (held_out > 0)
    own = found.label_names if "label_names" in names else None
    return _local(found, people, label_names=own, lines=tuple(lines))


def check_description(manifest: Mapping[str, Any]) -> None:
    """Raise RefusedError unless a service's description of a model has what sums need.

    The service chooses the sizes of what is allocated here: bound them.
    """
    bits, exponents = manifest.get("bits"), manifest.get("exponents")
    classes, extractor = manifest.get("classes"), manifest.get("extractor")
    if type(bits) is not int:
        raise RefusedError("the service describes a model without a width in bits")
    if not _are(exponents, int, MAX_DIMENSION) or not _are(classes, str, MAX_CLASSES):
        raise RefusedError(
            "the service describes a model without exponents or classes, or with more than "
            f"{MAX_DIMENSION:,} columns or {MAX_CLASSES:,} classes"
        )
    if (names := manifest.get("features")) and not _are(names, str, MAX_DIMENSION):
        raise RefusedError("the service describes a model whose features have no names")
    named = extractor if isinstance(extractor, dict) else {}
    parameters = named.get("parameters", {})
    texts = [named.get("id"), named.get("digest")]
    if not isinstance(parameters, dict) or not _are([*texts, *parameters.values()], str, 100):
        raise RefusedError("the service describes a model without an extractor")


def _are(found: object, kind: type, most: int) -> bool:
    """Return whether this is a list of 1 to `most` values of exactly one type."""
    return (
        isinstance(found, list)
        and 1 <= len(found) <= most
        and all(type(one) is kind for one in found)
    )


def check_extractor(manifest: Mapping[str, Any], named: Described | None) -> None:
    """Raise RefusedError if another extractor than the model's made a file's features.

    named: the extractor that the file names, if any.
    """
    wanted = manifest.get("extractor")
    if named is not None and wanted is not None and named.digest != wanted["digest"]:
        raise _other_features(wanted)


def _other_features(wanted: Mapping[str, Any]) -> RefusedError:
    return RefusedError(
        f"the model reads features of {wanted['id']}, digest {wanted['digest']}: make "
        "them with `lethe features extract`"
    )


def with_features(
    rows: LocalRows, manifest: Mapping[str, Any], named: Described | None
) -> LocalRows:
    """Return the rows with the features of the model's extractor.

    named: the extractor that made the rows' features, according to their file; without one
    the features are the extractor's inputs. Raises RefusedError if another extractor made
    them, the extractor needs its files, or the description is none.
    """
    check_description(manifest)
    wanted = manifest["extractor"]
    rows = _in_order(rows, manifest.get("features") or [])
    source: Extractor = named or Identity(rows.features.shape[1])
    if source.digest == wanted["digest"]:
        return rows
    check_extractor(manifest, named)
    if wanted["id"] not in COMPUTED:
        raise _other_features(wanted)
    inputs, outputs = rows.features.shape[1], len(manifest["exponents"])
    parameters = wanted.get("parameters", {})
    shape = {"inputs": str(inputs), "outputs": str(outputs)}
    if wanted["id"] == RANDOM and not shape.items() <= parameters.items():
        raise RefusedError(
            f"the service describes random features of another size than {inputs} inputs, as "
            f"these rows have, and {outputs} outputs, as the model has"
        )
    extractor = registry.get(wanted["id"], parameters, digest=wanted["digest"])
    return replace(rows, features=extractor.extract(rows.features), names=())


def _in_order(rows: LocalRows, wanted: Sequence[str]) -> LocalRows:
    """Return rows of a table with the model's features in its order, if both have names.

    Raises RefusedError: the names are others.
    """
    if not wanted or not rows.names:
        return rows
    if sorted(rows.names) != sorted(wanted):
        raise RefusedError(
            "DATA or --features names other features than the model has, which "
            "`lethe model show --json` lists"
        )
    places = [rows.names.index(name) for name in wanted]
    return replace(rows, features=rows.features[:, places], names=tuple(wanted))


def message_of(
    rows: LocalRows,
    records: list[str],
    manifest: Mapping[str, Any],
    *,
    form: Form = "gram",
    rank: int | None = None,
    kind: str = "eigen",
) -> bytes:
    """Return the .npz message of some of the rows, all of one client and one subject.

    manifest: the service's description of the model. form "factor": the thin QR factor in
    place of the Gram matrix, smaller for fewer rows than columns; "sketch": a sketch of
    `rank` rows, of a kind in `workers.methods.ridge.sketches.kinds`, with its error. Raises
    RefusedError if a record is not among the rows, they belong to several owners, or the rows
    do not fit the model.
    """
    place = {record: position for position, record in enumerate(rows.records)}
    unknown = sum(record not in place for record in records)
    if not records:
        raise RefusedError("records: name at least one to send")
    if unknown:
        raise RefusedError(
            f"{unknown} of the {len(records)} records asked for are not in these "
            "rows: give all rows that were contributed"
        )
    chosen = [place[record] for record in records]
    owners = {(rows.clients[position], rows.subjects[position]) for position in chosen}
    if len(owners) != 1:
        raise RefusedError(
            "the chosen rows are of several clients or subjects: send one message for each"
        )
    codes = quantise(rows, chosen, manifest)
    bits = int(manifest["bits"])
    exact = summarise(codes, codes.codes.shape[1], len(manifest["classes"]), bits=bits)
    ((client, subject),) = owners
    people = {COLUMN + kind: all_[chosen] for kind, all_ in rows.identities.items()}
    if form == "sketch":
        sketch, message = compress(exact, rank or 1, kind, codes=codes.codes)
        return pack_message(Envelope(message, records, client, subject, people), sketch)
    if form == "factor":
        exact = _factored(exact, codes)
    return pack_message(Envelope(exact, records, client, subject, people))


def quantise(rows: LocalRows, chosen: list[int], manifest: Mapping[str, Any]) -> Rows:
    """Return the codes of some rows, with the quantiser steps shared by all clients.

    Raises RefusedError for NaN, infinity, another width, other features or an unknown label.
    """
    rows = _in_order(rows, manifest.get("features") or [])
    positions = np.array(chosen)
    labels = numbered(rows, manifest["classes"])[positions]
    if labels.min() < 0 or labels.max() >= len(manifest["classes"]):
        raise RefusedError(
            f"labels: must lie between 0 and {len(manifest['classes']) - 1}, the "
            "places of the model's classes"
        )
    codes, _ = _quantiser(manifest).quantise(rows.features[positions])
    return Rows(codes, labels)


def clipped(rows: LocalRows, manifest: Mapping[str, Any]) -> int:
    """Return how many numbers are beyond the quantiser's range, and learned as its end.

    Raises RefusedError as `quantise`.
    """
    rows = _in_order(rows, manifest.get("features") or [])
    return _quantiser(manifest).quantise(rows.features)[1]


def _quantiser(manifest: Mapping[str, Any]) -> Quantiser:
    exponents = tuple(int(value) for value in manifest["exponents"])
    return Quantiser(exponents, int(manifest["bits"]))


def _factored(message: Message, codes: Rows) -> Message:
    """Return the message with its factor, or unchanged if float64 cannot hold one."""
    try:
        return with_factor(message, codes)
    except ExactnessError:
        return message
