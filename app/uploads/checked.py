"""A checked upload. Without numpy, for modules that only pass it on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.vault.artifacts import StagedArtifact

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    """A contribution: `rows` rows with distinct `records`, of `clients` and `subjects`.

    `file` is an uncompressed .npz of exactly these arrays, sealed and durable, but not yet in
    the database. Rows, from `app.uploads.rows`: features (n, d) float16/32/64, finite; labels
    (n,) int64 in 0…classes-1; records, clients and subjects (n,) unicode. Statistics, from
    `app.uploads.statistics`: see there. It is shredded in the transaction that learns it, so
    raw features outlive their quantised form only by seconds. held_out: how many held-out rows
    it names, whose identities it may have.
    """

    file: StagedArtifact
    rows: int
    records: list[str]
    clients: list[str]
    subjects: list[str]
    held_out: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CheckedHeldOut:
    """Held-out rows of a model whose clients keep theirs: features (m, d), labels (m,).

    ids: records, clients and subjects of each. identities: by kind the packed digests of each
    row (`lethe.identity.pack`).
    """

    features: "NDArray[Any]"
    labels: "NDArray[Any]"
    ids: Mapping[str, list[str]]
    identities: Mapping[str, list[bytes]]
