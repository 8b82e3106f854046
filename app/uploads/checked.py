"""A checked upload. Without numpy: who only passes it on need not load it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    """A contribution: `rows` rows with distinct `records`, of `clients` and `subjects`.

    `data` is an uncompressed .npz of exactly these arrays. Rows, from `app.uploads.rows`:
    features (n, d) float16/32/64, finite; labels (n,) int64 in 0…classes-1; records, clients
    and subjects (n,) unicode. Statistics, from `app.uploads.statistics`: see there. It is kept
    sealed and shredded in the transaction that learns it: raw features outlive their
    quantised form by seconds.
    """

    data: bytes
    rows: int
    records: list[str]
    clients: list[str]
    subjects: list[str]
