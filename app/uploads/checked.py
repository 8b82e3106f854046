"""A checked upload. Without numpy: who only passes it on need not load it."""

from dataclasses import dataclass

from app.vault.artifacts import StagedArtifact


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    """A contribution: `rows` rows with distinct `records`, of `clients` and `subjects`.

    `file` is an uncompressed .npz of exactly these arrays, sealed and durable, that has no row
    yet. Rows, from `app.uploads.rows`: features (n, d) float16/32/64, finite; labels (n,) int64
    in 0…classes-1; records, clients and subjects (n,) unicode. Statistics, from
    `app.uploads.statistics`: see there. It is shredded in the transaction that learns it: raw
    features outlive their quantised form by seconds.
    """

    file: StagedArtifact
    rows: int
    records: list[str]
    clients: list[str]
    subjects: list[str]
