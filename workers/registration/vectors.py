"""Pack vectors and the options of an index as a registration for POST /v1/models."""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workers.arrays import UNREADABLE, load_numpy
from workers.data.federation import Federation
from workers.data.tables.labelled import LabelledTable
from workers.errors import DatasetError, RefusedError
from workers.registration.recipe import (
    RecipeRegistration,
    RecipeRows,
    pack,
    rows_of_federation,
    rows_of_table,
)
from workers.training.vectors.files import decode
from workers.training.vectors.index import Vectors

NEIGHBOURS, QUERIES = 10, 100


def vectors_of_table(table: LabelledTable) -> RecipeRows:
    """Return a table's rows as vectors. Raises DatasetError as `LabelledTable.vectors`."""
    return rows_of_table(table, table.vectors())


def vectors_of_federation(data: Federation) -> RecipeRows:
    """Return the rows of an .npz. Raises DatasetError for numbers beyond float32."""
    with np.errstate(over="ignore"):
        vectors = data.features.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise DatasetError(
            "features: a value exceeds the range of float32: rescale the vectors"
        )
    return rows_of_federation(data, vectors)


def prepare_vectors(
    rows: RecipeRows, options: Mapping[str, Any], *, ref: str, folder: Path
) -> RecipeRegistration:
    """Pack the rows that are not held out, with the manifest for them.

    options: of the file, see docs/vectors.md; a file of centroids is in `folder`.

    Raises RefusedError if the centroids are not a file, not a matrix, or of another width.
    """
    width = rows.features.shape[1]
    known = dict(options)
    if "centroids" in known:
        centroids = _centroids(folder, known["centroids"])
        if centroids.shape[1] != width:
            raise RefusedError(
                f"centroids: have {centroids.shape[1]} dimensions, the vectors have {width}"
            )
        known["centroids"] = base64.b64encode(centroids.astype("<f4").tobytes()).decode()
    manifest = {"family": "vectors", "ref": ref, "columns": width, "vectors": known}
    return pack(rows, manifest)


def recall(file: bytes, queries: Vectors) -> float:
    """Return the share of the 10 nearest rows that a published index finds, of all its rows.

    queries (q, columns). Needs FAISS. Raises RefusedError for a file that is not an index, or
    has no rows.
    """
    from workers.training.vectors import retrieval

    return retrieval.recall(decode(file), queries)[1]


def found_by_themselves(file: bytes, registration: RecipeRegistration) -> str:
    """Return how many of the registered records a search for their own vectors finds.

    Raises RefusedError if the file is not an index, or FAISS is missing.
    """
    from workers.training.vectors.faiss_file import search

    index = decode(file)
    with np.load(io.BytesIO(registration.npz), allow_pickle=False) as arrays:
        queries = arrays["features"]
    _, names = search(index, queries, 1)
    found = sum(
        [name] == nearest for name, nearest in zip(registration.records, names, strict=True)
    )
    held_out = recall(file, registration.features)
    return (
        f"{found} of {len(queries)} registered records are found by their vectors; "
        f"recall@{NEIGHBOURS} of {len(registration.features)} held-out rows: {held_out:.3f}"
    )


def _centroids(folder: Path, name: Any) -> Vectors:
    if not isinstance(name, str):
        raise RefusedError("centroids: must name a file, such as centroids.npy")
    path = folder / name
    if not path.is_file():
        raise RefusedError(f"centroids: there is no file {path.name} beside the JSON file")
    if path.suffix != ".npy":
        from workers.training.vectors.faiss_file import centroids_of

        return centroids_of(path)
    try:
        found = load_numpy(path)
    except UNREADABLE:
        raise RefusedError(f"{path.name}: not a readable .npy file") from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind != "f":
        raise RefusedError(f"{path.name}: must be a matrix of floats, a centroid a row")
    return found.astype(np.float32)
