"""Vector indexes on the wire: everything apart from the rows that determines an index."""

import base64
import binascii
from array import array
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.schemas.base import Wire
from app.schemas.models import FamilyManifest, Name, RowForm
from lethe.catalogue import VectorsMethod

OWN = {
    "ivf": {"centroids", "probes"},
    "hnsw": {"m", "ef_construction", "ef_search", "seed"},
    "flat": set[str](),
}
Packed = Annotated[str, StringConstraints(max_length=1 << 26)]


class IndexOptions(Wire):
    """The kind of an index, and FAISS's parameters of it.

    centroids: of ivf, base64 of little-endian float32, a row after the other. They are
    published and stay when rows are erased, so they come from public data. probes: lists that
    a search of ivf reads. m, ef_construction, ef_search, seed: of hnsw.
    """

    index: Literal["flat", "ivf", "hnsw"]
    metric: Literal["l2", "inner-product"] = "l2"
    centroids: Packed = ""
    probes: int = Field(default=8, ge=1, le=65_536)
    m: int = Field(default=16, ge=2, le=256)
    ef_construction: int = Field(default=40, ge=1, le=10_000)
    ef_search: int = Field(default=64, ge=1, le=10_000)
    seed: int = Field(default=0, ge=0, le=2**31 - 1)

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        for kind, names in OWN.items():
            strange = sorted(names & self.model_fields_set)
            if strange and kind != self.index:
                raise ValueError(
                    f"{', '.join(strange)}: only for an index of the kind {kind}, leave it out"
                )
        if (self.index == "ivf") != bool(self.centroids):
            raise ValueError("centroids: an index of the kind ivf needs them")
        return self


class NewVectors(FamilyManifest):
    """The "manifest" part of POST /v1/models for a vector index.

    columns: of a vector; after an erasure, files are searched for runs of four of its numbers.
    classes: none, because rows have no label.
    """

    row_form: ClassVar[RowForm] = "vectors"
    family: Literal["vectors"]
    method: VectorsMethod = "vectors-drop"
    classes: list[Name] = Field(default_factory=list, max_length=0)
    columns: int = Field(ge=4, le=10_000)
    vectors: IndexOptions

    @model_validator(mode="after")
    def _centroids_fit(self) -> Self:
        try:
            packed = base64.b64decode(self.vectors.centroids, validate=True)
        except binascii.Error:
            raise ValueError("vectors.centroids: must be base64") from None
        if len(packed) % (4 * self.columns):
            raise ValueError(
                f"vectors.centroids: must be rows of {self.columns} float32 numbers, as wide "
                "as the vectors"
            )
        if not all(map(isfinite, array("f", packed))):
            raise ValueError("vectors.centroids: must hold no NaN and no infinity")
        return self

    def pinned(self) -> dict[str, Any]:
        """Return the pinned configuration, whose digest is logged at registration."""
        return self.of_rows(columns=self.columns, vectors=self.vectors.model_dump())
